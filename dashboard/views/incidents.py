"""Incidents: what is wrong now, since when, who has seen it; and what was."""

import os
from functools import partial
from typing import Final
from urllib.parse import urlencode

import streamlit as st

from agent.errors import AgentError
from agent.reads.incidents import IncidentRow, StoredIncident
from agent.reads.models import RunState
from agent.triage.verdicts import Verdict
from dashboard.agent_api import AgentApi
from dashboard.config import default_store
from dashboard.formats import count, plain, unmarked, words
from dashboard.frames.incidents import (
    IncidentDetail,
    IncidentView,
    bundle_command,
    closed_table,
    incident_detail,
    incident_view,
    urgent_first,
)
from dashboard.frames.status import Tone
from dashboard.frames.verdict import VerdictView
from dashboard.page import Page, live_part, wall_ns
from dashboard.pieces import facts, provenance_line, small, state_notice
from dashboard.theme import TONES
from dashboard.views.asked import do, draw_said, refuse
from dashboard.views.verdict import action_html, draw_runbook, evidence_html

CHOSEN: Final = "incident"


def draw(page: Page) -> None:
    """Draw the page; it draws itself again while live."""
    live_part(partial(body, page), every_seconds=page.refresh_seconds)


def body(page: Page) -> None:
    """Draw what is open, what is over, and the chosen one in full."""
    engine = page.engine()
    if engine is None:
        st.info("This engine is no longer in the store; choose another above.")
        return
    state_notice(page.data.engine_state(engine, wall_ns()))
    draw_said()
    is_open = urgent_first(page.data.incidents.open())
    closed = page.data.incidents.closed()
    draw_open(is_open)
    draw_over(page, is_open)
    choose(page, [*is_open, *closed])
    draw_closed(closed)
    window = page.data.window(engine, page.window_seconds)
    provenance_line(page.data.provenance(engine, window, wall_ns()))


def draw_open(rows: list[IncidentRow]) -> None:
    """Draw the open incidents; where there is none, a quiet line."""
    if not rows:
        st.html(
            f'<div class="kv-verdict calm" role="status" style="--tone:{TONES["good"]}">'
            "<b>No incident is open</b> <span>in any engine of this store</span></div>"
        )
        return
    st.markdown(f"**Open: {count(len(rows))}**")
    now_ns = wall_ns()
    st.html("".join(open_html(incident_view(row, now_ns)) for row in rows))


def draw_over(page: Page, rows: list[IncidentRow]) -> None:
    """Name the incidents of runs that are over: they stay open until an agent looks."""
    finished = {e.run_key for e in page.data.engines() if e.state is RunState.FINISHED}
    over = [str(row.key) for row in rows if row.run_key in finished]
    if over:
        small(
            f"The run of {', '.join(over)} is over, and the condition with it: the next look of an "
            "agent closes them. If this stays, no agent follows this store."
        )


def open_html(view: IncidentView) -> str:
    """Return one open incident."""
    seen = view.acknowledged or "nobody yet"
    first = f"<b>{plain(view.action)}</b>" if view.action else "see the runbook below"
    return (
        f'<div class="kv-verdict" style="--tone:{TONES[view.tone]}"><div class="over">'
        f"<b>{plain(view.name)}</b> · {plain(view.engine)} · incident {view.key} · "
        f'{plain(view.since)}</div><div class="said">{plain(view.sentence)}</div>'
        f'<div class="do"><i>What to do</i><span>{first}</span></div>'
        f'<div class="do"><i>Acknowledged</i><span>{plain(seen)}</span></div></div>'
    )


def choose(page: Page, rows: list[IncidentRow]) -> None:
    """Draw the box that chooses an incident, at first the most urgent open one; then draw it."""
    by_key = {row.key: row for row in rows}
    if not rows:
        small(
            "None has been recorded. The agent judges each engine every ten seconds and opens an "
            "incident when a verdict lasts; see docs/incidents.md."
        )
        return
    asked = st.query_params.get(CHOSEN, "")
    if CHOSEN not in st.session_state and asked.isdecimal() and int(asked) in by_key:
        st.session_state[CHOSEN] = int(asked)
    if st.session_state.get(CHOSEN) not in by_key:
        st.session_state.pop(CHOSEN, None)
    key = st.selectbox(
        "All of",
        list(by_key),
        index=0 if rows[0].is_open else None,
        format_func=lambda key: f"incident {key}: {words(by_key[key].verdict)}",
        placeholder="choose an incident",
        key=CHOSEN,
        width=300,
    )
    if key is None:
        return
    try:
        stored = page.data.incidents.one(key)
    except AgentError as error:
        st.warning(unmarked(f"{error}."))
        return
    draw_one(page, stored)


def draw_one(page: Page, stored: StoredIncident) -> None:
    """Draw one incident: its times, its evidence then and now, and what can be done from here."""
    row, detail = stored.row, incident_detail(stored, wall_ns())
    with st.container(border=True, key="incident-card"):
        st.markdown(f"**{unmarked(detail.title)}**")
        facts(detail.facts)
        draw_then_and_now(detail)
        draw_runbook(Verdict(row.verdict), key="incident")
        draw_links(page, row)
        draw_acknowledge(AgentApi(page.data.config), row)


def draw_then_and_now(detail: IncidentDetail) -> None:
    """Draw the evidence that opened it, and beside it the newest."""
    if detail.newest is None:
        draw_evidence("When it opened", detail.opening, detail.tone)
        small("Evidence is written again once a minute, then the newest stands beside it.")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        draw_evidence("When it opened", detail.opening, detail.tone)
    with right:
        draw_evidence(detail.newest_title, detail.newest, detail.tone)


def draw_evidence(title: str, view: VerdictView, tone: Tone) -> None:
    """Draw a diagnosis without its frame."""
    st.markdown(f"**{unmarked(title)}**")
    st.html(
        f'<div class="kv-verdict flat" style="--tone:{TONES[tone]}">'
        f"<b>{plain(view.sentence)}</b>{evidence_html(view)}{action_html(view)}</div>"
    )


def draw_links(page: Page, row: IncidentRow) -> None:
    """Lead to the block map of its time, and say how to take all of it along."""
    if any(engine.run_key == row.run_key for engine in page.data.engines()):
        asked = urlencode({"engine": row.engine, "at": row.opened_at_ns})
        st.link_button("Block map when it opened", f"block-map?{asked}")
    else:
        small("Its run is over and another has begun: the block map shows the newest run only.")
    small("All that is known of it, in one file to send on:")
    store, default = page.data.config.store, str(default_store(os.environ))
    command = bundle_command(row.key, store=store, default=default)
    st.code(command, language=None, wrap_lines=True)


def draw_acknowledge(api: AgentApi, row: IncidentRow) -> None:
    """Draw what says that somebody looks after it."""
    again = row.acknowledged_at_ns is not None
    with (
        st.form(f"acknowledge-{row.key}", border=False),
        st.container(horizontal=True, vertical_alignment="bottom", key="acknowledge"),
    ):
        st.text_input("Your name", key="ack-by", max_chars=100, width=180)
        hint = "what you found, or do about it"
        st.text_input("Note", key="ack-note", max_chars=1000, placeholder=hint, width=320)
        st.form_submit_button(
            "Acknowledge again" if again else "Acknowledge",
            on_click=acknowledge,
            args=(api, row.key),
        )


def acknowledge(api: AgentApi, key: int) -> None:
    """Note who looks after an incident."""
    by, note = st.session_state["ack-by"], st.session_state["ack-note"]
    if not by.strip():
        refuse("Say your name, so that others know whom to ask.")
        return

    def noted() -> str:
        api.acknowledge(key, by=by, note=note)
        st.session_state["ack-note"] = ""
        return f"Incident {key} is acknowledged by {by.strip()}."

    do(noted)


def draw_closed(rows: list[IncidentRow]) -> None:
    """Draw the incidents that are over."""
    if not rows:
        return
    st.markdown("**Closed**")
    st.dataframe(
        closed_table(rows, wall_ns()),
        hide_index=True,
        column_config={
            "No.": st.column_config.NumberColumn(format="%d", pinned=True),
            "Opened": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", timezone="UTC"),
            "Held up": st.column_config.NumberColumn(
                format="%.1f", help="Sequences held up on average when it cost most"
            ),
            "What": st.column_config.TextColumn(width="large"),
        },
        placeholder="—",
        key="closed-incidents",
    )
