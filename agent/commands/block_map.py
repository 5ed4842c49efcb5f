"""`kvpulse block-map`: every block of an engine and who holds it, now or at a stored moment."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.block_map import BlockMap
from agent.block_map_document import map_document
from agent.block_map_text import draw, legend
from agent.commands.exit_codes import ExitCode
from agent.commands.moments import TIME_FORMS, joined, parse_moment, utc
from agent.config import load_config
from agent.errors import ConfigError
from agent.reads.models import EngineRow, GapRow, RunRow
from agent.reads.reads import Reads, open_reads

NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A map, and what there is to say of the moment that was asked for."""

    run: RunRow | EngineRow
    asked_at_ns: int | None  # None: the newest
    blocks: BlockMap
    gap: GapRow | None  # in which that moment lies

    @property
    def note(self) -> str | None:
        """Why this is not just the map at that moment; None: it is."""
        blocks, gap = self.blocks, self.gap
        if gap is not None:
            return (
                f"not exact: {sum(gap.lost.values())} events from {utc(gap.start_ns)} to "
                f"{utc(gap.end_ns)} were lost ({gap.why}); drawn is what was known before"
            )
        if blocks.age_ns > 0:
            return (
                f"not exact: the events of that time are pruned; drawn is the nearest snapshot, "
                f"{blocks.age_ns / NS:.1f} s older"
            )
        if blocks.age_ns < 0:
            return f"not exact: drawn from the first snapshot, {-blocks.age_ns / NS:.1f} s later"
        if not blocks.exact:
            return (
                "not exact: events were lost before this moment, and owners heal at the next "
                "keyframe"
            )
        if self.asked_at_ns is not None and self.asked_at_ns > blocks.at_ns:
            since = (self.asked_at_ns - blocks.at_ns) / NS
            state = self.run.state.value
            return f"the last state of a run that is {state}: no event in the {since:.1f} s since"
        return None


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse block-map`."""
    arguments = _parser().parse_args(joined(list(argv), "--at"))
    config = load_config({"store": arguments.store, "config": arguments.config}, os.environ)
    reads = open_reads(config.store)
    try:
        engine = _choose(reads.engines(), arguments.engine)
        at_ns = None
        if arguments.at is not None:
            newest_ns = engine.last_event_at_ns or engine.started_at_ns
            at_ns = parse_moment("--at", arguments.at, newest_ns=newest_ns)
        found = _ask(reads, engine, at_ns)
    finally:
        reads.close()
    if isinstance(found, str):
        print(f"kvpulse: {found}", file=sys.stderr)
        return ExitCode.BAD_ANSWER
    if arguments.json:
        print(json.dumps(_document(found)))
    else:
        print("\n".join(_page(found, arguments.width)))
    return ExitCode.GOOD


def _ask(reads: Reads, engine: EngineRow, at_ns: int | None) -> Answer | str:
    """Return the map at a moment, or why there is none."""
    run: RunRow | EngineRow = engine
    if at_ns is not None:
        runs = reads.runs(engine.engine)
        before = [run for run in runs if run.started_at_ns <= at_ns]
        if not before:
            first = utc(min(run.started_at_ns for run in runs))
            return (
                f"nothing is known of {engine.engine} at {utc(at_ns)}: its history begins {first}"
            )
        # An engine that starts again is another run: the map is that of the run of then.
        run = max(before, key=lambda run: run.started_at_ns)
    blocks = reads.block_map(run.run_key, at_ns)
    if blocks is None:
        return f"nothing is stored of {engine.engine}'s blocks yet: is its agent running?"
    gap = None
    if at_ns is not None:
        gaps = reads.gaps(run.run_key)
        gap = next((gap for gap in gaps if gap.start_ns < at_ns < gap.end_ns), None)
    return Answer(run, at_ns, blocks, gap)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse block-map",
        description=__doc__,
        epilog="Exit code 1: the store knows nothing of that moment.",
    )
    parser.add_argument("--engine", help="needed where the store holds more than one")
    parser.add_argument("--at", metavar="TIME", help=f"{TIME_FORMS}; default: the newest")
    parser.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
    parser.add_argument("--width", type=int, default=64, help="blocks in one line (default 64)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _choose(engines: Sequence[EngineRow], name: str | None) -> EngineRow:
    names = ", ".join(row.engine for row in engines) or "none yet"
    if name is None and len(engines) == 1:
        return engines[0]
    for row in engines:
        if row.engine == name:
            return row
    raise ConfigError("--engine", name or "nothing", f"one of the store's engines: {names}")


def _page(answer: Answer, width: int) -> list[str]:
    blocks, run = answer.blocks, answer.run
    title = f"{run.engine} at {utc(blocks.at_ns)}, block size {blocks.block_size}"
    notes = [answer.note] if answer.note is not None else []
    return [title, *notes, "", *draw(blocks, width=max(1, width)), "", *legend(blocks)]


def _document(answer: Answer) -> dict[str, object]:
    return {
        "engine": answer.run.engine,
        "run_id": answer.run.run_id,
        "asked_at_ns": answer.asked_at_ns,
        "note": answer.note,
        **map_document(answer.blocks),
        "exact": answer.blocks.exact and answer.gap is None,
    }
