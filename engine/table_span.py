"""Which part of a sequence's table holds blocks: all of it, or what a sliding window needs.

Position p attends to positions above p - window. A sequence with c computed tokens holds, from the
block of position c + 1 - window on,

    non-windowed: all that its tokens fill, from the moment it is admitted
    windowed:     at most the blocks that window and one step's tokens can touch:
                  ceil((window + chunk - 2) / block_size) + 1

so a windowed prompt is never allocated whole. What it takes when it is admitted is the most that
its later chunks need, since each first gives back what slid out of the window.
"""

from dataclasses import dataclass

from engine.block_table import blocks_for


@dataclass(frozen=True, slots=True)
class TableSpan:
    """Answers for the tables of one engine, in blocks.

    Attributes:
        window: How many positions a token attends to, its own included; None for all.
        chunk_tokens: Most tokens that one step computes of a sequence.
    """

    block_size: int
    window: int | None = None
    chunk_tokens: int = 1

    @property
    def most_held(self) -> int | None:
        """Return the most blocks that one sequence ever holds; None if that depends on it."""
        if self.window is None:
            return None
        return blocks_for(self.window + self.chunk_tokens - 2, self.block_size) + 1

    def first(self, num_computed_tokens: int) -> int:
        """Return the first place in the table that the next token, or a later one, attends to."""
        if self.window is None:
            return 0
        return max(num_computed_tokens + 1 - self.window, 0) // self.block_size

    def end(self, num_computed_tokens: int, num_tokens: int) -> int:
        """Return how many places the table of a sequence has when it begins to run."""
        whole = blocks_for(num_tokens, self.block_size)
        most = self.most_held
        return whole if most is None else min(whole, self.first(num_computed_tokens) + most)

    def most_of_request(
        self, *, num_prompt_tokens: int, max_num_tokens: int, num_sequences: int
    ) -> int:
        """Return the most blocks that a request's sequences hold together.

        Each may grow to `max_num_tokens`; without a window the full blocks of the prompt are there
        once for all of them, with one each is counted with what a window takes.
        """
        # The last generated token is never fed back, so it needs no slot.
        longest = blocks_for(max_num_tokens - 1, self.block_size)
        shared = num_prompt_tokens // self.block_size if num_sequences > 1 else 0
        whole = shared + num_sequences * (longest - shared)
        most = self.most_held
        return whole if most is None else min(whole, num_sequences * most)
