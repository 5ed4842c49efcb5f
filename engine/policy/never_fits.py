"""How many blocks a request can come to hold, and whether they can be had at all."""

from engine.block_table import blocks_for


def most_blocks(
    *, num_prompt_tokens: int, max_num_tokens: int, num_sequences: int, block_size: int
) -> int:
    """Return the most blocks that a request's sequences hold together.

    Each may grow to `max_num_tokens`; the full blocks of the prompt are there once for all of them.
    """
    # The last generated token is never fed back, so it needs no slot.
    longest = blocks_for(max_num_tokens - 1, block_size)
    shared = num_prompt_tokens // block_size if num_sequences > 1 else 0
    return shared + num_sequences * (longest - shared)
