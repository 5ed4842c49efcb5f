"""Baselines: save how an engine does while all is well, and ask later whether it is worse."""

from datetime import timedelta
from functools import partial
from shlex import quote
from typing import Final, NamedTuple

import streamlit as st

from agent.reads.models import EngineRow
from dashboard.agent_api import AgentApi, Document
from dashboard.formats import NANOSECONDS, clock, moment, ratio, unmarked
from dashboard.frames.baselines import Listed, at_utc, baseline_facts, baselines_table
from dashboard.frames.comparison import comparison_view, window_words
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import facts, provenance_line, small, state_notice
from dashboard.views.asked import do, draw_said, refuse
from dashboard.views.comparison import draw_comparison

LAST_WEEK: Final = "the same hours last week"  # a baseline's name has no spaces
NEWEST: Final = "the newest hours"
LENGTHS: Final = {"last 1 h": 3_600, "last 4 h": 14_400, "last 24 h": 86_400}
DEFAULT_LENGTH: Final = "last 4 h"
FROM_TO: Final = "from … to …"


def draw(page: Page) -> None:
    """Draw the page: what the engine does now, then what stands still until somebody asks."""
    live_part(partial(draw_state, page), every_seconds=page.refresh_seconds)
    live_part(partial(body, page), every_seconds=None)


def draw_state(page: Page) -> None:
    """Say how fresh the store is."""
    engine = page.engine()
    if engine is None:
        st.info("This engine is no longer in the store; choose another above.")
        return
    state_notice(page.data.engine_state(engine, wall_ns()))
    window = page.data.window(engine, page.window_seconds)
    provenance_line(page.data.provenance(engine, window, wall_ns()))


def body(page: Page) -> None:
    """Draw the question, its answer, what is saved, and how to save more."""
    engine = page.engine()
    if engine is None:
        return
    api = AgentApi(page.data.config)
    listed = page.data.saved.listed()
    draw_said()
    draw_question(api, engine, [one.row.name for one in listed])
    draw_list(page, api, listed)
    draw_save(api, engine)


def draw_question(api: AgentApi, engine: EngineRow, names: list[str]) -> None:
    """Draw what is held against what; below it the answer to the last question."""
    st.markdown("**Is it worse than it was?**")
    with st.container(horizontal=True, vertical_alignment="bottom", key="question"):
        second = st.selectbox("Hold", [NEWEST, *names], key="compare-second", width=200)
        newest = second == NEWEST
        if newest:
            st.selectbox("How long", list(LENGTHS), index=1, key="compare-length", width=130)
        firsts = [*names, LAST_WEEK] if newest else [name for name in names if name != second]
        st.selectbox("against", firsts, key=first_key(second), width=220)
        st.button(
            "Compare",
            type="primary",
            key="compare",
            disabled=not firsts,
            on_click=ask,
            args=(api, engine.engine),
        )
    if not names:
        small(
            "Nothing is saved yet. Save the engine's hours below while all is well; until then, "
            "the same hours last week are there to compare with, if they were recorded."
        )
    held = st.session_state.get("comparison")
    if held is not None and held[0] == asked_now(engine.engine):
        small(f"Worked out at {clock(held[2])} UTC; it stands still until you compare again.")
        draw_comparison(held[1], why_command=why_command(held[0]))


class Asked(NamedTuple):
    """A question: which window, how long, against what."""

    engine: str
    first: str | None
    second: str
    length: str


def why_command(asked: Asked) -> str:
    """Return the command that asks the same question and replays both sides."""
    names = [name for name in (asked.first, asked.second) if name not in {None, LAST_WEEK, NEWEST}]
    hours = [f"--last {LENGTHS[asked.length] // 3_600}h"] if asked.second == NEWEST else []
    engine = f"--engine {quote(asked.engine)}"
    return " ".join(["kvpulse baseline compare", *map(quote, names), *hours, engine, "--why"])


def first_key(second: str) -> str:
    """Return the key of the box that offers what `second` can be held against."""
    return f"compare-first-{'newest' if second == NEWEST else 'saved'}"


def asked_now(engine: str) -> Asked:
    """Return what the boxes say: a click may come before a choice has been drawn."""
    state = st.session_state
    second = state["compare-second"]
    length = state["compare-length"] if second == NEWEST else DEFAULT_LENGTH
    return Asked(engine, state[first_key(second)], second, length)


def ask(api: AgentApi, engine: str) -> None:
    """Ask the agent to compare, and keep its answer."""
    st.session_state.pop("comparison", None)
    asked = asked_now(engine)

    def compare() -> str:
        document = api.compare(
            None if asked.first == LAST_WEEK else asked.first,
            None if asked.second == NEWEST else asked.second,
            engine=engine,
            seconds=LENGTHS[asked.length],
        )
        view = api.understood(comparison_view, document)
        st.session_state["comparison"] = (asked, view, wall_ns())
        return ""

    do(compare)


def draw_list(page: Page, api: AgentApi, listed: list[Listed]) -> None:
    """Draw what is saved, and the chosen one in full."""
    st.markdown("**Saved baselines**")
    if not listed:
        small("None yet.")
        return
    duration = st.column_config.NumberColumn(format="%.3f s")
    number = st.column_config.NumberColumn(format="%.0f", help="Tokens per request, the mean")
    st.dataframe(
        baselines_table(listed),
        hide_index=True,
        column_config={
            "Name": st.column_config.TextColumn(pinned=True),
            "From": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm", timezone="UTC"),
            "Recorded": st.column_config.NumberColumn(format="percent"),
            "Arrivals": st.column_config.NumberColumn(format="%.2f / s"),
            "Prompt": number,
            "Output": number,
            "TTFT p95": duration,
            "Inter-token p50": st.column_config.NumberColumn(format="%.1f ms"),
        },
        placeholder="—",
        key="baselines",
    )
    names = [one.row.name for one in listed]
    if st.session_state.get("baseline") not in names:
        st.session_state.pop("baseline", None)
    name = st.selectbox(
        "All of", names, index=None, placeholder="choose one to read or delete", key="baseline",
        width=300,
    )  # fmt: skip
    if name is not None:
        draw_one(page, api, name)


def draw_one(page: Page, api: AgentApi, name: str) -> None:
    """Draw one baseline's figures, and how to delete it."""
    with st.container(border=True, key="baseline-card"):
        st.markdown(f"**{unmarked(name)}**")
        facts(baseline_facts(page.data.saved.baseline(name)))
        with st.popover("Delete …", key="delete"):
            small(f"Deletes {name} for good. Nothing can be compared with it afterwards.")
            st.button(
                f"Delete {unmarked(name)}", key="delete-sure", on_click=delete, args=(api, name)
            )


def delete(api: AgentApi, name: str) -> None:
    """Delete a baseline."""

    def gone() -> str:
        api.delete_baseline(name)
        return f"{name} is deleted."

    do(gone)


def draw_save(api: AgentApi, engine: EngineRow) -> None:
    """Draw what saves a window of the chosen engine under a name."""
    st.markdown(f"**Save hours of {unmarked(engine.engine)}**")
    with st.container(horizontal=True, vertical_alignment="bottom", key="save"):
        st.text_input("Name", key="save-name", max_chars=64, placeholder="before-0.9", width=200)
        hours = [*LENGTHS, FROM_TO]
        if st.selectbox("Hours", hours, index=1, key="save-length", width=140) == FROM_TO:
            choose_hours(engine)
        st.button("Save", key="save-now", on_click=save, args=(api, engine.engine))
    small(
        "A name is 1 to 64 letters, digits, . _ or -. It is kept until you delete it; see "
        "docs/baselines.md."
    )


def choose_hours(engine: EngineRow) -> None:
    """Draw two moments; at first the last four hours."""
    newest = moment(engine.last_event_at_ns or engine.started_at_ns).replace(tzinfo=None)
    end = newest.replace(second=0, microsecond=0)
    minute = timedelta(minutes=1)
    box = partial(st.datetime_input, step=minute, width=210)
    box("From (UTC)", end - timedelta(hours=4), key="save-from")
    box("To (UTC)", end, key="save-to")


def save(api: AgentApi, engine: str) -> None:
    """Save the window that the boxes say under the name that they say."""
    state = st.session_state
    if state["save-length"] == FROM_TO:
        start, end = state["save-from"], state["save-to"]
        end_ns = at_utc(end) if end else None
        seconds = ((end_ns or 0) - at_utc(start)) / NANOSECONDS if start else 0.0
    else:
        end_ns, seconds = None, float(LENGTHS[state["save-length"]])
    if seconds <= 0:
        refuse("Choose an end that is after the beginning.")
        return

    def saved() -> str:
        document = api.save_baseline(
            state["save-name"], engine=engine, seconds=seconds, end_ns=end_ns
        )
        return api.understood(saved_words, document)

    do(saved)


def saved_words(document: Document) -> str:
    """Say what was saved."""
    window = window_words(document["start_ns"], document["end_ns"])
    return f"{document['name']} is saved: {window}, {ratio(document['counted_ratio'])} recorded."
