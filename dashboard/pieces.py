"""Pieces of page that several views draw: status, tiles, legend, where the numbers come from."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from agent.reads.models import EngineRow, RunState
from dashboard.components.figure import draw_figure
from dashboard.engine_state import EngineState, Provenance
from dashboard.formats import clock, count, date_and_clock, plain, ratio, seconds
from dashboard.frames.block_grid import Swatch
from dashboard.frames.status import Status
from dashboard.frames.strip import Tile
from dashboard.theme import TONES


def status_banner(status: Status) -> None:
    """Draw the status: the headline, and what else is so."""
    details = " · ".join(plain(line) for line in status.details)
    st.html(
        f'<div class="kv-status" role="status" style="--tone:{TONES[status.tone]}">'
        f"<b>{plain(status.headline)}</b><span>{details}</span></div>"
    )


def status_words(status: Status) -> str:
    """Return a status as one line."""
    return " · ".join((status.headline, *status.details))


def tiles(strip: Sequence[Tile], *, columns: int) -> None:
    """Draw a strip, so many to a row where there is room; a tile without a value says why."""
    cells = "".join(tile_html(tile) for tile in strip)
    st.html(f'<div class="kv-strip" style="--columns:{columns}">{cells}</div>')


def tile_html(tile: Tile) -> str:
    """Return one tile."""
    kind = "kv-tile" if tile.value is not None else "kv-tile empty"
    return (
        f'<div class="{kind}"><div class="name">{plain(tile.name)}</div>'
        f'<div class="value">{plain(tile.value if tile.value is not None else "—")}</div>'
        f'<div class="note">{plain(tile.note)}</div></div>'
    )


def legend(swatches: Sequence[Swatch]) -> None:
    """Draw a legend with the number of blocks of each colour."""
    entries = "".join(
        f'<span><i class="{"hatched" if swatch.hatched else ""}" '
        f'style="--tone:{swatch.colour}"></i>{plain(swatch.label)} '
        f"<b>{count(swatch.num_blocks)}</b></span>"
        for swatch in swatches
    )
    st.html(f'<div class="kv-legend">{entries}</div>')


def small(text: str) -> None:
    """Draw a quiet line of plain text."""
    st.html(f'<div class="kv-line">{plain(text)}</div>')


def provenance_line(source: Provenance) -> None:
    """Say what share of events the view was drawn from, and how fresh it is."""
    small(provenance_words(source))


def provenance_words(source: Provenance) -> str:
    """Return the sentence of `provenance_line`."""
    if source.page:
        return (
            f"Known by its metrics page {source.page} alone: no owners, no wait causes, no single"
            f" requests · newest look {clock(source.last_event_at_ns)} · all times UTC"
        )
    if not source.stored and not source.lost:
        return "No event stored yet."
    share = source.window_share_ratio
    of_what = "this window's events"
    if share is None:
        share, of_what = source.share_ratio, f"{count(source.stored + source.lost)} events"
    text = f"Drawn from {ratio(share)} of {of_what}"
    if source.lost:
        gaps = f" in {source.num_gaps} gap{'s' if source.num_gaps != 1 else ''}"
        text += f"; the run lost {count(source.lost)}{gaps}"
    text += f" · newest event {clock(source.last_event_at_ns)}"
    if source.age_seconds is not None:
        text += f", stored {seconds(source.age_seconds)} ago"
    return text + " · all times UTC"


def identity_line(engine: EngineRow) -> None:
    """Say which run of which model this is."""
    fingerprint = engine.fingerprint
    parts = [
        str(fingerprint[key])
        for key in ("model", "kv_format", "runner", "version")
        if fingerprint.get(key) not in (None, "")
    ]
    parts.append(f"run {engine.run_id} since {date_and_clock(engine.started_at_ns)}")
    small(" · ".join(parts))


def state_notice(state: EngineState) -> None:
    """Say in a box when what follows is not the present."""
    engine = state.engine
    last = date_and_clock(engine.last_event_at_ns)
    if engine.state is RunState.DEAD:
        st.error(f"The writer is gone; its last event is of {last}. Everything below ends there.")
    elif engine.state is RunState.FINISHED:
        st.info(f"This run has finished; its last event is of {last}.")
    elif state.stale:
        age = seconds(state.age_seconds) if state.age_seconds is not None else "ever"
        st.warning(
            f"The agent has stored nothing new for {age} (last event {last}). "
            "Is `kvpulse agent` running? Values below are old."
        )


def chart(title: str, figure: Any, *, key: str, empty: str | None, note: str = "") -> None:
    """Draw one titled chart, or say why there is nothing to draw."""
    with st.container(gap=None, key=f"panel-{key}"):
        st.markdown(f"**{title}**", help=note or None)
        if empty is not None:
            with st.container(border=True, key=f"empty-{key}"):
                small(empty)
        else:
            draw_figure(figure, key=key)


def facts(rows: Sequence[tuple[str, str | None]]) -> None:
    """Draw names with values; one that nobody measured says so."""
    cells = "".join(
        f'<div><span class="name">{plain(name)}</span>'
        f"<div>{plain(value) if value is not None else '— <i>not measured</i>'}</div></div>"
        for name, value in rows
    )
    st.html(f'<div class="kv-facts">{cells}</div>')
