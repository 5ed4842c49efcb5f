"""A comparison: the answer, each judged metric with its interval, and what stands beside it."""

from collections.abc import Sequence

import streamlit as st

from dashboard.formats import plain, ratio
from dashboard.frames.comparison import Beside, ComparisonView, Judged, WherePart, WhereView
from dashboard.pieces import small, status_banner
from dashboard.theme import UNKNOWN, WHERE_COLOURS

NO_BAR = '<div class="kv-scale none"></div>'


def draw_comparison(view: ComparisonView, *, why_command: str) -> None:
    """Draw the answer and all that it rests on; `why_command` goes on where the page ends."""
    status_banner(view.status)
    draw_judged(view)
    draw_where(view)
    small("It says where the time went. Why it changed, a replay of both sides can tell:")
    st.code(why_command, language=None, wrap_lines=True)
    left, right = st.columns(2, gap="medium")
    with left:
        draw_beside("Traffic", view, view.traffic)
        draw_beside("Time and completeness", view, view.windows)
    with right:
        draw_configuration(view)
    with st.expander("Shown, not judged"):
        draw_beside("", view, view.shown)


def draw_judged(view: ComparisonView) -> None:
    """Draw a line for each judged metric."""
    if not view.judged:
        small("No metric was measured on both sides.")
        return
    head = (
        '<div class="kv-judged head"><span>Judged</span>'
        f"<span>{plain(view.first)}</span><span>{plain(view.second)}</span><span>Change</span>"
        f'<span class="ends"><i>better, −{ratio(view.reach)}</i><i>+{ratio(view.reach)}, '
        "worse</i></span><span>Answer</span></div>"
    )
    st.html(f'<div class="kv-table">{head}{"".join(map(judged_html, view.judged))}</div>')


def judged_html(one: Judged) -> str:
    """Return one judged metric's line."""
    notes = " · ".join(map(plain, one.notes))
    return (
        f'<div class="kv-judged"><b>{plain(one.label)}</b><span>{plain(one.first)}</span>'
        f"<span>{plain(one.second)}</span><span>{plain(one.change)}</span>{scale_html(one)}"
        f'<span class="kv-answer {plain(one.answer)}">{plain(one.answer)}</span>'
        f'<span class="notes">{notes}</span></div>'
    )


def scale_html(one: Judged) -> str:
    """Return an interval over the stretch in which a change does not count."""
    if one.bar is None:
        return NO_BAR
    bar = one.bar
    spans = (
        ("floor", bar.floor_low, bar.floor_high),
        ("interval", bar.low, bar.high),
        ("point", bar.change, bar.change),
    )
    parts = "".join(
        f'<i class="{name}" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>'
        for name, low, high in spans
    )
    return f'<div class="kv-scale {plain(one.answer)}"><i class="zero"></i>{parts}</div>'


def draw_where(view: ComparisonView) -> None:
    """Draw a bar for each side's mean TTFT, split into waits, and the same as numbers."""
    st.markdown("**Where the mean time to first token went**")
    where = view.where
    if where.total is not None:
        bars = bar_html(view.first, where.total.first, [p.first_width for p in where.parts], where)
        bars += bar_html(
            view.second, where.total.second, [p.second_width for p in where.parts], where
        )
        st.html(f'<div class="kv-where">{bars}</div>')
        st.html(where_table(view))
    small(where.note)


def bar_html(side: str, total: str, widths: Sequence[float], where: WhereView) -> str:
    """Return one side's bar with its name before it and its sum after it."""
    parts = "".join(
        f'<i style="--tone:{WHERE_COLOURS.get(part.name, UNKNOWN)};width:{width:.2f}%"></i>'
        for part, width in zip(where.parts, widths, strict=True)
    )
    return f'<span>{plain(side)}</span><div class="bar">{parts}</div><span>{plain(total)}</span>'


def where_table(view: ComparisonView) -> str:
    """Return the parts as numbers; the last line is their sum."""
    names = "".join(f"<td>{plain(name)}</td>" for name in (view.first, view.second, "Change"))
    head = f"<tr><th></th>{names}</tr>"
    body = "".join(where_row(part) for part in view.where.parts)
    total = where_row(view.where.total) if view.where.total else ""
    return (
        f'<table class="kv-beside"><thead>{head}</thead><tbody>{body}</tbody>'
        f"<tfoot>{total}</tfoot></table>"
    )


def where_row(part: WherePart) -> str:
    """Return one part's line, with its colour."""
    colour = WHERE_COLOURS.get(part.name)
    dot = f'<i style="--tone:{colour}"></i>' if colour else ""
    cells = "".join(f"<td>{plain(text)}</td>" for text in (part.first, part.second, part.change))
    return f"<tr><th>{dot}{plain(part.label)}</th>{cells}</tr>"


def draw_beside(title: str, view: ComparisonView, rows: Sequence[Beside]) -> None:
    """Draw what stands beside the answer, a column for each side."""
    if title:
        st.markdown(f"**{title}**")
    body = "".join(
        f'<tr class="{"differs" if row.differs else ""}"><th>{plain(row.label)}</th>'
        f"<td>{plain(row.first)}</td><td>{plain(row.second)}</td></tr>"
        for row in rows
    )
    head = f"<tr><th></th><td>{plain(view.first)}</td><td>{plain(view.second)}</td></tr>"
    st.html(f'<table class="kv-beside"><thead>{head}</thead><tbody>{body}</tbody></table>')
    if any(row.differs for row in rows) and title == "Traffic":
        small("Marked: out of band, so that the answer cannot be the engine's alone.")


def draw_configuration(view: ComparisonView) -> None:
    """Draw the settings that differ; those that do not in one line."""
    if view.configuration:
        draw_beside("Configuration", view, view.configuration)
    else:
        st.markdown("**Configuration**")
        small("The same on both sides." if view.alike else "Neither side stated one.")
    if view.alike:
        small(f"Alike: {view.alike}")
