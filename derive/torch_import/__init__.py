"""PyTorch models as operation graphs: the only part of the package that needs PyTorch, imported on demand."""
