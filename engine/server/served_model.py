"""The model behind the API: its names, its text, and how much one request can hold."""

from dataclasses import dataclass

from engine.server.text_codec import TextCodec
from engine.table_span import TableSpan


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model behind the API.

    Attributes:
        names: What clients may call it; the first is what it calls itself.
        vocab_size: Token ids are below this; 0 where any id will do.
        max_context: Most tokens of a sequence.
        num_blocks: Blocks of the whole pool.
        span: What a sequence holds of them.
    """

    names: tuple[str, ...]
    text: TextCodec
    vocab_size: int
    max_context: int
    num_blocks: int
    span: TableSpan

    def room(
        self, num_prompt_tokens: int, *, num_sequences: int, most_blocks: int | None = None
    ) -> int:
        """Return the largest max_tokens that fits for each sequence of a prompt, at least 1.

        Args:
            most_blocks: What the tenant may hold; None for the whole pool.

        The sequences share the full blocks of their prompt and have the rest each for itself; each
        holds no more than a window needs, if there is one.
        """
        pool = self.num_blocks if most_blocks is None else min(most_blocks, self.num_blocks)
        longest = self.span.longest(
            pool, num_prompt_tokens=num_prompt_tokens, num_sequences=num_sequences
        )
        if longest is None:
            longest = self.max_context
        return max(min(self.max_context, longest) - num_prompt_tokens, 1)
