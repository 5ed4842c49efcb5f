"""Requests to replay: what one recording asked for, at the times of the same or of another one."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from engine.block_hashers import mix
from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.trace_requests import TimedRequest
from kvpulse.window_recording import UNKNOWN, WindowRecording

U64: Final = (1 << 64) - 1
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Contents:
    """What was asked for, in order of arrival: lengths, and what of it is shared.

    Attributes:
        output_tokens: As generated; of requests that did not end, the mean of the others.
        hashes: One list for each request.
        shared: Hashes that more than one request has.
    """

    requests: dict[str, Ints]
    output_tokens: Ints
    hashes: Seq[Seq[int]]
    shared: frozenset[int]
    block_size: int

    @classmethod
    def of(cls, recording: WindowRecording, block_size: int, window_ns: int) -> Self:
        """Take them out of the first `window_ns` of a recording of an engine of that block size."""
        num = int(np.searchsorted(recording.requests["arrived_ns"], window_ns))
        requests = {name: values[:num] for name, values in recording.requests.items()}
        ends = np.cumsum(requests["num_hashes"])
        all_hashes = recording.hashes[: int(ends[-1]) if num else 0]
        known, counts = np.unique(all_hashes, return_counts=True)
        return cls(
            requests,
            _outputs(requests),
            [part.tolist() for part in np.split(all_hashes, ends[:-1])] if num else [],
            frozenset(known[counts > 1].tolist()),
            block_size,
        )

    def request(self, number: int, *, at_ns: int, block_size: int) -> TimedRequest:
        """Return the number-th request, arriving at a time; beyond the last one they begin again.

        What was a request's own the first time is its own the second time too.
        """
        cycle, place = divmod(number, len(self.output_tokens))
        row = {name: int(values[place]) for name, values in self.requests.items()}
        hashes = self._own(self.hashes[place], cycle) if cycle else self.hashes[place]
        prompt = max(row["prompt_tokens"], 1)
        if block_size != self.block_size:
            hashes = recut(hashes, self.block_size, block_size, prompt // block_size)
        output = max(int(self.output_tokens[place]), 1)
        most = max(row["max_tokens"], 1)
        request = Request(
            sampling=SamplingParams(max_tokens=most),
            tenant=f"tenant-{row['tenant']}",
            priority=row["priority"],
            tier=min(max(row["tier"], 0), 1),
            deadline_ns=at_ns + row["deadline_ns"] if row["deadline_ns"] else 0,
            simulated=SimulatedContent(prompt, min(output, most), hashes),
        )
        cancelled = row["cancelled_ns"]
        after_ns = 0 if cancelled == UNKNOWN else max(cancelled - row["arrived_ns"], 1)
        return TimedRequest(at_ns, request, at_ns + after_ns if after_ns else 0)

    def _own(self, hashes: Seq[int], cycle: int) -> list[int]:
        salt = mix(cycle)
        return [h if h in self.shared else ((h ^ salt) & U64 or 1) for h in hashes]


def recut(hashes: Seq[int], recorded: int, wanted: int, num_blocks: int) -> list[int]:
    """Return the identities of a prompt's blocks of another size.

    A block is the same in two prompts where the recorded block that holds its end is: exact where
    the wanted size is a multiple of the recorded one, else a little too careful.
    """
    num_blocks = min(num_blocks, len(hashes) * recorded // wanted)
    ends = [-(-(block + 1) * wanted // recorded) - 1 for block in range(num_blocks)]
    return [mix(hashes[end] ^ mix(block)) or 1 for block, end in enumerate(ends)]


def timed_requests(contents: Contents, arrivals_ns: Ints, block_size: int) -> list[TimedRequest]:
    """Return one request for each arrival."""
    return [
        contents.request(number, at_ns=at_ns, block_size=block_size)
        for number, at_ns in enumerate(arrivals_ns.tolist())
    ]


def _outputs(requests: dict[str, Ints]) -> Ints:
    outputs = requests["output_tokens"]
    ended = outputs != UNKNOWN
    usual = int(outputs[ended].mean()) if ended.any() else 1
    # A request that was cancelled would have gone on: its client's leaving ends it again.
    leaves = requests["cancelled_ns"] != UNKNOWN
    guessed = np.where(leaves, requests["max_tokens"], np.minimum(usual, requests["max_tokens"]))
    return np.where(ended, outputs, guessed)
