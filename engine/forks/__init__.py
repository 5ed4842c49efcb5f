"""Several sequences out of one prompt: samples and beams that share blocks until they write."""
