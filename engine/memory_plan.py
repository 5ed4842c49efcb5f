"""How many blocks a KV cache gets: what memory there is, what else needs some, what a block takes.

    num_blocks = (memory - reserve) // (block_size x (cache + workspace) bytes per token)

What a token takes follows from the cache's shape and format (`KvShape.bytes_per_token`,
`LatentShape.bytes_per_token`). Pure functions on numbers; nothing here looks at the machine.

Source: Kwon et al. 2023 (arXiv:2309.06180), section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.errors import EngineError
from engine.table_span import TableSpan

_UNITS: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def activation_bytes(
    *, token_budget: int, max_batch: int, hidden: int, intermediate: int, vocab_size: int
) -> int:
    """Return a bound on what a step's activations take, in fp32.

    Six hidden states (residual, norm, query, key and value, attention, output) and three of the
    MLP for each token of the step; logits and their sorted copy for each sequence that samples.
    """
    per_token = 6 * hidden + 3 * intermediate
    return 4 * (token_budget * per_token + 2 * max_batch * vocab_size)


@dataclass(frozen=True, slots=True)
class Reserve:
    """Memory that the cache may not have.

    Attributes:
        shrinkable: It could be made smaller by settings; weights could not.
    """

    name: str
    num_bytes: int
    shrinkable: bool = False


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What is to fit, and where.

    Attributes:
        memory_bytes: All that may be used, of the GPU or of this machine.
        source: Where that number comes from, for people.
        bytes_per_token: Of one KV group's layers, for each format that it could be kept in.
        workspace_bytes_per_token: What attention needs beside each token of the pool.
        max_context: Tokens that one sequence alone must be able to have.
        windows: Of each KV group, as `TableSpan` has them.
        chunk_tokens: Most tokens of one step: beside a window, what a sequence holds.
        num_blocks: Blocks that are asked for; None takes as many as fit.
        most_blocks: More would not be used, so that fewer than fit are taken; None for no bound.
    """

    memory_bytes: int
    kv_format: str
    bytes_per_token: Mapping[str, int]
    block_size: int
    max_context: int
    reserves: tuple[Reserve, ...] = ()
    workspace_bytes_per_token: int = 0
    windows: tuple[int | None, ...] = (None,)
    chunk_tokens: int = 1
    num_blocks: int | None = None
    most_blocks: int | None = None
    source: str = "memory"

    @property
    def reserve_bytes(self) -> int:
        """Return what the cache may not have."""
        return sum(reserve.num_bytes for reserve in self.reserves)

    @property
    def shrinkable_bytes(self) -> int:
        """Return how much of that could be less."""
        return sum(reserve.num_bytes for reserve in self.reserves if reserve.shrinkable)

    @property
    def num_blocks_needed(self) -> int:
        """Return the blocks asked for, or those of one whole context."""
        return self.num_blocks or self.num_blocks_of_context

    @property
    def num_blocks_of_context(self) -> int:
        """Return the blocks that a sequence of a whole context holds, at the most."""
        span = TableSpan(self.block_size, self.windows, self.chunk_tokens)
        return span.num_needed(0, self.max_context)

    def block_bytes(self, kv_format: str | None = None) -> int:
        """Return what a block takes, in another format if one is named."""
        of_cache = self.bytes_per_token[kv_format or self.kv_format]
        return self.block_size * (of_cache + self.workspace_bytes_per_token)

    def num_blocks_that_fit(self, kv_format: str | None = None) -> int:
        """Return how many blocks there is room for."""
        left = self.memory_bytes - self.reserve_bytes
        return max(0, left) // self.block_bytes(kv_format)


@dataclass(frozen=True, slots=True)
class Change:
    """One change after which the request fits.

    Attributes:
        setting: `max_context`, `num_blocks`, `kv_format`, `memory` or `reserve`.
        value: What it would have to be: tokens, blocks, a name, or bytes.
        size_ratio: How large a change that is, as a part of what was asked.
    """

    setting: str
    value: int | str
    size_ratio: float

    def in_words(self) -> str:
        """Say what to do."""
        value = self.value
        if self.setting == "kv_format":
            return f"keep the cache in {value} (--kv-format {value})"
        assert isinstance(value, int), "only a format is a name"
        words = {
            "max_context": f"at most {value:,} tokens of context (--max-context {value})",
            "num_blocks": f"{value:,} blocks (--num-blocks {value})",
            "memory": f"{bytes_in_words(value)} of memory (--memory {value})",
            "reserve": f"at most {bytes_in_words(value)} for activations and workspace "
            "(a smaller --token-budget or --max-batch)",
        }
        return words[self.setting]


class MemoryPlanError(EngineError):
    """The cache that was asked for does not fit; `changes` says what would, the smallest first."""

    exit_code = 2

    def __init__(self, request: MemoryRequest, changes: tuple[Change, ...]) -> None:
        asked = f"{request.num_blocks_needed:,} blocks of {request.block_size} tokens"
        if request.num_blocks is None:
            asked = f"one sequence of {request.max_context:,} tokens ({asked})"
        needed = request.num_blocks_needed * request.block_bytes()
        left = request.memory_bytes - request.reserve_bytes
        super().__init__(
            f"{asked} in {request.kv_format} takes {bytes_in_words(needed)}, and "
            f"{_or_nothing(left)} is left of {bytes_in_words(request.memory_bytes)}. "
            + _advice(changes)
        )
        self.request = request
        self.changes = changes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A cache that fits.

    Attributes:
        lines: How its size came about, for the log.
    """

    request: MemoryRequest
    num_blocks: int
    lines: tuple[str, ...] = field(repr=False)

    @property
    def cache_bytes(self) -> int:
        """Return what the cache itself takes."""
        per_token = self.request.bytes_per_token[self.request.kv_format]
        return self.num_blocks * self.request.block_size * per_token


def plan_memory(request: MemoryRequest) -> MemoryPlan:
    """Return the blocks that a cache gets.

    Raises:
        MemoryPlanError: What was asked for does not fit; it says the smallest change that would.
    """
    fitting = request.num_blocks_that_fit()
    if fitting < request.num_blocks_needed:
        raise MemoryPlanError(request, changes_that_fit(request))
    num_blocks = request.num_blocks or fitting
    if request.num_blocks is None and request.most_blocks is not None:
        num_blocks = max(min(fitting, request.most_blocks), request.num_blocks_needed)
    return MemoryPlan(request, num_blocks, _explain(request, num_blocks))


def changes_that_fit(request: MemoryRequest) -> tuple[Change, ...]:
    """Return each single change after which the request fits, the smallest first."""
    needed, fitting = request.num_blocks_needed, request.num_blocks_that_fit()
    bytes_short = needed * request.block_bytes() + request.reserve_bytes - request.memory_bytes
    if fitting >= needed:
        return ()
    changes = [
        Change(
            "memory",
            request.memory_bytes + bytes_short,
            bytes_short / max(request.memory_bytes, 1),
        )
    ]
    if fitting >= len(request.windows) and request.num_blocks is None:
        tokens = fitting // len(request.windows) * request.block_size
        changes.append(Change("max_context", tokens, 1 - tokens / request.max_context))
    elif fitting and request.num_blocks is not None:
        changes.append(Change("num_blocks", fitting, 1 - fitting / needed))
    shrinkable = request.shrinkable_bytes
    if bytes_short <= shrinkable:
        left = shrinkable - bytes_short
        changes.append(Change("reserve", left, bytes_short / shrinkable))
    changes += _other_format(request)
    return tuple(sorted(changes, key=lambda change: change.size_ratio))


def _other_format(request: MemoryRequest) -> list[Change]:
    """Return the widest of the narrower formats that fits."""
    now = request.bytes_per_token[request.kv_format]
    fitting = [
        (num_bytes, name)
        for name, num_bytes in request.bytes_per_token.items()
        if num_bytes < now and request.num_blocks_that_fit(name) >= request.num_blocks_needed
    ]
    if not fitting:
        return []
    num_bytes, name = max(fitting)
    return [Change("kv_format", name, 1 - num_bytes / now)]


def _explain(request: MemoryRequest, num_blocks: int) -> tuple[str, ...]:
    per_token, size = request.bytes_per_token[request.kv_format], request.block_size
    groups = len(request.windows)
    layers = "all layers" if groups == 1 else f"the layers of one of {groups} KV groups"
    left = request.memory_bytes - request.reserve_bytes
    lines = [f"{request.source}: {bytes_in_words(request.memory_bytes)}"]
    lines += [f"  - {each.name}: {bytes_in_words(each.num_bytes)}" for each in request.reserves]
    lines += [
        f"  = left for the KV cache: {bytes_in_words(left)}",
        f"a token in {request.kv_format}: {per_token:,} bytes over {layers}",
    ]
    if request.workspace_bytes_per_token:
        workspace = request.workspace_bytes_per_token
        lines.append(f"  + {workspace:,} bytes that attention needs beside it")
    lines.append(f"a block of {size} tokens: {bytes_in_words(request.block_bytes())}")
    tokens = num_blocks // groups * size
    contexts = tokens / request.max_context
    if any(request.windows):
        contexts = num_blocks / request.num_blocks_of_context
    asked = "as many as fit"
    if request.num_blocks:
        asked = "as asked"
    elif num_blocks < request.num_blocks_that_fit():
        asked = "as many as can be of use"
    lines.append(
        f"{num_blocks:,} blocks, {asked}: {tokens:,} tokens, {contexts:.1f} sequences of "
        f"{request.max_context:,}"
    )
    return tuple(lines)


def _advice(changes: tuple[Change, ...]) -> str:
    first, *others = [change.in_words() for change in changes]
    return f"The smallest change that fits: {first}." + (
        f" Or: {'; '.join(others)}." if others else ""
    )


def _or_nothing(num_bytes: int) -> str:
    return bytes_in_words(num_bytes) if num_bytes > 0 else "nothing"


def bytes_in_words(num_bytes: int) -> str:
    """Return a number of bytes in the unit that people read it in."""
    for size, unit in _UNITS:
        if num_bytes >= size:
            return f"{num_bytes / size:,.2f} {unit}"
    return f"{num_bytes:,} bytes"
