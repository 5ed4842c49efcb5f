"""What one look at a metrics page said of one engine; `None` is what the page does not tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Buckets(NamedTuple):
    """A histogram as a page has it: cumulative counts, the last bound being infinite."""

    bounds: tuple[float, ...]  # seconds, ascending, without +Inf
    counts: tuple[float, ...]  # samples at or below each bound, then all of them
    sum_seconds: float


@dataclass(frozen=True, slots=True)
class Stated:
    """What an engine states of itself that does not change while it runs.

    Attributes:
        num_blocks: As stated, a null block included where the engine keeps one.
        has_null_block: Whether it may keep one.
        max_model_len: Tokens that one sequence may have at most.
        started_at_seconds: Unix time of the process's start.
        no_bound: Why blocks cannot be bounded by the running sequences (several KV groups, blocks
            in transfer); "" where they can.
    """

    model: str | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    has_null_block: bool = True
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    started_at_seconds: float | None = None
    no_bound: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One engine at one moment.

    Attributes:
        t_ns: Wall ns UTC at which the page was asked for.
        usage_ratio: Blocks that sequences hold, as part of all usable ones.
        deferred: Of those waiting, who waits for something else than capacity.
        counters: Since the engine's start, by column of `agent.rollups.scalars.COUNTERS`.
        labelled: Since its start, by family and label of `agent.rollups.scalars.LABELLED`.
        histograms: Since its start, by name of `agent.rollups.scalars.LATENCIES`.
        mean_prompt_tokens: Of the requests that finished since its start.
    """

    t_ns: int
    engine: str
    stated: Stated
    running: int | None
    waiting: int | None
    deferred: int | None
    usage_ratio: float | None
    counters: Mapping[str, float] = field(default_factory=dict)
    labelled: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    histograms: Mapping[str, Buckets] = field(default_factory=dict)
    mean_prompt_tokens: float | None = None
