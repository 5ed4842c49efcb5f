"""Write the traffic of a drill as a trace that `kvpulse replay` reads."""

import csv
import json
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from agent.drill.scenario import TraceSlice, Traffic

REQUESTS_PER_SECOND_AT_FULL_LOAD: Final = 3.1  # of the engine in `engine_process`; see there
TOKENS_PER_ID: Final = 512
LONGEST_PROMPT: Final = 6_000
LONGEST_OUTPUT: Final = 600
BURST_EVERY_SECONDS: Final = 300.0
BURST_SECONDS: Final = 30.0
MOST_LOAD: Final = 1.5
BEFORE_IDLE: Final = 0.75  # of the busy time; what comes after shows how an engine wakes up
KNOWN_PROMPTS: Final = 100
DIGITS: Final = len("2023-11-16 18:17:03.979960")  # of the 100-ns ones the trace has, Python reads


def write_trace(traffic: Traffic, path: Path) -> None:
    """Write the requests; the same traffic gives the same file."""
    with path.open("w", encoding="utf-8") as file:
        lines = _lines(traffic) if traffic.slice is None else _recorded(traffic, traffic.slice)
        for line in lines:
            file.write(json.dumps(line) + "\n")


def _lines(traffic: Traffic) -> Iterator[dict[str, object]]:
    source = random.Random(traffic.seed)
    known: list[tuple[int, list[int]]] = []
    seconds = 0.0
    idles_at = traffic.seconds * (1 - traffic.idle) * BEFORE_IDLE
    while True:
        rate = _load(traffic, seconds) * REQUESTS_PER_SECOND_AT_FULL_LOAD
        before, seconds = seconds, seconds + source.expovariate(rate)
        if before <= idles_at < seconds:
            seconds += traffic.seconds * traffic.idle
        if seconds > traffic.seconds * (1 - traffic.idle_after):
            return
        length, ids = _prompt(source)
        if traffic.repeats and len(known) >= KNOWN_PROMPTS:
            length, ids = source.choice(known)
        known.append((length, ids))
        output = int(source.lognormvariate(4.5, 0.6))
        yield {
            "timestamp": int(seconds * 1e3),
            "input_length": length,
            "output_length": max(4, min(LONGEST_OUTPUT, output)),
            "hash_ids": ids,
        }


def _recorded(traffic: Traffic, slice_: TraceSlice) -> Iterator[dict[str, object]]:
    """Yield each so-manieth request of a slice; the seed says with which one it begins."""
    source = random.Random(traffic.seed)
    with slice_.path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    began = datetime.fromisoformat(rows[0]["TIMESTAMP"][:DIGITS])
    for row in rows[traffic.seed % slice_.keep_each :: slice_.keep_each]:
        seconds = (datetime.fromisoformat(row["TIMESTAMP"][:DIGITS]) - began).total_seconds()
        if seconds > traffic.seconds:
            return
        length = max(16, min(LONGEST_PROMPT, int(row["ContextTokens"])))
        yield {
            "timestamp": int(seconds * 1e3),
            "input_length": length,
            "output_length": max(4, min(LONGEST_OUTPUT, int(row["GeneratedTokens"]))),
            "hash_ids": [source.randrange(2**50) for _ in range(-(-length // TOKENS_PER_ID))],
        }


def _prompt(source: random.Random) -> tuple[int, list[int]]:
    length = max(16, min(LONGEST_PROMPT, int(source.lognormvariate(6.0, 0.7))))
    return length, [source.randrange(2**50) for _ in range(-(-length // TOKENS_PER_ID))]


def _load(traffic: Traffic, seconds: float) -> float:
    in_burst = seconds % BURST_EVERY_SECONDS >= BURST_EVERY_SECONDS - BURST_SECONDS
    in_surge = seconds >= traffic.surge_after * traffic.seconds
    is_more = in_surge or (traffic.bursts and in_burst)
    return min(MOST_LOAD, 3 * traffic.load) if is_more else traffic.load
