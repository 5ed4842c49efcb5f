"""Charts that say how far the other charts can be trusted."""

from grafana_foundation_sdk.builders import timeseries

from agent import metrics
from grafana import colours, queries
from grafana.panel_defaults import chart, painted, query


def stored_and_lost_events() -> timeseries.Panel:
    """Draw events stored and lost per second."""
    panel = (
        chart(
            "Events stored and lost",
            description="Any red means that the charts above were drawn from a part of what the "
            "engine stated; the lost ones are counted exactly, by kind, on the agent's /metrics.",
            unit="short",
        )
        .with_target(query(queries.per_second(metrics.EVENTS), "stored per second", "A"))
        .with_target(query(queries.per_second(metrics.EVENTS_LOST), "lost per second", "B"))
    )
    shades = {"stored per second": "#64748b", "lost per second": colours.BAD}
    return painted(panel, shades).span(8)


def audits() -> timeseries.Panel:
    """Draw audits passed and failed."""
    panel = (
        chart(
            "Ledger audits",
            description="Each second the pool's own account is compared with the agent's ledger; "
            "one failure means that pool and tables disagree, and none at all is no proof.",
            unit="ops",
        )
        .with_target(query(queries.per_second(metrics.LEDGER_AUDITS, result="passed"), "passed"))
        .with_target(
            query(queries.per_second(metrics.LEDGER_AUDITS, result="failed"), "failed", "B")
        )
    )
    return painted(panel, {"passed": colours.GOOD, "failed": colours.BAD}).span(8)


def journal_lag() -> timeseries.Panel:
    """Draw how far the agent is behind each engine."""
    panel = chart(
        "Journal lag",
        description="Time from an event to its commit, per engine; above a second the agent does "
        "not keep up, and at the journal's size bound events will be lost.",
        unit="s",
    ).with_target(query(queries.largest(metrics.JOURNAL_LAG, "engine"), "{{engine}}"))
    return panel.span(8)
