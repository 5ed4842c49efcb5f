"""`kvpulse costs`: block-seconds and cost of a run, by tenant or by request, and of idle blocks."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from agent.commands.exit_codes import ExitCode
from agent.commands.summary import choose_run
from agent.config import load_config
from agent.errors import ConfigError
from agent.price import Price
from agent.reads.models import RequestOrder, RunRow
from agent.reads.reads import Reads, open_reads

SECOND_NS: Final = 1_000_000_000
MOST_SEQUENCES: Final = 100_000
MOST_POINTS: Final = 10_000_000  # so that the tier of one second is read
ALL_TIME: Final = 2**62
GROUPS: Final = ("tenant", "request")


@dataclass(frozen=True, slots=True)
class CostRow:
    """What one tenant or one request (all its sequences) occupied."""

    name: str
    tenant: str
    block_seconds: float
    cost: float | None  # None: no price
    num_not_measured: int  # sequences whose block-seconds nobody knows


@dataclass(frozen=True, slots=True)
class Costs:
    """A run's block-seconds: whose they were, and how many of the pool's were nobody's."""

    engine: str
    run_id: str
    currency: str | None
    block_second: float | None
    pool_block_seconds: float  # all blocks over the time that is stored
    active_block_seconds: float
    idle_cost: float | None
    rows: tuple[CostRow, ...]


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse costs`."""
    arguments = _parser().parse_args(argv)
    names = ("store", "config", "price_per_gpu_hour", "gpus_per_engine", "currency")
    config = load_config({name: getattr(arguments, name) for name in names}, os.environ)
    if arguments.by not in GROUPS:
        raise ConfigError("--by", arguments.by, "one of " + ", ".join(GROUPS))
    reads = open_reads(config.store)
    try:
        run = choose_run(reads, arguments.engine, arguments.run)
        costs = add_up(reads, run, config.price, by=arguments.by)
    finally:
        reads.close()
    if arguments.json:
        print(json.dumps(asdict(costs)))
    else:
        print("\n".join(_in_words(costs, arguments.limit)))
    return ExitCode.GOOD


def add_up(reads: Reads, run: RunRow, price: Price | None, *, by: str) -> Costs:
    """Read one run's block-seconds and price them."""
    blocks = run.total_blocks
    series = reads.series(
        run.run_key, ("active_block_ns", "total_blocks"), 0, ALL_TIME, MOST_POINTS
    )
    pool = float(np.nansum(series.values["total_blocks"])) * series.tier_seconds
    active = float(np.nansum(series.values["active_block_ns"])) / SECOND_NS
    return Costs(
        engine=run.engine,
        run_id=run.run_id,
        currency=price.currency if price else None,
        block_second=price.of_block_second(blocks) if price else None,
        pool_block_seconds=pool,
        active_block_seconds=active,
        idle_cost=price.of(max(0.0, pool - active), blocks) if price else None,
        rows=_rows(reads, run, price, by=by),
    )


def _rows(reads: Reads, run: RunRow, price: Price | None, *, by: str) -> tuple[CostRow, ...]:
    paid: dict[tuple[str, str], float] = {}
    unknown: dict[tuple[str, str], int] = {}
    sequences = reads.requests(
        run.run_key, 0, ALL_TIME, limit=MOST_SEQUENCES, order=RequestOrder.BLOCK_SECONDS
    )
    for each in sequences:
        name = each.tenant if by == "tenant" else str(each.parent or each.owner)
        key = (name, each.tenant)
        paid[key] = paid.get(key, 0.0) + (each.block_seconds or 0.0)
        unknown[key] = unknown.get(key, 0) + (each.block_seconds is None)
    rows = [
        CostRow(
            name=key[0],
            tenant=key[1],
            block_seconds=seconds,
            cost=price.of(seconds, run.total_blocks) if price else None,
            num_not_measured=unknown[key],
        )
        for key, seconds in paid.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.block_seconds, row.name)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvpulse costs", description=__doc__)
    parser.add_argument("--by", default="tenant", metavar="GROUP", help="tenant (default), request")
    parser.add_argument("--engine", help="needed where the store holds more than one")
    parser.add_argument("--run", metavar="ID", help="default: the engine's newest run")
    parser.add_argument("--price-per-gpu-hour", metavar="N", help="default: the configuration's")
    parser.add_argument("--gpus-per-engine", metavar="N", help="default 1")
    parser.add_argument("--currency", metavar="CODE", help="default USD")
    parser.add_argument("--limit", type=int, default=20, help="lines at most (default 20)")
    parser.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
    parser.add_argument("--json", action="store_true", help="print one JSON object with all rows")
    return parser


def _in_words(costs: Costs, limit: int) -> list[str]:
    lines = [f"{costs.engine} {costs.run_id}"]
    share = costs.active_block_seconds / costs.pool_block_seconds if costs.pool_block_seconds else 0
    lines.append(
        f"{costs.active_block_seconds:.1f} of {costs.pool_block_seconds:.1f} block-seconds were "
        f"active ({share:.1%}); idle ones cost {_money(costs.idle_cost, costs.currency)}"
    )
    for row in costs.rows[: max(0, limit)]:
        money = _money(row.cost, costs.currency)
        note = f", {row.num_not_measured} not measured" if row.num_not_measured else ""
        lines.append(f"{row.name or 'no tenant':24} {row.block_seconds:14.1f}  {money}{note}")
    more = len(costs.rows) - max(0, limit)
    return [*lines, f"and {more} more: --limit, --json"] if more > 0 else lines


def _money(cost: float | None, currency: str | None) -> str:
    return "no price: set price_per_gpu_hour" if cost is None else f"{cost:.6f} {currency}"
