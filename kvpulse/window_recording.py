"""What an engine was asked to do in a window, and what its steps took: enough to replay it.

Distilled from a stream's records by whoever reads them, in the order in which they were written.
It holds numbers and keyed hashes of content, as the journal does: no text and no token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from kvpulse.events import ArriveWord, FinishReason, FinishWord, Kind, StepWord
from kvpulse.stream_values import Records, Words

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Stated = str | int | float | bool | None

UNKNOWN: Final = -1
MOST_REQUESTS: Final = 20_000  # a window ends before more have arrived
MOST_HASHES: Final = 2_000_000
MOST_STEPS: Final = 500_000
REQUEST_FIELDS: Final = (
    "arrived_ns",
    "prompt_tokens",
    "max_tokens",
    "output_tokens",
    "priority",
    "tier",
    "tenant",
    "deadline_ns",
    "cancelled_ns",
    "first_token_ns",
    "num_hashes",
)
STEP_FIELDS: Final = ("prefill_tokens", "decode_tokens", "context_tokens", "total_ns")
_ARRIVE_HEAD: Final = len(ArriveWord)


@dataclass(frozen=True, slots=True)
class WindowRecording:
    """A window of one engine; times count from its start.

    Attributes:
        window_ns: How long it is.
        fingerprint: What the engine stated of itself.
        requests: [num_requests] of each of `REQUEST_FIELDS`, by arrival. `UNKNOWN` stands in
            `output_tokens` of a request that did not end, in `cancelled_ns` of one that nobody
            cancelled, and in `first_token_ns` of one that had none; `deadline_ns` counts from the
            arrival, 0 is none; `tenant` is a number that means nothing elsewhere.
        hashes: The content hashes of the requests' full prompt blocks, one request after the other.
        steps: [num_steps] of each of `STEP_FIELDS`; `total_ns` is planning, computing, sampling.
        num_lost: Events that are known to be missing.
    """

    window_ns: int
    fingerprint: dict[str, Stated]
    requests: dict[str, Ints]
    hashes: Hashes
    steps: dict[str, Ints]
    num_lost: int = 0

    @property
    def num_requests(self) -> int:
        """How many requests arrived."""
        return len(self.requests["arrived_ns"])

    @property
    def num_steps(self) -> int:
        """How many steps ended."""
        return len(self.steps["total_ns"])


@dataclass(slots=True)
class WindowRecorder:
    """Takes a stream's records and keeps those of `[start_ns, end_ns)`, in engine time.

    A request counts by its arrival. Its end may come later; whoever goes on after the window for a
    while knows more of them. It never raises on damaged words: what is impossible is left out.
    """

    start_ns: int
    end_ns: int
    num_lost: int = 0
    _rows: dict[int, dict[str, int]] = field(default_factory=dict)
    _hashes: list[Hashes] = field(default_factory=list)
    _num_hashes: int = 0
    _steps: list[Ints] = field(default_factory=list)
    _num_steps: int = 0

    def take(self, records: Records, lane: Words, lane_base: int) -> None:
        """Take the next records; a record's words start at `lane[first - lane_base]`."""
        kind = records["kind"]
        self._take_steps(records[kind == Kind.STEP], lane, lane_base)
        about = np.isin(kind, (Kind.ARRIVE, Kind.FIRST_TOKEN, Kind.FINISH))
        for record in records[about]:
            at_ns, owner = int(record["ts_ns"]), int(record["owner"])
            start = int(record["first"]) - lane_base
            words = lane[max(start, 0) : start + int(record["n"])] if start >= 0 else lane[:0]
            if record["kind"] == Kind.ARRIVE:
                self._arrive(at_ns, owner, int(record["tenant"]), words)
            elif record["kind"] == Kind.FIRST_TOKEN:
                self._first_token(at_ns, owner, is_again=bool(record["flags"] & 1))
            else:
                self._finish(at_ns, owner, int(record["aux"]), words)

    def recording(self, fingerprint: Mapping[str, Stated]) -> WindowRecording:
        """Return what was kept."""
        rows = list(self._rows.values())
        requests = {
            name: np.array([row[name] for row in rows], np.int64) for name in REQUEST_FIELDS
        }
        steps = np.concatenate(self._steps) if self._steps else np.zeros((0, len(STEP_FIELDS)))
        columns = steps.astype(np.int64).T
        return WindowRecording(
            window_ns=self.end_ns - self.start_ns,
            fingerprint=dict(fingerprint),
            requests=requests,
            hashes=np.concatenate(self._hashes) if self._hashes else np.zeros(0, np.uint64),
            steps={
                name: np.ascontiguousarray(c) for name, c in zip(STEP_FIELDS, columns, strict=True)
            },
            num_lost=self.num_lost,
        )

    def _arrive(self, at_ns: int, owner: int, tenant: int, words: Words) -> None:
        is_full = len(self._rows) >= MOST_REQUESTS or self._num_hashes >= MOST_HASHES
        if not self.start_ns <= at_ns < self.end_ns or len(words) < _ARRIVE_HEAD:
            return
        if is_full:
            self.end_ns = at_ns
            return
        if words[ArriveWord.PARENT] or owner in self._rows:
            return
        num_hashes = min(int(words[ArriveWord.NUM_HASHES]), (len(words) - _ARRIVE_HEAD) // 2)
        pairs = words[_ARRIVE_HEAD : _ARRIVE_HEAD + 2 * num_hashes].astype(np.uint64)
        self._hashes.append(pairs[0::2] | pairs[1::2] << np.uint64(32))
        self._num_hashes += num_hashes
        deadline = _u64(words, ArriveWord.DEADLINE_LOW)
        self._rows[owner] = {
            "arrived_ns": at_ns - self.start_ns,
            "prompt_tokens": int(words[ArriveWord.PROMPT_TOKENS]),
            "max_tokens": int(words[ArriveWord.MAX_TOKENS]),
            "output_tokens": UNKNOWN,
            "priority": int(words[ArriveWord.PRIORITY : ArriveWord.TIER].view(np.int32)[0]),
            "tier": int(words[ArriveWord.TIER]),
            "tenant": tenant,
            "deadline_ns": max(deadline - at_ns, 1) if deadline else 0,
            "cancelled_ns": UNKNOWN,
            "first_token_ns": UNKNOWN,
            "num_hashes": num_hashes,
        }

    def _first_token(self, at_ns: int, owner: int, *, is_again: bool) -> None:
        row = self._rows.get(owner)
        if row is not None and not is_again:
            row["first_token_ns"] = at_ns - self.start_ns

    def _finish(self, at_ns: int, owner: int, reason: int, words: Words) -> None:
        row = self._rows.get(owner)
        if row is None or len(words) < len(FinishWord):
            return
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            row["output_tokens"] = int(words[FinishWord.OUTPUT_TOKENS])
        elif reason == FinishReason.CANCELLED:
            row["cancelled_ns"] = at_ns - self.start_ns

    def _take_steps(self, steps: Records, lane: Words, lane_base: int) -> None:
        at_ns, n = steps["ts_ns"].astype(np.int64), steps["n"].astype(np.int64)
        start = steps["first"].astype(np.int64) - lane_base
        is_kept = (at_ns >= self.start_ns) & (at_ns < self.end_ns) & (n == len(StepWord))
        is_kept &= (start >= 0) & (start + len(StepWord) <= len(lane))
        start = start[is_kept]
        if not len(start) or self._num_steps >= MOST_STEPS:
            return
        words = lane[start[:, None] + np.arange(len(StepWord))].astype(np.int64)
        total = sum(
            words[:, low] + (words[:, low + 1] << 32)
            for low in (StepWord.SCHEDULE_LOW, StepWord.COMPUTE_LOW, StepWord.SAMPLE_LOW)
        )
        columns = [
            words[:, StepWord.PREFILL_TOKENS],
            words[:, StepWord.DECODE_TOKENS],
            words[:, StepWord.CONTEXT_TOKENS],
            total,
        ]
        self._steps.append(np.stack([np.asarray(column) for column in columns], axis=1))
        self._num_steps += len(start)


def _u64(words: Words, low: int) -> int:
    return int(words[low]) | int(words[low + 1]) << 32
