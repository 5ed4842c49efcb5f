"""Turn trace rows into timed requests for the simulated engine: content, tenants, arrival times."""

import random
from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.block_hashers import mix
from engine.errors import ConfigError
from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.trace import Trace, TraceRow

QUANTUM_NS: Final = 100_000_000  # times closer together than this are taken as they are


MEAN_PATIENCE_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """A request and when it comes; `cancel_at_ns` is when its client leaves, 0 for never."""

    at_ns: int
    request: Request
    cancel_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class RequestMaker:
    """How trace rows become requests.

    A conversation stays with one tenant; tenants are of unequal size (the k-th has weight 1/k), and
    content is shared within a tenant only. A `cancel_ratio` of the clients leaves after some
    seconds; traces do not tell of those.
    """

    block_size: int
    num_tenants: int = 8
    seed: int = 0
    cancel_ratio: float = 0.0

    def requests(self, trace: Trace) -> list[TimedRequest]:
        """Return the trace's requests, in order of arrival."""
        times = spread_arrivals([row.arrival_ns for row in trace.rows], seed=self.seed)
        source = random.Random(self.seed)
        return [
            TimedRequest(
                at_ns,
                self._request(row, number, trace.tokens_per_id),
                self._cancel_at(at_ns, source),
            )
            for number, (at_ns, row) in enumerate(zip(times, trace.rows, strict=True))
        ]

    def _cancel_at(self, at_ns: int, source: random.Random) -> int:
        if source.random() >= self.cancel_ratio:
            return 0
        return at_ns + int(source.expovariate(1 / MEAN_PATIENCE_SECONDS) * 1e9) + 1

    def _request(self, row: TraceRow, number: int, tokens_per_id: int) -> Request:
        tenant = self._tenant(row, number)
        hashes: Seq[int] = ()
        if row.content_ids:
            hashes = block_hashes(
                row.content_ids,
                tokens_per_id=tokens_per_id,
                block_size=self.block_size,
                num_blocks=row.num_prompt_tokens // self.block_size,
                scope=mix(self.seed) ^ tenant,
            )
        return Request(
            sampling=SamplingParams(max_tokens=row.num_output_tokens),
            tenant=f"tenant-{tenant}",
            simulated=SimulatedContent(row.num_prompt_tokens, row.num_output_tokens, hashes),
        )

    def _tenant(self, row: TraceRow, number: int) -> int:
        """Return the tenant's number, from 1: by conversation where the trace tells them apart."""
        ids = row.content_ids
        # All prompts of Mooncake begin with the same 512 tokens; the second id tells them apart.
        conversation = ids[min(1, len(ids) - 1)] if ids else number
        weights = list(accumulate(1 / k for k in range(1, self.num_tenants + 1)))
        point = mix(self.seed ^ mix(conversation)) / 2**64 * weights[-1]
        return 1 + sum(weight <= point for weight in weights)


def spread_arrivals(times_ns: Seq[int], *, seed: int) -> list[int]:
    """Spread requests that came at the same coarse tick evenly at random until the next tick.

    Mooncake's times are multiples of about 3 s; taken as they are, each tick would be a burst that
    never was. Times that differ are left alone unless they are the tick of several requests.
    """
    ticks = sorted(Counter(times_ns).items())
    if len(times_ns) < 2 * len(ticks):
        return list(times_ns)
    source = random.Random(seed)
    gaps = sorted(b[0] - a[0] for a, b in pairwise(ticks))
    usual_ns = gaps[len(gaps) // 2] if gaps else 0
    spread: list[int] = []
    for index, (tick_ns, n) in enumerate(ticks):
        gap_ns = ticks[index + 1][0] - tick_ns if index + 1 < len(ticks) else usual_ns
        if gap_ns < QUANTUM_NS:
            spread += [tick_ns] * n
        else:
            width_ns = min(gap_ns, 2 * usual_ns)
            spread += sorted(tick_ns + source.randrange(width_ns) for _ in range(n))
    return spread


def block_hashes(
    content_ids: Seq[int], *, tokens_per_id: int, block_size: int, num_blocks: int, scope: int
) -> list[int]:
    """Return a 64-bit identity for each of the first `num_blocks` blocks of a prompt.

    Equal leading ids give equal leading hashes, within one `scope`.

    Raises:
        ConfigError: Neither of the two sizes divides the other.
    """
    if tokens_per_id % block_size == 0:
        per_id = tokens_per_id // block_size
        ids = np.repeat(np.array(content_ids, np.uint64), per_id)[:num_blocks]
        places = np.arange(len(ids), dtype=np.uint64)
    elif block_size % tokens_per_id == 0:
        per_block = block_size // tokens_per_id
        ids = np.array(content_ids[per_block - 1 :: per_block], np.uint64)[:num_blocks]
        places = np.arange(len(ids), dtype=np.uint64)
    else:
        accepted = f"a divisor or a multiple of the trace's {tokens_per_id} tokens per content id"
        raise ConfigError("block_size", found=block_size, accepted=accepted)
    with np.errstate(over="ignore"):
        z = _mix(ids + np.uint64(mix(scope))) ^ places
        hashes: list[int] = np.maximum(_mix(z), np.uint64(1)).tolist()
    return hashes


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread 64-bit numbers, as `block_hashers.mix` does one."""
    z = z + np.uint64(0x9E37_79B9_7F4A_7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58_476D_1CE4_E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D0_49BB_1331_11EB)
    return z ^ z >> np.uint64(31)
