"""Triton kernels, imported only if Triton is installed."""
