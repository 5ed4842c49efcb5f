"""Requests: what each one waits for, holds and shares, and the life of a chosen one."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from agent.reads.models import EngineRow, RequestOrder, RequestRow, RequestState
from dashboard.charts.timeline import timeline_chart
from dashboard.components.figure import draw_figure
from dashboard.formats import clock, count, unmarked, words
from dashboard.frames.requests import ONLY, chosen, fact_lines, grouped, table_of
from dashboard.frames.status import capitalised
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import facts, provenance_line, small, state_notice

LIMIT = 1000
ORDERS = {
    "newest": RequestOrder.STARTED,
    "longest wait": RequestOrder.WAIT,
    "most blocks": RequestOrder.BLOCKS,
    "most block-seconds": RequestOrder.BLOCK_SECONDS,
    "most preemptions": RequestOrder.PREEMPTIONS,
}
DURATIONS = (
    *("TTFT", "Pool wait", "Scheduler wait", "Re-wait", "Quota wait", "Transfer wait"),
    "Held up others",
)
COUNTS = (
    *("Logical", "Physical", "Shared", "Peak", "Prompt", "Output", "Prefix hit", "Recomputed"),
    *("Tokens lost", "Found again", "Host blocks"),
)
HELP = {
    "Logical": "Entries of its block table",
    "Physical": "Distinct blocks behind them",
    "Shared": "Table entries whose block somebody else holds too",
    "Re-wait": "Waiting after it had lost its blocks to another, all causes together",
    "Preempted for": "Sequences that got its blocks",
    "Held up others": "Others' waiting in which it was named as the one in front",
    "Found again": "Of the tokens lost by preemptions, those still cached when it went on",
}


def draw(page: Page) -> None:
    """Draw the page; its body draws itself again while live."""
    live_part(partial(body, page), every_seconds=page.refresh_seconds)


def body(page: Page) -> None:
    """Draw the table and the chosen request."""
    engine = page.engine()
    if engine is None:
        st.info("This engine is no longer in the store; choose another above.")
        return
    state_notice(page.data.engine_state(engine, wall_ns()))
    head = page.data.head_of_line(engine)
    if head is not None:
        st.warning(unmarked(capitalised(head.sentence)))
    filters = st.container(horizontal=True, vertical_alignment="bottom", key="filters")
    order = filters.selectbox("Order", list(ORDERS), key="order", width=165)
    rows, held_at_ns = held_rows(page, engine, ORDERS[order])
    with filters:
        shown = filtered(rows)
    if held_at_ns is not None:
        small(f"The table stands still at {clock(held_at_ns)} UTC while a request is chosen.")
    draw_table(rows, shown)
    owner = choose_owner(shown)
    if owner is not None:
        draw_request(page, engine, owner)
    window = page.data.window(engine, page.window_seconds)
    provenance_line(page.data.provenance(engine, window, wall_ns()))


def filtered(rows: Sequence[RequestRow]) -> list[RequestRow]:
    """Draw the filters; return the rows that pass."""
    only = st.selectbox("Show", list(ONLY), key="only", width=165)
    states = st.multiselect(
        "State",
        [state.value for state in RequestState],
        format_func=words,
        placeholder="any",
        key="states",
        width=165,
    )
    tenants = sorted({row.tenant for row in rows if row.tenant})
    wanted = st.multiselect("Tenant", tenants, placeholder="any", key="tenants", width=165)
    return chosen(rows, states=states, tenants=wanted, only=only)


class Held(NamedTuple):
    """The table's rows, and the moment at which they stand still, if they do."""

    rows: list[RequestRow]
    held_at_ns: int | None


def held_rows(page: Page, engine: EngineRow, order: RequestOrder) -> Held:
    """Return the rows; they stand still while a request is chosen, so that its row stays."""
    key = (page.revision, order)
    held = st.session_state.get("held-rows")
    if st.session_state.get("request") is not None and held and held[0] == key:
        return Held(held[2], held[1])
    window = page.data.window(engine, page.window_seconds)
    rows = grouped(page.data.requests(engine, window, limit=LIMIT, order=order))
    st.session_state["held-rows"] = (key, window.end_ns, rows)
    return Held(rows, None)


def draw_table(rows: Sequence[RequestRow], shown: Sequence[RequestRow]) -> None:
    """Draw the table, or say what would fill it."""
    if not rows:
        st.info("No request was alive in this window: choose a longer one, or send some.")
        return
    if not shown:
        st.info(f"None of {count(len(rows))} requests passes these filters.")
        return
    full = f"; the {count(LIMIT)} first in this order" if len(rows) == LIMIT else ""
    small(f"{count(len(shown))} of {count(len(rows))} sequences in this window{full}")
    st.dataframe(
        table_of(shown),
        hide_index=True,
        height=min(420, 74 + 35 * len(shown)),
        column_config=column_config(),
        on_select=lambda: pick(shown),
        selection_mode="single-row",
        placeholder="—",
        key="table",
    )


def pick(shown: Sequence[RequestRow]) -> None:
    """Choose the sequence whose row was clicked."""
    selected = st.session_state["table"].selection.rows
    st.session_state["request"] = shown[selected[0]].owner if selected else None


def column_config() -> dict[str, ColumnConfig]:
    """Return units and explanations of the columns."""
    config: dict[str, ColumnConfig] = {
        name: st.column_config.NumberColumn(format="%.2f s", help=HELP.get(name))
        for name in DURATIONS
    }
    config["Arrived"] = st.column_config.DatetimeColumn(format="HH:mm:ss", timezone="UTC")
    config["Block-seconds"] = st.column_config.NumberColumn(format="%.1f")
    config["Sequence"] = st.column_config.NumberColumn(format="%d", pinned=True)
    config |= {
        name: st.column_config.NumberColumn(format="localized", help=HELP.get(name))
        for name in COUNTS
    }
    for name in ("Sample of", "Waits behind"):
        config[name] = st.column_config.NumberColumn(format="%d")
    config["In server"] = st.column_config.NumberColumn(format="%.4f s")
    config["Preempted for"] = st.column_config.Column(help=HELP["Preempted for"])
    return config


def choose_owner(shown: Sequence[RequestRow]) -> int | None:
    """Draw the box that chooses a request by number; return the choice."""
    owners = [row.owner for row in shown]
    current = st.session_state.get("request")
    if current is not None and current not in owners:
        owners.insert(0, current)
    return st.selectbox(
        "Timeline of",
        owners,
        index=None,
        format_func=lambda owner: f"sequence {owner}",
        placeholder="choose a sequence, or click a row",
        key="request",
        width=360,
    )


def draw_request(page: Page, engine: EngineRow, owner: int) -> None:
    """Draw one request's timeline and facts."""
    row = page.data.request(engine, owner)
    if row is None:
        st.info(f"Sequence {owner} is no longer stored.")
        return
    timeline = page.data.timeline(engine, row)
    with st.container(border=True, key="request-card"):
        st.markdown(f"**Sequence {owner}** · {unmarked(words(row.state))}")
        if timeline.bars or timeline.points:
            figure = timeline_chart(timeline, revision=f"{page.run_key}/{owner}")
            draw_figure(figure, key="timeline")
        else:
            small("Nothing of its life is stored but the numbers below.")
        if timeline.note:
            small(timeline.note)
        if row.spans_gap:
            small("A gap fell into its life: what that made unknowable is left empty.")
        facts(fact_lines(row))
