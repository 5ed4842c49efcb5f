"""The newest interval of each tier, whole: where somebody goes on who keeps no state of its own."""

from sqlalchemy import Connection, text

from agent.ledger.intervals import interval_start
from agent.rollups.histogram import Histogram
from agent.rollups.scalars import COLUMNS, TIERS
from agent.scraped.rows import Interval


def read_open_intervals(connection: Connection, run_key: int, at_ns: int) -> dict[int, Interval]:
    """Return what is stored of the interval around a moment, by tier."""
    return {
        tier: _interval(
            connection,
            {
                "key": run_key,
                "tier": tier,
                "at": interval_start(at_ns, wall_offset_ns=0, tier_seconds=tier),
            },
        )
        for tier in TIERS
    }


def _interval(connection: Connection, bind: dict[str, int]) -> Interval:
    where = "WHERE run_key=:key AND tier_seconds=:tier AND at_ns=:at"
    row = connection.execute(text(f"SELECT * FROM rollups {where}"), bind).mappings().first()
    values = {name: row[name] for name in COLUMNS if row[name] is not None} if row else {}
    latencies = connection.execute(
        text(f"SELECT metric, sum_ns, min_ns, max_ns, histogram FROM latencies {where}"), bind
    )
    labelled = connection.execute(text(f"SELECT family, label, value FROM labelled {where}"), bind)
    return Interval(
        bind["at"],
        values,
        {
            each.metric: Histogram.decode(
                bytes(each.histogram), sum_ns=each.sum_ns, min_ns=each.min_ns, max_ns=each.max_ns
            )
            for each in latencies
        },
        {(each.family, each.label): each.value for each in labelled},
    )
