"""Chunks: the records themselves, compressed, as the store keeps them."""
