"""Whole models: the decoder between an embedding and one of three heads."""
