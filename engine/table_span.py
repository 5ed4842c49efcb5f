"""Which part of a sequence's table holds blocks: all of it, or what a sliding window needs.

A model's layers lie in one or several *KV groups* of equal size; a block holds `block_size` tokens
of one group's layers, so each group has a table of its own. They lie in one list: place i is the
(i // G)-th run of `block_size` tokens, a *stretch*, of group i % G. In a group with a window,
position p attends to positions above p - window. With c computed tokens a sequence holds

    group without a window: all that its tokens fill
    group with one:         from the stretch of position c + 1 - window on, at most what window and
                            one step's tokens can touch: ceil((window + chunk - 2) / size) + 1

so under windows a prompt is never allocated whole. What is asked for at admission is the most that
its later chunks need, since each first gives back what slid out of the window.

Source: vLLM's hybrid KV cache manager (vllm/v1/core/kv_cache_coordinator.py, kv_cache_utils.py).
"""

from dataclasses import dataclass

from engine.block_table import NULL_BLOCK, blocks_for


@dataclass(frozen=True, slots=True)
class TableSpan:
    """Answers for the tables of one engine, in blocks.

    Attributes:
        windows: Of each KV group, how many positions a token attends to, its own included; None
            for all. Groups without a window come first.
        chunk_tokens: Most tokens that one step computes of a sequence.
    """

    block_size: int
    windows: tuple[int | None, ...] = (None,)
    chunk_tokens: int = 1

    @property
    def num_groups(self) -> int:
        """Return how many blocks each stretch of tokens has."""
        return len(self.windows)

    @property
    def slides(self) -> bool:
        """Return whether any group gives blocks back."""
        return any(window is not None for window in self.windows)

    @property
    def most_held(self) -> int | None:
        """Return the most blocks that one sequence ever holds; None if that depends on it."""
        if None in self.windows:
            return None
        return sum(self.most_under(window) for window in self.windows if window is not None)

    def most_under(self, window: int) -> int:
        """Return the most blocks that a sequence ever holds of a group with a window."""
        return blocks_for(window + self.chunk_tokens - 2, self.block_size) + 1

    def first(self, window: int | None, num_computed_tokens: int) -> int:
        """Return the first stretch that the next token, or a later one, attends to in a group."""
        if window is None:
            return 0
        return max(num_computed_tokens + 1 - window, 0) // self.block_size

    def num_behind(self, num_computed_tokens: int) -> int:
        """Return how many places, over all groups, lie behind the next token's windows."""
        return sum(self.first(window, num_computed_tokens) for window in self.windows)

    def seen(self, places: list[int], num_computed_tokens: int) -> list[int]:
        """Return the leading places of a table, null where they lie behind the windows."""
        seen = places.copy()
        for group, window in enumerate(self.windows):
            end = self.first(window, num_computed_tokens)
            seen[group : end * self.num_groups : self.num_groups] = [NULL_BLOCK] * end
        return seen

    def end(self, num_computed_tokens: int, num_tokens: int) -> int:
        """Return how many places the table of a sequence has when it begins to run."""
        ends = [
            self._end(window, num_computed_tokens, num_tokens)
            for window in self.windows
            if window is not None
        ]
        stretches = min(ends) if ends else blocks_for(num_tokens, self.block_size)
        return stretches * self.num_groups

    def num_needed(self, num_computed_tokens: int, num_tokens: int) -> int:
        """Return the most blocks that a sequence holds until so many tokens are computed."""
        return sum(
            self._end(window, num_computed_tokens, num_tokens)
            - self.first(window, num_computed_tokens)
            for window in self.windows
        )

    def most_of_request(
        self, *, num_prompt_tokens: int, max_num_tokens: int, num_sequences: int
    ) -> int:
        """Return the most blocks that a request's sequences hold together.

        Each may grow to `max_num_tokens`; of a group without a window the full blocks of the prompt
        are there once for all of them, with one each is counted with what the window takes.
        """
        # The last generated token is never fed back, so it needs no slot.
        longest = blocks_for(max_num_tokens - 1, self.block_size)
        shared = num_prompt_tokens // self.block_size if num_sequences > 1 else 0
        whole = shared + num_sequences * (longest - shared)
        return sum(
            whole if window is None else min(whole, num_sequences * self.most_under(window))
            for window in self.windows
        )

    def longest(self, num_blocks: int, *, num_prompt_tokens: int, num_sequences: int) -> int | None:
        """Return how many tokens each of a request's sequences may have; None for any number."""
        under = sum(self.most_under(window) for window in self.windows if window is not None)
        most, left = num_blocks // self.num_groups, num_blocks - num_sequences * under
        if left >= 0 and self.slides:
            if None not in self.windows:
                return None
            most = max(most, left // self.windows.count(None))
        shared = num_prompt_tokens // self.block_size if num_sequences > 1 else 0
        return (shared + (most - shared) // num_sequences) * self.block_size

    def _end(self, window: int | None, num_computed_tokens: int, num_tokens: int) -> int:
        """Return how many stretches a group's part of the table has, if it is by itself."""
        whole = blocks_for(num_tokens, self.block_size)
        if window is None:
            return whole
        return min(whole, self.first(window, num_computed_tokens) + self.most_under(window))
