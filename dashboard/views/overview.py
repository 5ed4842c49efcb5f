"""Overview: is it the pool, the scheduler, the traffic? One screen for the person on call."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import streamlit as st

from agent.reads.models import EngineRow
from dashboard.charts.latencies import latency_chart
from dashboard.charts.pool import pool_chart
from dashboard.charts.rates import rejections_chart, waits_chart
from dashboard.engine_state import EngineState
from dashboard.formats import count, ratio, seconds, unmarked
from dashboard.frames.incidents import IncidentView, incident_view, urgent_first
from dashboard.frames.marks import Marks
from dashboard.frames.series import Window
from dashboard.frames.status import Status, Tone
from dashboard.frames.verdict import verdict_view
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import (
    chart,
    identity_line,
    provenance_line,
    small,
    status_banner,
    status_words,
    tiles,
)
from dashboard.views.verdict import draw_verdict

NO_SAMPLES = "No samples in this window: choose a longer one, or check Telemetry health."


def draw(page: Page) -> None:
    """Draw the page; its body draws itself again while live."""
    live_part(partial(body, page), every_seconds=page.refresh_seconds)


def body(page: Page) -> None:
    """Draw everything that changes."""
    states = page.data.engine_states(wall_ns())
    if len(states) > 1:
        engine_table(states, page.data.incidents.num_open())
    state = next((row for row in states if row.engine.run_key == page.run_key), None)
    if state is None:
        st.info("This engine is no longer in the store; choose another above.")
        return
    engine = state.engine
    window = page.data.window(engine, page.window_seconds)
    draw_judgement(page, state)
    provenance_line(page.data.provenance(engine, window, wall_ns()))
    tiles(page.data.strip(engine, window), columns=7)
    marks = page.data.marks(engine, window)
    draw_pool(page, engine, window, marks)
    draw_pressure(page, engine, window, marks)
    draw_latencies(page, engine, window, marks)
    identity_line(engine)


def draw_judgement(page: Page, state: EngineState) -> None:
    """Draw the verdict, and what is recorded just now: a banner only where nothing is wrong."""
    diagnosis = page.data.verdicts.now(page.run_key)
    if diagnosis is None:
        status_banner(state.status)
        return
    view = verdict_view(diagnosis)
    draw_verdict(view, key="now")
    if view.is_calm:
        status_banner(softened(state.status))
    else:
        small(f"Just now: {status_words(state.status)}")
    rows = urgent_first(page.data.incidents.open(state.engine.engine))
    if rows:
        st.markdown("  \n".join(unfolded(incident_view(row, wall_ns())) for row in rows))


def softened(status: Status) -> Status:
    """Return a status for beside a healthy verdict: red is for what triage calls urgent."""
    return replace(status, tone=Tone.NOTICE) if status.tone is Tone.BAD else status


def unfolded(view: IncidentView) -> str:
    """Return an open incident as a line that leads to it."""
    seen = "acknowledged" if view.acknowledged else "nobody has acknowledged it"
    name = f"Incident {view.key}: {unmarked(view.name)}"
    return f"[{name}](incidents?incident={view.key}) · {unmarked(view.since)} · {seen}"


def engine_table(states: list[EngineState], num_open: Mapping[str, int]) -> None:
    """Draw one row per engine, the worst first."""
    rows = {
        "Engine": [row.engine.engine for row in states],
        "Status": [row.status.headline for row in states],
        "Open incidents": [num_open.get(row.engine.engine, 0) for row in states],
        "Waiting": [count(row.engine.waiting) for row in states],
        "Running": [count(row.engine.running) for row in states],
        "Pool active": [active_words(row.engine) for row in states],
        "Rejected, 1 min": [ratio(row.rejected_ratio) for row in states],
        "TTFT p95, 1 min": [seconds(row.ttft_p95_seconds) for row in states],
        "Stored": [f"{seconds(row.age_seconds)} ago" for row in states],
    }  # fmt: skip
    columns = {"Status": st.column_config.TextColumn(width="large")}
    st.dataframe(rows, hide_index=True, column_config=columns, key="engines")


def active_words(engine: EngineRow) -> str:
    """Return active and total blocks."""
    return f"{count(engine.active_blocks)} / {count(engine.total_blocks)}"


def draw_pool(page: Page, engine: EngineRow, window: Window, marks: Marks) -> None:
    """Draw the pool over time."""
    curves = page.data.pool(engine, window)
    chart(
        "Block pool",
        pool_chart(curves, window=window, marks=marks, revision=page.revision),
        key="pool",
        empty=NO_SAMPLES if curves.empty else None,
        note="Active blocks have an owner. Cached ones keep content and can be taken back at once. "
        "Active at the dashed total, with waits for blocks below: the pool is the bottleneck.",
    )


def draw_pressure(page: Page, engine: EngineRow, window: Window, marks: Marks) -> None:
    """Draw what waits and what is refused, side by side."""
    left, right = st.columns(2, gap="medium")
    waits = page.data.waits(engine, window)
    rejections = page.data.rejections(engine, window)
    quiet = all(not curve.any() for curve in waits.values.values())
    with left:
        chart(
            "Waits by class",
            waits_chart(waits, window=window, marks=marks, revision=page.revision),
            key="waits",
            empty=NO_SAMPLES
            if waits.empty
            else "Nothing waited in this window."
            if quiet
            else None,
            note="Seconds waited in each second: 3 means three requests stood in line. Pool: no "
            "blocks. Scheduler: no batch slot or token budget. Quota: the tenant's own limit.",
        )
    with right:
        chart(
            "Rejections by reason",
            rejections_chart(rejections, window=window, marks=marks, revision=page.revision),
            key="rejections",
            empty="Nothing was refused in this window." if rejections.empty else None,
            note="Requests refused before a token was sent. context too long and exceeds pool "
            "never fit: a retry cannot help. queue full passes.",
        )


def draw_latencies(page: Page, engine: EngineRow, window: Window, marks: Marks) -> None:
    """Draw the tails of time to first token and inter-token latency."""
    left, right = st.columns(2, gap="medium")
    for column, metric, title in (
        (left, "ttft", "Time to first token"),
        (right, "inter_token", "Inter-token latency"),
    ):
        curves = page.data.latency(engine, metric, window)
        with column:
            chart(
                title,
                latency_chart(curves, window=window, marks=marks, revision=page.revision),
                key=metric,
                empty="No token in this window." if curves.empty else None,
                note="Measured in the engine, from arrival; read from histograms with an error of "
                "at most 2.2 %. p99 far above p95: a few long requests, or preemptions.",
            )
