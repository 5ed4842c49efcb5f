"""What a page says of an engine that is known by its metrics page alone, and cannot draw of it."""

from collections.abc import Callable

import streamlit as st

from agent.reads.models import EngineRow
from agent.scraped.fingerprint import is_scraped
from dashboard.formats import unmarked
from dashboard.page import Page


def of_journals(draw: Callable[[Page], None], *, what: str) -> Callable[[Page], None]:
    """Return a page that says, of a scraped engine, why there is nothing to draw.

    Args:
        what: What the page shows and no metrics page tells.
    """

    def draw_if_told(page: Page) -> None:
        engine = page.engine()
        if engine is None or not is_scraped(engine.fingerprint):
            draw(page)
            return
        st.info(unmarked(not_available(engine, what)))

    return draw_if_told


def not_available(engine: EngineRow, what: str) -> str:
    """Return why something is not known of a scraped engine."""
    return (
        f"Not available: {engine.engine} is known by its metrics page"
        f" {engine.fingerprint.get('page')}, which does not tell {what}. An engine that records a"
        " journal has it (docs/attach.md)."
    )
