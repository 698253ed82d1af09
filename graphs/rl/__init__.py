"""Post-training that runs: the operation graphs of the stages, and which nodes of a stage graph each carries out."""
