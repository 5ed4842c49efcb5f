"""Charts that say how far the other charts can be trusted."""

from grafana_foundation_sdk.builders import timeseries

from agent.metrics import table as metrics
from grafana import colours, queries
from grafana.panel_defaults import chart, option, painted, query


def stored_and_lost_events() -> timeseries.Panel:
    """Draw events lost as bars before the rate of those stored."""
    return _bad_beside_good(
        "Events lost",
        bad=("lost", queries.gained(metrics.EVENTS_LOST, queries.RATE_WINDOW)),
        good=("stored per second", queries.per_second(metrics.EVENTS)),
        description="Any red means that the charts above were drawn from a part of what the "
        "engine stated; how many of which kind is on the agent's /metrics.",
    )


def audits() -> timeseries.Panel:
    """Draw failed audits as bars before the rate of those passed."""
    return _bad_beside_good(
        "Ledger audits failed",
        bad=("failed", queries.gained(metrics.LEDGER_AUDITS, queries.RATE_WINDOW, result="failed")),
        good=("passed per second", queries.per_second(metrics.LEDGER_AUDITS, result="passed")),
        description="Red means that the pool's own account and the events disagree: a bug in the "
        "engine or in what it states; no passed audits at all means that nothing was proved.",
    )


def journal_lag() -> timeseries.Panel:
    """Draw how far the agent is behind each engine."""
    panel = chart(
        "Journal lag",
        description="How long ago the agent had last read everything, per engine; above a second "
        "it falls behind, and at the journal's size bound events will be lost.",
        unit="s",
    ).with_target(query(queries.largest(metrics.JOURNAL_LAG, "engine"), "{{engine}}"))
    return panel.span(8)


def _bad_beside_good(
    title: str, *, bad: tuple[str, str], good: tuple[str, str], description: str
) -> timeseries.Panel:
    bad_name, bad_expr = bad
    good_name, good_expr = good
    panel = (
        chart(title, description=description, unit="short")
        .decimals(0)
        .axis_soft_max(1)
        .with_target(query(bad_expr, bad_name, "A"))
        .with_target(query(good_expr, good_name, "B"))
    )
    panel = painted(panel, {bad_name: colours.BAD, good_name: "#64748b"})
    return (
        panel.override_by_name(
            bad_name, [option("custom.drawStyle", "bars"), option("custom.fillOpacity", 80)]
        )
        .override_by_name(
            good_name,
            [
                option("custom.axisPlacement", "right"),
                option("decimals", 1),
                option("custom.fillOpacity", 0),
            ],
        )
        .span(8)
    )
