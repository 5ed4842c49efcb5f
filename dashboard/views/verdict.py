"""A verdict: the sentence first, then what to do, then the numbers that it rests on."""

from collections.abc import Sequence

import streamlit as st

from agent.triage.report import runbook_of
from agent.triage.verdicts import Verdict
from dashboard.formats import plain
from dashboard.frames.verdict import Also, VerdictView
from dashboard.pieces import small
from dashboard.runbook import runbook_section
from dashboard.theme import TONES


def draw_verdict(view: VerdictView, *, key: str) -> None:
    """Draw a verdict; one that nothing is wrong takes a line and no more."""
    tone = f"--tone:{TONES[view.tone]}"
    if view.is_calm:
        st.html(
            f'<div class="kv-verdict calm" role="status" style="{tone}"><b>{plain(view.name)}</b> '
            f"<span>{plain(view.sentence)} · {plain(view.window)}{not_known(view)}</span></div>"
        )
        return
    st.html(
        f'<div class="kv-verdict" role="status" style="{tone}">'
        f'<div class="over"><b>{plain(view.name)}</b> · {plain(how_sure(view))}</div>'
        f'<div class="said">{plain(view.sentence)}</div>{action_html(view)}'
        f"{evidence_html(view)}</div>"
    )
    draw_runbook(view.verdict, key=key)


def how_sure(view: VerdictView) -> str:
    """Return how soon it is to be looked at, how sure it is, and of which time it is."""
    return " · ".join((view.severity, view.confidence, view.window))


def draw_runbook(verdict: Verdict, *, key: str) -> None:
    """Draw the runbook's section, folded; where no runbook is installed, say where it is."""
    section = runbook_section(verdict)
    if section is None:
        small(f"Runbook: {runbook_of(verdict)}")
        return
    with st.expander(f"Runbook: {verdict.value}", key=f"runbook-{key}"):
        st.markdown(section)


def action_html(view: VerdictView) -> str:
    """Return what to do first."""
    first = f"<b>{plain(view.action)}</b> · " if view.action else ""
    return f'<div class="do"><i>What to do</i><span>{first}{plain(view.advice)}</span></div>'


def evidence_html(view: VerdictView) -> str:
    """Return the numbers behind a verdict, what else holds, and what could not be judged."""
    return (
        f"{list_html('Evidence', view.evidence)}{also_html(view.also)}"
        f"{list_html('Not known', view.not_known)}"
    )


def list_html(title: str, texts: Sequence[str]) -> str:
    """Return a titled list; nothing where there is nothing to list."""
    if not texts:
        return ""
    items = "".join(f"<li>{plain(text)}</li>" for text in texts)
    return f'<div class="do"><i>{title}</i><ul>{items}</ul></div>'


def also_html(also: Sequence[Also]) -> str:
    """Return the other findings, each with its own colour."""
    if not also:
        return ""
    items = "".join(
        f'<li><em style="--tone:{TONES[each.tone]}">{plain(each.name)}</em> '
        f"{plain(each.sentence)}</li>"
        for each in also
    )
    return f'<div class="do"><i>Also</i><ul>{items}</ul></div>'


def not_known(view: VerdictView) -> str:
    """Return what a calm line adds where something could not be judged."""
    if not view.not_known:
        return ""
    return f" · not judged: {plain('; '.join(view.not_known))}"
