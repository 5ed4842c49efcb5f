"""The first row: one number each for what is asked first at night."""

from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.models import dashboard as models

from agent.metrics import table as metrics
from grafana import colours, queries
from grafana.panel_defaults import EXACT, now_stat, thresholds

NOW_SPAN = 3


def sources_stat() -> stat.Panel:
    """Show whether every chosen engine is being read."""
    mapping = models.ValueMap(
        options={
            "0": models.ValueMappingResult(text="DOWN", color=colours.BAD, index=0),
            "1": models.ValueMappingResult(text="live", color=colours.GOOD, index=1),
        }
    )
    return (
        now_stat(
            "Engine journal",
            f"min({queries.select(metrics.SOURCE_UP)})",
            description="DOWN means that a chosen engine ended, died or went silent, and "
            "everything else on this row is then withheld and not zero.",
            unit="none",
        )
        .mappings([mapping])
        .span(NOW_SPAN)
    )


def active_blocks_stat() -> stat.Panel:
    """Show the blocks that live sequences hold."""
    return _blocks_stat(
        "Active blocks",
        "active",
        "Blocks held by live sequences; near the pool's size, new requests must wait or somebody "
        "is preempted.",
    )


def cached_blocks_stat() -> stat.Panel:
    """Show the blocks that nobody holds but whose content is kept."""
    return _blocks_stat(
        "Cached blocks",
        "cached",
        "Blocks nobody holds whose content is kept; close to zero under load means that prefix "
        "hits are evicted before they can be reused.",
    )


def free_blocks_stat() -> stat.Panel:
    """Show the blocks that hold nothing."""
    return _blocks_stat(
        "Free blocks",
        "free",
        "Blocks without content; zero is normal once the cache is warm, zero together with zero "
        "cached is exhaustion.",
    )


def usage_stat() -> stat.Panel:
    """Show which share of the pool is referenced."""
    active = queries.total(metrics.KV_BLOCKS, state="active")
    return (
        now_stat(
            "Pool in use",
            queries.ratio(active, queries.total(metrics.KV_POOL_BLOCKS)),
            description="Referenced blocks out of all; above 90 % the next long prompt waits for "
            "the pool, cached blocks do not count as used.",
            unit="percentunit",
        )
        .decimals(1)
        .thresholds(thresholds((None, colours.PLAIN), (0.9, colours.WARN), (0.98, colours.BAD)))
        .span(NOW_SPAN)
    )


def oldest_wait_stat() -> stat.Panel:
    """Show how long the longest waiting sequence has waited."""
    return (
        now_stat(
            "Oldest wait",
            queries.largest(metrics.OLDEST_WAIT),
            description="How long the sequence waiting longest has waited; a number that only "
            "grows means that one request never fits or the engine is stuck.",
            unit="s",
        )
        .decimals(1)
        .thresholds(thresholds((None, colours.PLAIN), (1, colours.WARN), (10, colours.BAD)))
        .span(NOW_SPAN)
    )


def rejected_stat() -> stat.Panel:
    """Show which share of the requests was refused in the chosen range."""
    rejected = queries.gained(metrics.REJECTIONS, queries.WHOLE_RANGE)
    return (
        now_stat(
            "Rejected",
            queries.ratio(rejected, queries.gained(metrics.REQUESTS, queries.WHOLE_RANGE)),
            description="Requests refused out of those that arrived in the chosen time range; "
            "anything above zero is explained by reason further down.",
            unit="percentunit",
        )
        .decimals(1)
        .thresholds(thresholds((None, colours.PLAIN), (0.001, colours.WARN), (0.05, colours.BAD)))
        .span(NOW_SPAN)
    )


def leaked_stat() -> stat.Panel:
    """Show the blocks whose owner has ended."""
    return (
        now_stat(
            "Leaked blocks",
            queries.total(metrics.KV_LEAKED_BLOCKS),
            description="Active blocks whose owner ended; one is a bug in the engine, a growing "
            "number will use up the pool.",
            unit=EXACT,
        )
        .thresholds(thresholds((None, colours.PLAIN), (1, colours.BAD)))
        .span(NOW_SPAN)
    )


def _blocks_stat(title: str, state: str, description: str) -> stat.Panel:
    return (
        now_stat(
            title,
            queries.total(metrics.KV_BLOCKS, state=state),
            description=description,
            unit=EXACT,
        )
        .thresholds(thresholds((None, colours.BLOCK_STATES[state])))
        .span(NOW_SPAN)
    )
