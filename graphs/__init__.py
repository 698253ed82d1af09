"""Graphs of operations with symbolic shapes; knows nothing of costs or claims."""
