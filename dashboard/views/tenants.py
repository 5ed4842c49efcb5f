"""Tenants: who holds the blocks, who waits for what, who is refused."""

from functools import partial

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from agent.reads.models import EngineRow
from dashboard.charts.sharing import tenant_colours, tenants_chart
from dashboard.frames.marks import Marks
from dashboard.frames.series import Window
from dashboard.frames.tenants import headline, tenants_table
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import chart, provenance_line, small, state_notice, status_banner

DURATIONS = ("Pool wait", "Scheduler wait", "Quota wait", "Transfer wait", "Re-wait")
COUNTS = ("Blocks held", "Ceiling", "Requests", "Rejected", "Prompt", "Output", "Prefix hit")


def draw(page: Page) -> None:
    """Draw the page; its body draws itself again while live."""
    live_part(partial(body, page), every_seconds=page.refresh_seconds)


def body(page: Page) -> None:
    """Draw everything that changes."""
    engine = page.engine()
    if engine is None:
        st.info("This engine is no longer in the store; choose another above.")
        return
    state_notice(page.data.engine_state(engine, wall_ns()))
    window = page.data.window(engine, page.window_seconds)
    rows = page.data.tenants(engine, window)
    status_banner(headline(rows))
    provenance_line(page.data.provenance(engine, window, wall_ns()))
    draw_held(page, engine, window, page.data.marks(engine, window))
    if not rows:
        return
    st.markdown("**Tenants in this window**")
    st.dataframe(
        tenants_table(engine, rows),
        hide_index=True,
        column_config=column_config(),
        placeholder="—",
        key="tenants-table",
    )
    small(
        "Waits, tokens and block-seconds are those of the requests alive in the window, over their"
        " whole lives. Waits are summed over requests: ten that wait a second are ten seconds."
    )


def draw_held(page: Page, engine: EngineRow, window: Window, marks: Marks) -> None:
    """Draw blocks held and tokens by tenant."""
    left, right = st.columns(2, gap="medium")
    held = page.data.tenant_blocks(engine, window)
    tokens = page.data.tenant_tokens(engine, window)
    draw_chart = partial(
        tenants_chart,
        window=window,
        marks=marks,
        revision=page.revision,
        colours=tenant_colours(held, tokens),
    )
    with left:
        chart(
            "Active blocks by tenant",
            draw_chart(held, unit="blocks"),
            key="tenant-blocks",
            empty="No tenant held a block in this window." if held.empty else None,
            note="Each block counts for the tenant that made it active. One tenant at the top of "
            "the pool while others wait for blocks: give it a ceiling.",
        )
    with right:
        chart(
            "Tokens of ended requests by tenant",
            draw_chart(tokens, unit="tokens"),
            key="tenant-tokens",
            empty="No request ended in this window." if tokens.empty else None,
            note="Prompt and output tokens, counted when a request ends. Many blocks and few "
            "tokens: long contexts that wait or decode slowly.",
        )


def column_config() -> dict[str, ColumnConfig]:
    """Return units and explanations of the columns."""
    config: dict[str, ColumnConfig] = {
        name: st.column_config.NumberColumn(format="%.2f s") for name in DURATIONS
    }
    config |= {name: st.column_config.NumberColumn(format="localized") for name in COUNTS}
    config["Tenant"] = st.column_config.TextColumn(pinned=True)
    config["Block-seconds"] = st.column_config.NumberColumn(format="%.1f")
    config["Share"] = st.column_config.ProgressColumn(
        format="percent", min_value=0, max_value=1, help="Of all tenants' block-seconds"
    )
    config["At its quota"] = st.column_config.NumberColumn(
        help="Sequences that wait for their tenant's own limit now"
    )
    return config
