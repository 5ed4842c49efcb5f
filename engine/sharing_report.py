"""What sharing blocks gave, and what it cost: a shared prefix is not free.

Gains: tokens that were found instead of computed, and blocks that several sequences count on
instead of storing each their own. Costs: naming and looking up contents, copies when a shared block
is written, and blocks that stay in use after the sequence that made them active gave them up.

Times of the index are CPU time, estimated from every 64th call (`lookup_meter`); all others are
engine time, which a simulated engine's clock makes up.
"""

from dataclasses import asdict, dataclass
from typing import Final

from engine.block_pool import BlockPool
from engine.forks.forking import Forking
from engine.prefix_index.lookup_meter import CallMeter
from engine.prefix_index.protocol import PrefixIndex
from engine.prefix_index.radix_index import RadixIndex
from engine.runner import RunnerDescription
from engine.scheduler import Scheduler

SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class IndexCalls:
    """Calls of one kind: `seconds` is estimated from `num_timed` of them, None if none was."""

    num_calls: int
    num_timed: int
    seconds: float | None

    @classmethod
    def of(cls, meter: CallMeter) -> "IndexCalls":
        """Read a meter."""
        estimated_ns = meter.estimated_ns()
        seconds = None if estimated_ns is None else estimated_ns / SECOND_NS
        return cls(meter.num_calls, meter.num_timed, seconds)


@dataclass(frozen=True, slots=True)
class SharingReport:
    """Sharing over an engine's life. None is what nobody could measure.

    Attributes:
        tokens_not_recomputed: Found in the prefix cache, by those that came and that returned.
        tokens_queried: Of so many.
        tokens_forked: Computed tokens that forked sequences began with.
        blocks_exchanged: Computed although the tree had them, and given up for the tree's.
        blocks_found_by_swaps: Came back to swapped sequences without a copy.
        peak_bytes_not_stored: References beyond the first of each block, at most, as bytes.
        block_seconds_not_stored: The same over time, in blocks.
        blocks_copied: Copied since they were shared and about to be written.
        bytes_copied: What was written for that.
        lookups: Calls that look for a beginning.
        identifications: Calls that name a prompt's blocks.
        offers: Calls that take filled blocks in.
        outlived_block_seconds: That shared blocks stayed active after whoever made them active
            gave them up: ended, was preempted, or wrote elsewhere.
        prefill_seconds_per_token: Of steps that only computed prompts.
        net_bytes: KV of tokens found and forked, not written again, less what was copied.
        net_block_seconds: Not stored, less outlived.
        net_seconds: Tokens found and forked, at that price, less what the index took.
    """

    tokens_not_recomputed: int
    tokens_queried: int
    tokens_forked: int
    blocks_exchanged: int
    blocks_found_by_swaps: int
    peak_bytes_not_stored: int
    block_seconds_not_stored: float
    blocks_copied: int
    bytes_copied: int
    lookups: IndexCalls
    identifications: IndexCalls
    offers: IndexCalls
    outlived_block_seconds: float
    prefill_seconds_per_token: float | None
    net_bytes: int
    net_block_seconds: float
    net_seconds: float | None

    def as_json(self) -> dict[str, object]:
        """Return the report as the commands print it."""
        return asdict(self)


class SharingMeter:
    """Follows what is shared: told the time before each pass and outcome, it adds up what held.

    What a client cancels between two steps counts as there until the next pass.
    """

    def __init__(
        self,
        pool: BlockPool,
        index: PrefixIndex,
        scheduler: Scheduler,
        forking: Forking,
        *,
        runner: RunnerDescription,
        block_size: int,
    ) -> None:
        self._pool = pool
        self._index = index
        self._scheduler = scheduler
        self._forking = forking
        self._bytes_per_token = runner.bytes_per_token
        self._block_bytes = runner.bytes_per_token * block_size // len(runner.windows)
        self._last_ns = 0
        self._saved_block_ns = 0
        self._outlived_block_ns = 0
        self._peak_saved = 0
        self._prefill_tokens = 0
        self._prefill_ns = 0

    def note(self, now_ns: int) -> None:
        """Add up what held in the time that passed; call it before a pass or outcome changes it."""
        passed_ns = now_ns - self._last_ns
        if passed_ns <= 0:
            return
        self._last_ns = now_ns
        pool = self._pool
        saved = pool.num_references - pool.num_active
        if saved:
            self._saved_block_ns += saved * passed_ns
            if saved > self._peak_saved:
                self._peak_saved = saved
        if pool.outlived:
            self._outlived_block_ns += len(pool.outlived) * passed_ns

    def note_step(self, prefill_tokens: int, decode_tokens: int, compute_ns: int) -> None:
        """Learn what a prompt token costs, from a step that computed nothing else."""
        if prefill_tokens and not decode_tokens:
            self._prefill_tokens += prefill_tokens
            self._prefill_ns += compute_ns

    def report(self, now_ns: int) -> SharingReport:
        """Return the account up to a time."""
        self.note(now_ns)
        tally, swapper = self._scheduler.tally, self._scheduler.swapper
        index = self._index
        meters = index.meters
        calls = [IndexCalls.of(m) for m in (meters.lookup, meters.identify, meters.offer)]
        copied = self._scheduler.tables.num_copied
        saved, outlived = self._saved_block_ns / SECOND_NS, self._outlived_block_ns / SECOND_NS
        tokens = tally.prefix_hit_tokens + self._forking.num_tokens_shared
        price = self._prefill_seconds_per_token()
        return SharingReport(
            tokens_not_recomputed=tally.prefix_hit_tokens,
            tokens_queried=tally.prefix_queried_tokens,
            tokens_forked=self._forking.num_tokens_shared,
            blocks_exchanged=index.num_exchanged if isinstance(index, RadixIndex) else 0,
            blocks_found_by_swaps=swapper.num_found if swapper is not None else 0,
            peak_bytes_not_stored=self._peak_saved * self._block_bytes,
            block_seconds_not_stored=saved,
            blocks_copied=copied,
            bytes_copied=copied * self._block_bytes,
            lookups=calls[0],
            identifications=calls[1],
            offers=calls[2],
            outlived_block_seconds=outlived,
            prefill_seconds_per_token=price,
            net_bytes=tokens * self._bytes_per_token - copied * self._block_bytes,
            net_block_seconds=saved - outlived,
            net_seconds=_net_seconds(tokens, price, calls),
        )

    def _prefill_seconds_per_token(self) -> float | None:
        if not self._prefill_tokens:
            return None
        return self._prefill_ns / self._prefill_tokens / SECOND_NS


def _net_seconds(tokens: int, price: float | None, calls: list[IndexCalls]) -> float | None:
    spent = [call.seconds for call in calls]
    if price is None or None in spent:
        return None
    return tokens * price - sum(seconds for seconds in spent if seconds is not None)
