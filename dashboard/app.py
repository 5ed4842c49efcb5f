"""Streamlit entry: opens the store, draws the shared controls, hands over to the chosen page."""

from functools import partial
from pathlib import Path

import streamlit as st

from agent.errors import AgentError
from dashboard.config import read_config
from dashboard.connection import connect
from dashboard.errors import DashboardError
from dashboard.formats import plain
from dashboard.page import controls
from dashboard.pages import PAGES
from dashboard.theme import CSS
from dashboard.views.absent import draw_no_engine, draw_no_store


def run() -> None:
    """Draw the chosen page, or what is missing and what to do about it."""
    st.set_page_config(
        page_title="kvpulse",
        page_icon=str(Path(__file__).with_name("icon.svg")),
        layout="wide",
    )
    st.html(CSS)
    config = read_config()
    try:
        data = connect(config)
        engines = data.engines()
    except (DashboardError, AgentError) as error:
        draw_no_store(error)
        return
    if not engines:
        draw_no_engine(config.store)
        return
    heading = st.empty()
    page = controls(data, engines)
    first, *others = PAGES
    draw_first = partial(first.draw, page)
    pages = [
        st.Page(draw_first, title=first.title, default=True),
        # A default page's address is the bare one; a link that names the page is to work too.
        st.Page(draw_first, title=first.title, url_path=first.path, visibility="hidden"),
        *(st.Page(partial(e.draw, page), title=e.title, url_path=e.path) for e in others),
    ]
    chosen = st.navigation(pages, position="top")
    # The menu names the page on a wide screen; on a phone it is folded away.
    heading.html(f'<div class="kv-title" role="heading" aria-level="1">{plain(chosen.title)}</div>')
    chosen.run()


run()
