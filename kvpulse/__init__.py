"""Record what a paged KV cache does, block by block, without slowing the engine."""
