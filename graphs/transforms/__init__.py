"""Graph to graph: backward, unroll, partition."""
