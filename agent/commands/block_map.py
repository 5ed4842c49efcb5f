"""`kvpulse block-map`: every block of an engine and who holds it, now or at a stored moment."""

import argparse
import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from agent.block_map import BlockMap
from agent.block_map_text import draw, legend, list_holders
from agent.commands.exit_codes import ExitCode
from agent.config import load_config
from agent.errors import ConfigError
from agent.reads.models import EngineRow
from agent.reads.reads import open_reads

NS: Final = 1_000_000_000
AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)(s|m|h|d)")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
TIME_FORMS: Final = "2026-11-30T16:00:00Z, seconds since 1970, or a time ago such as -90s, -5m, -2h"


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse block-map`."""
    arguments = _parser().parse_args(_joined(argv))
    config = load_config({"store": arguments.store, "config": arguments.config}, os.environ)
    reads = open_reads(config.store)
    try:
        engine = _choose(reads.engines(), arguments.engine)
        at_ns = parse_time(arguments.at, newest_ns=engine.last_event_at_ns or 0)
        blocks = reads.block_map(engine.run_key, at_ns)
    finally:
        reads.close()
    if blocks is None:
        print(f"nothing is stored of {engine.engine}'s blocks yet")
        return ExitCode.BAD_ANSWER
    if arguments.json:
        print(json.dumps(_document(engine, blocks)))
    else:
        print("\n".join(_page(engine, blocks, arguments.width)))
    return ExitCode.GOOD


def parse_time(text: str | None, *, newest_ns: int) -> int | None:
    """Read a moment: absolute, or so long before the newest event; None stays None.

    Raises:
        ConfigError: It is neither.
    """
    if text is None:
        return None
    if ago := AGO.fullmatch(text):
        return newest_ns - int(float(ago[1]) * SECONDS[ago[2]] * NS)
    try:
        return int(float(text) * NS)
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError("--at", text, TIME_FORMS) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * NS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvpulse block-map", description=__doc__)
    parser.add_argument("--engine", help="needed where the store holds more than one")
    parser.add_argument("--at", metavar="TIME", help=f"{TIME_FORMS}; default: the newest")
    parser.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
    parser.add_argument("--width", type=int, default=64, help="blocks in one line (default 64)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _joined(argv: Sequence[str]) -> list[str]:
    """Return the arguments with `--at -5m` as one, which argparse would take for a flag."""
    joined: list[str] = []
    for argument in argv:
        if joined and joined[-1] == "--at" and AGO.fullmatch(argument):
            joined[-1] = f"--at={argument}"
        else:
            joined.append(argument)
    return joined


def _choose(engines: Sequence[EngineRow], name: str | None) -> EngineRow:
    names = ", ".join(row.engine for row in engines) or "none yet"
    if name is None and len(engines) == 1:
        return engines[0]
    for row in engines:
        if row.engine == name:
            return row
    raise ConfigError("--engine", name or "nothing", f"one of the store's engines: {names}")


def _page(engine: EngineRow, blocks: BlockMap, width: int) -> list[str]:
    moment = datetime.fromtimestamp(blocks.at_ns / NS, UTC).isoformat(timespec="milliseconds")
    title = f"{engine.engine} at {moment}, block size {blocks.block_size}"
    lines = [title]
    if not blocks.exact:
        lines.append(_doubt(blocks))
    return [*lines, "", *draw(blocks, width=max(1, width)), "", *legend(blocks)]


def _doubt(blocks: BlockMap) -> str:
    if blocks.age_ns > 0:
        return f"not exact: drawn from a snapshot {blocks.age_ns / NS:.1f} s older"
    if blocks.age_ns < 0:
        return f"not exact: drawn from the first snapshot, {-blocks.age_ns / NS:.1f} s later"
    return "not exact: events were lost before this moment, and owners heal at the next keyframe"


def _document(engine: EngineRow, blocks: BlockMap) -> dict[str, object]:
    return {
        "engine": engine.engine,
        "run_id": engine.run_id,
        "at_ns": blocks.at_ns,
        "age_ns": blocks.age_ns,
        "exact": blocks.exact,
        "total_blocks": blocks.total_blocks,
        "out_of_service": blocks.num_out_of_service,
        "block_size": blocks.block_size,
        "state": blocks.state.tolist(),
        "count": blocks.count.tolist(),
        "owners": blocks.owners,
        "since_ns": blocks.since_ns.tolist(),
        "holders": [
            {
                "owner": holder.owner,
                "blocks": blocks.blocks_of(holder.owner),
                "num_shared": holder.num_shared,
                "tenant": holder.tenant or None,
            }
            for holder in list_holders(blocks)
        ],
    }
