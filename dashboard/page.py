"""What every page is given: the store, engine and window, and how often to draw again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from agent.errors import AgentError
from agent.reads.models import EngineRow
from dashboard.data import Data
from dashboard.formats import unmarked

WINDOWS: Final = {
    "5 min": 300, "15 min": 900, "1 h": 3600, "6 h": 21_600,
    "24 h": 86_400, "7 d": 604_800, "30 d": 2_592_000,
}  # fmt: skip
DEFAULT_WINDOW: Final = "15 min"


@dataclass(frozen=True, slots=True)
class Page:
    """One drawing of one page."""

    data: Data
    run_key: int
    window_seconds: int
    window_name: str
    live: bool
    bar: DeltaGenerator  # the row of controls; a page may add its own

    @property
    def refresh_seconds(self) -> float | None:
        """Return how often live parts draw themselves again; None when paused."""
        if not self.live:
            return None
        return 2.0 if self.window_seconds <= 3600 else 10.0

    @property
    def revision(self) -> str:
        """Return what keeps a reader's zoom for as long as engine and window stay the same."""
        return f"{self.run_key}/{self.window_name}"

    def engine(self) -> EngineRow | None:
        """Return the chosen engine as it is now."""
        engines = self.data.engines()
        return next((row for row in engines if row.run_key == self.run_key), None)


def live_part(body: Callable[[], None], *, every_seconds: float | None) -> None:
    """Draw a part of a page now and then again; a store that cannot be read just now is said."""

    def guarded() -> None:
        try:
            body()
        except AgentError as error:
            st.warning(unmarked(f"{error}. It is tried again."))

    st.fragment(guarded, run_every=every_seconds)()


def wall_ns() -> int:
    """Return the wall clock."""
    return time.time_ns()


def controls(data: Data, engines: list[EngineRow]) -> Page:
    """Draw the row of controls that all pages share, and return what was chosen."""
    by_name = {row.engine: row for row in engines}
    asked = st.query_params.get("engine")
    if "engine" not in st.session_state and asked in by_name:
        st.session_state["engine"] = asked  # a link to this page names it
    bar = st.container(horizontal=True, vertical_alignment="bottom", key="controls")
    with bar:
        engine = st.selectbox("Engine", list(by_name), key="engine", width=200)
        window = st.selectbox(
            "Window",
            list(WINDOWS),
            index=list(WINDOWS).index(DEFAULT_WINDOW),
            key="window",
            width=120,
        )
        live = st.toggle("Live", value=True, key="live", help="Off: the page stands still")
    return Page(
        data=data,
        run_key=by_name[engine].run_key,
        window_seconds=WINDOWS[window],
        window_name=window,
        live=live,
        bar=bar,
    )
