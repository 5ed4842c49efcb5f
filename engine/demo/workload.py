"""What the demonstration's three tenants send, drawn from a seed."""

import random
from dataclasses import dataclass
from typing import Final

SYSTEM_PROMPT: Final = (
    "You are the support assistant of a small company that rents bicycles in a harbour town. "
    "Answer in two or three plain sentences. Bicycles can be picked up from eight in the morning "
    "and must be back before seven in the evening. Helmets are free. Children under twelve ride "
    "with an adult. A lost key costs twenty euros, a flat tyre costs nothing, and rain is no "
    "reason for a refund, although a voucher for a hot drink has been known to help. Never promise "
    "a bicycle that has not been reserved, and always give the price before anything else."
)
_QUESTIONS: Final = (
    "Can I keep the bicycle overnight?",
    "My son is nine. May he ride alone?",
    "It rained all day. Do I get my money back?",
    "I have lost the key. What now?",
    "Do you have a bicycle for two for Saturday?",
    "How late can I bring it back, and what if I am late?",
)
_WORDS: Final = (
    "harbour", "lantern", "copper", "winter", "letter", "garden", "engine", "silver", "market",
    "bridge", "captain", "window", "morning", "paper", "river", "station", "music", "candle",
    "forest", "doctor", "journey", "kitchen", "ladder", "mountain", "number", "orange", "pocket",
    "question", "railway", "summer", "table", "under", "village", "weather", "yellow", "bottle",
)  # fmt: skip

CHAT_PRIORITY: Final = -1  # somebody sits and waits for it

Body = dict[str, object]


@dataclass(frozen=True, slots=True)
class DemoShape:
    """How large engine and workload are, so that the pool comes under pressure but keeps serving.

    Attributes:
        long_words: Fewest and most words of a report's prompt.
        report_tokens: Fewest and most tokens of a report's answer.
        think_seconds: Mean pause of a client between two requests.
    """

    num_blocks: int
    block_size: int
    max_context: int
    max_batch: int
    max_queue: int
    token_budget: int
    chat_clients: int
    search_clients: int
    report_clients: int
    long_words: tuple[int, int]
    report_tokens: tuple[int, int]
    think_seconds: float
    burst_every_seconds: float

    @property
    def pool_tokens(self) -> int:
        """How many tokens the whole pool holds."""
        return self.num_blocks * self.block_size

    @property
    def burst_requests(self) -> int:
        """More at once than can wait."""
        return self.max_queue + 8


REAL_SHAPE: Final = DemoShape(
    num_blocks=40,
    block_size=16,
    max_context=1024,
    max_batch=10,
    max_queue=10,
    token_budget=128,
    chat_clients=3,
    search_clients=2,
    report_clients=4,
    long_words=(40, 110),
    report_tokens=(40, 110),
    think_seconds=0.5,
    burst_every_seconds=12.0,
)

SIMULATED_SHAPE: Final = DemoShape(
    num_blocks=384,
    block_size=16,
    max_context=8192,
    max_batch=24,
    max_queue=24,
    token_budget=1024,
    chat_clients=8,
    search_clients=4,
    report_clients=8,
    long_words=(150, 500),
    report_tokens=(150, 400),
    think_seconds=0.3,
    burst_every_seconds=8.0,
)


class Prompts:
    """Draws request bodies; the same seed draws the same ones."""

    def __init__(self, shape: DemoShape, seed: int) -> None:
        self._shape = shape
        self._random = random.Random(seed)

    def chat(self) -> Body:
        """A question behind the system prompt that all chats share."""
        messages = [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": self._random.choice(_QUESTIONS)},
        ]
        most = self._random.randint(16, 48)
        return {"messages": messages, "max_tokens": most, "priority": CHAT_PRIORITY}

    def search(self) -> Body:
        """A few words in, a few words out; some want two answers to choose from."""
        body: Body = {"prompt": self._words(6, 16), "max_tokens": self._random.randint(4, 12)}
        if self._random.random() < 0.25:
            body |= {"n": 2, "temperature": 0.8}
        return body

    def report(self) -> Body:
        """A long text to be continued at length."""
        prompt = "Write a report. " + self._words(*self._shape.long_words)
        return {"prompt": prompt, "max_tokens": self._random.randint(*self._shape.report_tokens)}

    def over_long(self) -> Body:
        """A prompt that the context cannot hold."""
        return {"prompt": self._token_ids(self._shape.max_context + 64), "max_tokens": 16}

    def never_fitting(self) -> Body:
        """A prompt that the context could hold, but never the pool."""
        shape = self._shape
        num_tokens = (shape.pool_tokens + shape.max_context) // 2
        return {"prompt": self._token_ids(num_tokens), "max_tokens": 16}

    def leaves_early(self) -> bool:
        """Whether a client walks away from this answer."""
        return self._random.random() < 0.2

    def patience_tokens(self) -> int:
        """After how many pieces it walks away."""
        return self._random.randint(1, 8)

    def think_seconds(self) -> float:
        """How long a client pauses."""
        return self._random.expovariate(1 / self._shape.think_seconds)

    def _words(self, fewest: int, most: int) -> str:
        return " ".join(self._random.choices(_WORDS, k=self._random.randint(fewest, most)))

    def _token_ids(self, count: int) -> list[int]:
        return [self._random.randrange(1000, 40_000) for _ in range(count)]
