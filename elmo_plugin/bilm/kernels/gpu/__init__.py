"""LSTM layers on a GPU, by Triton kernels."""
