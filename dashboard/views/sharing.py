"""Sharing: what one block for several saved, in tokens and bytes, and what it cost."""

from functools import partial

import streamlit as st

from agent.reads.models import EngineRow
from dashboard.charts.sharing import moves_chart, references_chart, tokens_chart
from dashboard.frames.marks import Marks
from dashboard.frames.series import Window
from dashboard.frames.sharing import headline, sharing_tiles
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import chart, provenance_line, small, state_notice, status_banner, tiles

NO_SAMPLES = "No samples in this window: choose a longer one, or check Telemetry health."


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
    facts = page.data.sharing(engine, window)
    status_banner(headline(facts))
    provenance_line(page.data.provenance(engine, window, wall_ns()))
    tiles(sharing_tiles(facts), columns=6)
    marks = page.data.marks(engine, window)
    draw_tokens(page, engine, window, marks)
    draw_blocks(page, engine, window, marks)
    small(
        "A prefix is shared only where tokens, position, mask, adapter and tenant are the same."
        " What a preempted sequence finds again was its own: it is no hit."
    )


def draw_tokens(page: Page, engine: EngineRow, window: Window, marks: Marks) -> None:
    """Draw where prompt tokens came from."""
    curves = page.data.token_sources(engine, window)
    quiet = not any(curve.any() for curve in curves.values.values())
    chart(
        "Prompt tokens: computed or found",
        tokens_chart(curves, window=window, marks=marks, revision=page.revision),
        key="tokens",
        empty=NO_SAMPLES
        if curves.empty
        else "No prompt was processed in this window."
        if quiet
        else None,
        note="Amber: found in the prefix cache by new prompts. Violet: found again by sequences "
        "that had been preempted; their tokens were computed before and nearly lost.",
    )


def draw_blocks(page: Page, engine: EngineRow, window: Window, marks: Marks) -> None:
    """Draw references beside blocks, and copies and swaps."""
    left, right = st.columns(2, gap="medium")
    held = page.data.references(engine, window)
    with left:
        chart(
            "References and blocks",
            references_chart(held, window=window, marks=marks, revision=page.revision),
            key="references",
            empty=NO_SAMPLES if held.empty else None,
            note="The green area is what would have to be stored besides if nothing were shared.",
        )
    moves = page.data.block_moves(engine, window)
    quiet = not any(curve.any() for curve in moves.values.values())
    with right:
        chart(
            "Copies and swaps",
            moves_chart(moves, window=window, marks=marks, revision=page.revision),
            key="moves",
            empty=NO_SAMPLES
            if moves.empty
            else "Nothing was copied or swapped in this window."
            if quiet
            else None,
            note="A shared block is copied when one of its holders writes into it; the last one "
            "writes in place. Swaps move whole sequences to host memory and back.",
        )
