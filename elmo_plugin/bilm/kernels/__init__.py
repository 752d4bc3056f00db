"""Backends of the biLM: the reference implementation in plain PyTorch, and faster kernels."""
