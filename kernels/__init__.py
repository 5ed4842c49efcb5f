"""Triton kernels of the paged KV cache, their launchers, and a torch reference for each."""
