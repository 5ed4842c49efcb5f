"""How a pool's kept content is found: by chained block hashes, or in a radix tree."""
