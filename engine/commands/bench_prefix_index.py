"""The prefix index half of `kvpulse bench pool`: what finding and taking in a prompt costs.

1,000 random prompts of 1,024 tokens are kept in blocks of 16. Then, prompt by prompt:

- `match`: `lookup` of a sequence that begins with a whole kept prompt, all 64 blocks of which are
  found. It starts from the sequence as the engine holds it in its queue: the tree has its prompt as
  bytes, converted once at arrival, the table of hashes has its hashes, computed once at arrival.
- `match_from_list`: the same from a plain list of token ids: conversion or hashing included.
- `insert`: `offer` of a sequence whose first half was found and shared, and whose second half was
  just computed: 32 blocks are new. Its hashes were computed at arrival.
- `insert_exchanging` (tree only): the same if it computed all of it although half was kept, so that
  32 blocks are exchanged for the tree's as well.
- `identify`: naming the blocks of a prompt at arrival, nothing of which is kept.

CPU time of the thread, the median over all prompts. Answers are checked before anything is timed.
"""

import random
import statistics
import time
from itertools import count
from typing import Final

from engine.block_pool import BlockPool
from engine.errors import PoolError
from engine.pool_results import AllocationRefusal
from engine.prefix_index.opening import open_prefix_index
from engine.prefix_index.radix_index import RadixIndex
from engine.request import Request
from engine.sequence import Sequence
from kvpulse.identity import KeyedHashes

NUM_PROMPTS: Final = 1_000
PROMPT_TOKENS: Final = 1_024
BLOCK_SIZE: Final = 16
NUM_BLOCKS: Final = PROMPT_TOKENS // BLOCK_SIZE
VOCABULARY: Final = 50_000
SEED: Final = 20_261_130
TARGETS_US: Final = {"radix_match_us": 10, "radix_insert_us": 60}

Tokens = list[int]


class KeptPrompts:
    """A pool and an index that keep the prompts, and acts on them that can be timed."""

    def __init__(self, kind: str, prompts: list[Tokens]) -> None:
        # Room for every prompt, its other half in each of two rounds, and what runs.
        self.pool = BlockPool((3 * len(prompts) + 2) * NUM_BLOCKS)
        self.index = open_prefix_index(
            kind, self.pool, block_size=BLOCK_SIZE, hashes=KeyedHashes(bytes(32))
        )
        self._numbers = count(1)
        for prompt in prompts:
            self.insert(prompt)

    def sequence(self, tokens: Tokens) -> Sequence:
        """Return a sequence that the index does not know yet."""
        return Sequence(next(self._numbers), Request(tokens), block_size=BLOCK_SIZE)

    def identify(self, tokens: Tokens) -> int:
        """Return the CPU time of naming a prompt's blocks."""
        seq = self.sequence(tokens)
        started_ns = time.thread_time_ns()
        self.index.identify_prompt(seq)
        return time.thread_time_ns() - started_ns

    def match(self, tokens: Tokens, *, num_found: int) -> int:
        """Return the CPU time of finding a prompt that is identified."""
        seq = self.sequence(tokens)
        self.index.identify_prompt(seq)
        started_ns = time.thread_time_ns()
        hit = self.index.lookup(seq)
        spent_ns = time.thread_time_ns() - started_ns
        _expect(len(hit.block_ids), num_found)
        return spent_ns

    def match_from_list(self, tokens: Tokens, *, num_found: int) -> int:
        """Return the CPU time of finding a prompt, from its plain list of token ids on."""
        seq = self.sequence(tokens)
        started_ns = time.thread_time_ns()
        self.index.identify_prompt(seq)
        hit = self.index.lookup(seq)
        spent_ns = time.thread_time_ns() - started_ns
        _expect(len(hit.block_ids), num_found)
        return spent_ns

    def insert(self, tokens: Tokens, *, num_shared: int = 0) -> int:
        """Let a sequence compute what it does not share; return the CPU time of taking it in."""
        seq = self.sequence(tokens)
        self.index.identify_prompt(seq)
        table = seq.block_table.block_ids
        if num_shared:
            found = self.index.lookup(seq).block_ids
            _expect(len(found), num_shared)
            self.pool.share(seq.seq_id, found, table)
        answer = self.pool.allocate(seq.seq_id, NUM_BLOCKS - num_shared)
        assert not isinstance(answer, AllocationRefusal), "the pool holds them all"
        table += answer
        self.index.begin(seq, num_shared)
        seq.num_computed_tokens = PROMPT_TOKENS
        started_ns = time.thread_time_ns()
        self.index.offer(seq)
        spent_ns = time.thread_time_ns() - started_ns
        self.pool.free(seq.seq_id, table)
        return spent_ns

    def check(self) -> None:
        """Recount everything."""
        self.pool.check()
        if isinstance(self.index, RadixIndex):
            self.index.check()
            self.index.check_ways()


def measure_index(
    kind: str, *, seed: int = SEED, num_prompts: int = NUM_PROMPTS
) -> dict[str, float]:
    """Return the figures of one index, in microseconds a prompt.

    Raises:
        PoolError: The index does not do what is to be timed.
    """
    source = random.Random(seed)
    prompts = [_tokens(source, PROMPT_TOKENS) for _ in range(num_prompts)]
    half = PROMPT_TOKENS // 2
    kept = KeptPrompts(kind, prompts)
    kept.check()
    whole = [[*prompt, 1] for prompt in prompts]  # one more token, which is computed in any case
    samples = {
        "identify": [kept.identify(_tokens(source, PROMPT_TOKENS)) for _ in prompts],
        "match": [kept.match(tokens, num_found=NUM_BLOCKS) for tokens in whole],
        "match_from_list": [kept.match_from_list(tokens, num_found=NUM_BLOCKS) for tokens in whole],
        "insert": [
            kept.insert(prompt[:half] + _tokens(source, half), num_shared=NUM_BLOCKS // 2)
            for prompt in prompts
        ],
    }
    if kind == "radix":
        samples["insert_exchanging"] = [
            kept.insert(prompt[:half] + _tokens(source, half)) for prompt in prompts
        ]
    kept.check()
    return {
        f"{kind}_{name}_us": statistics.median(values) / 1_000 for name, values in samples.items()
    }


def _tokens(source: random.Random, n: int) -> Tokens:
    return [source.randrange(VOCABULARY) for _ in range(n)]


def _expect(found: int, expected: int) -> None:
    if found != expected:
        raise PoolError(f"the index found {found} blocks of a prompt that has {expected} kept")
