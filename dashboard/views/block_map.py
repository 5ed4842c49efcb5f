"""Block map: one cell per physical block, now or at a moment of the past."""

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from agent.reads.models import EngineRow
from dashboard.charts.pool import pool_chart
from dashboard.components.block_canvas import payload_of, register
from dashboard.components.figure import draw_figure
from dashboard.formats import NANOSECONDS, count, moment
from dashboard.frames.block_detail import choices, detail_of, leak_words, moment_words
from dashboard.frames.block_grid import ColourBy, grid_of
from dashboard.frames.moments import whole_seconds
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import facts, legend, provenance_line, small, state_notice

if TYPE_CHECKING:
    from agent.block_map import BlockMap

NOW, PAST = "Now", "At a time"
MOST_DIGITS = 19  # of nanoseconds since 1970


def draw(page: Page) -> None:
    """Draw the page: controls outside, the map in a part that draws itself again while live."""
    stand_where_asked(page)
    with page.bar:
        when = st.segmented_control("Show", [NOW, PAST], default=NOW, required=True, key="when")
    live = when == NOW
    live_part(partial(body, page, live), every_seconds=page.refresh_seconds if live else None)


def body(page: Page, live: bool) -> None:
    """Draw the map at the chosen moment, its legend, and what was picked."""
    engine = page.engine()
    if engine is None:
        st.info("This engine is no longer in the store; choose another above.")
        return
    if live:
        state_notice(page.data.engine_state(engine, wall_ns()))
    at_ns = None if live else choose_moment(page, engine)
    blocks = page.data.block_map(engine, at_ns)
    if blocks is None:
        st.info(
            "No snapshot of this run's blocks is stored for that time. The first one is written "
            "within a second of an engine's start."
        )
        return
    draw_map(page, engine, blocks)
    provenance_line(
        page.data.provenance(engine, page.data.window(engine, page.window_seconds), wall_ns())
    )


def stand_where_asked(page: Page) -> None:
    """Stand at the moment that a link to this page names, once."""
    asked = st.query_params.get("at", "")
    engine = page.engine()
    if engine is None or not asked.isdecimal() or len(asked) > MOST_DIGITS:
        return
    if st.session_state.get("stood-at") == asked:
        return
    st.session_state["stood-at"] = asked
    window = page.data.window_around(engine, int(asked))
    first, last = whole_seconds(window)
    at_ns = min(max(int(asked) // NANOSECONDS * NANOSECONDS, first), last)
    st.session_state["when"] = PAST
    st.session_state[f"{scrub_key(page)}-window"] = window
    st.session_state[scrub_key(page)] = moment(at_ns)


def scrub_key(page: Page) -> str:
    """Return the scrubber's key: each engine and window has its own."""
    return f"scrub-{page.run_key}-{page.window_name}"


def choose_moment(page: Page, engine: EngineRow) -> int:
    """Draw the scrubber over the window, below the pool's own history; return the moment."""
    key = scrub_key(page)
    if f"{key}-window" not in st.session_state:
        st.session_state[f"{key}-window"] = page.data.window(engine, page.window_seconds)
    window = st.session_state[f"{key}-window"]
    first, last = whole_seconds(window)
    if last <= first:
        return int(window.end_ns)
    chosen = st.slider(
        "Moment (UTC)",
        min_value=moment(first),
        max_value=moment(last),
        value=moment(last),
        step=timedelta(seconds=1),
        format="HH:mm:ss" if page.window_seconds <= 86_400 else "MMM D HH:mm:ss",
        key=key,
    )
    at_ns = int(chosen.timestamp()) * 1_000_000_000
    curves = page.data.pool(engine, window)
    figure = pool_chart(
        curves, window=window, marks=page.data.marks(engine, window), revision=page.revision
    )
    figure.add_vline(x=at_ns / 1e6, line={"color": "#db2777", "width": 2})
    figure.update_layout(height=150, showlegend=False, margin={"t": 22})
    draw_figure(figure, key="scrub-pool")
    return at_ns


def draw_map(page: Page, engine: EngineRow, blocks: "BlockMap") -> None:
    """Draw the picker, the legend, the cells, and the picked block and request."""
    leaks = page.data.leaked_at(engine, blocks.at_ns)
    with st.container(horizontal=True, vertical_alignment="bottom", key="map-controls"):
        colour = choose_colour()
        owner = choose_request(blocks)
    lit = blocks.blocks_of(owner) if owner else []
    view = grid_of(blocks, colour_by=colour, leaked=[leak.block for leak in leaks], lit=list(lit))
    small(moment_words(blocks))
    legend(view.legend)
    if owner:
        small(f"Sequence {owner}: {count(view.num_lit)} blocks lit; the others are dimmed.")
    register()(key="blocks", data=payload_of(blocks, view), on_picked_change=remember_block)
    if leaks:
        st.error(leak_words(leaks))
    picked = st.session_state.get("picked-block")
    if picked is not None and picked < len(blocks.state):
        draw_block(page, blocks, picked)


def choose_colour() -> ColourBy:
    """Draw the colourings; return the chosen one."""
    choice = st.segmented_control(
        "Colour by",
        [colouring.value for colouring in ColourBy],
        default=ColourBy.STATE.value,
        required=True,
        key="colour",
    )
    return ColourBy(choice)


def choose_request(blocks: "BlockMap") -> int | None:
    """Draw the list of sequences that hold blocks; return the chosen one."""
    owners = choices(blocks)
    if st.session_state.get("lit") not in owners:
        st.session_state.pop("lit", None)
    return st.selectbox(
        "Light the blocks of",
        list(owners),
        index=None,
        format_func=lambda owner: owners.get(owner, str(owner)),
        placeholder="a sequence, or click a block",
        key="lit",
        width=300,
    )


def remember_block() -> None:
    """Keep the block that was clicked, and choose its owner."""
    block = st.session_state["blocks"].picked
    if block is not None:
        st.session_state["picked-block"] = int(block)


def draw_block(page: Page, blocks: "BlockMap", block: int) -> None:
    """Draw what is known of one block, with a button for each of its owners."""
    detail = detail_of(blocks, block)
    with st.container(border=True, key="block-detail"):
        st.markdown(f"**Block {block}**")
        facts(detail.facts)
        with st.container(horizontal=True):
            for owner in detail.owners:
                st.button(
                    f"Light sequence {owner}",
                    key=f"light-{owner}",
                    on_click=choose,
                    args=(owner,),
                )
            st.button("Close", key="close-block", on_click=forget_block)


def choose(owner: int) -> None:
    """Choose a sequence to light."""
    st.session_state["lit"] = owner


def forget_block() -> None:
    """Close the block's card."""
    st.session_state.pop("picked-block", None)
