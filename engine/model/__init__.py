"""The real model: weights, text, and the tensors that blocks stand for."""
