"""Telemetry health: how much of what the engine stated is in the store, and whether it adds up."""

from functools import partial

import streamlit as st

from agent.reads.models import EngineRow
from agent.scraped.fingerprint import is_scraped
from dashboard.charts.event_rates import event_rate_chart
from dashboard.charts.gpus import gpu_chart
from dashboard.formats import count, unmarked
from dashboard.frames.block_detail import leak_words
from dashboard.frames.gpus import absent_words, gpu_curves, gpus_table
from dashboard.frames.series import Window
from dashboard.frames.telemetry import (
    gaps_table,
    headline,
    health_tiles,
    kinds_table,
    laws_table,
)
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import (
    chart,
    identity_line,
    provenance_line,
    small,
    status_banner,
    tiles,
)
from dashboard.views.scraped import not_available


def draw(page: Page) -> None:
    """Draw the page; its body draws itself again while live."""
    live_part(partial(body, page), every_seconds=page.refresh_seconds)


def body(page: Page) -> None:
    """Draw everything that changes."""
    engine = page.engine()
    if engine is None:
        st.info("This engine is no longer in the store; choose another above.")
        return
    state = page.data.engine_state(engine, wall_ns())
    health = page.data.telemetry(engine)
    window = page.data.window(engine, page.window_seconds)
    status_banner(headline(engine, health, stale=state.stale))
    provenance_line(page.data.provenance(engine, window, wall_ns()))
    tiles(health_tiles(engine, health, state.age_seconds), columns=4)
    curves = page.data.event_rates(engine, window)
    chart(
        "Events stored",
        event_rate_chart(
            curves, window=window, marks=page.data.marks(engine, window), revision=page.revision
        ),
        key="events",
        empty="No samples in this window." if curves.empty else None,
        note="Red bars are events known to be lost. A flat zero while the engine serves: the "
        "recorder has paused (disk full?), or the agent reads another journal.",
    )
    draw_tables(page, engine)
    draw_laws(page, engine)
    draw_gpus(page, engine, window)
    draw_agent_link(page)
    identity_line(engine)


def draw_tables(page: Page, engine: EngineRow) -> None:
    """Draw stored and lost events per kind, and the gaps."""
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Per kind**")
        number = st.column_config.NumberColumn(format="localized")
        share = st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1)
        st.dataframe(
            kinds_table(page.data.kind_totals(engine)),
            hide_index=True,
            column_config={"Share stored": share, "Stored": number, "Lost": number},
            placeholder="—",
            key="kinds",
        )
    with right:
        st.markdown("**Gaps**")
        gaps = page.data.gaps(engine)
        if gaps:
            st.dataframe(gaps_table(gaps), hide_index=True, placeholder="—", key="gaps")
        else:
            small("None: nothing of this run is known to be missing.")
        leaks = page.data.open_leaks(engine)
        st.markdown("**Leaked blocks**")
        if is_scraped(engine.fingerprint):
            small(not_available(engine, "whose blocks are"))
        elif leaks:
            small(leak_words(leaks))
        else:
            small(f"None of {count(engine.total_blocks)} blocks outlived its owner.")


def draw_laws(page: Page, engine: EngineRow) -> None:
    """Draw the laws of the ledger that did not hold, with what they are about."""
    st.markdown("**Broken laws**")
    laws = page.data.broken_laws(engine)
    if is_scraped(engine.fingerprint):
        small(not_available(engine, "enough to check the ledger's laws"))
    elif laws:
        st.dataframe(laws_table(laws), hide_index=True, placeholder="—", key="laws")
    else:
        small("None: every law of the ledger held whenever it was checked.")


def draw_gpus(page: Page, engine: EngineRow, window: Window) -> None:
    """Draw what the GPUs of all machines did, or say why that is not known."""
    history = page.data.gpus(window)
    if not history.series:
        st.markdown("**GPUs**")
        small(absent_words(history))
        return
    figure = gpu_chart(
        gpu_curves(history),
        window=window,
        marks=page.data.marks(engine, window),
        revision=page.revision,
    )
    note = (
        "As NVIDIA's driver states it, by minute. Solid: utilisation, the share of time in which "
        "any kernel ran. Dotted: memory in use out of all; it hardly moves, since an engine takes "
        "its pool once."
    )
    chart("GPUs", figure, key="gpu_chart", empty=None, note=note)
    st.dataframe(gpus_table(history), hide_index=True, placeholder="—", key="gpus")


def draw_agent_link(page: Page) -> None:
    """Name the agent's own account of itself, if its address was given."""
    if page.data.config.agent_url:
        st.markdown(f"The agent's own account: {unmarked(page.data.config.agent_url)}/readyz")
