"""What is shown while there is nothing to read: what is missing, and the command that makes it."""

import streamlit as st

from agent.errors import StoreNotFound
from dashboard.formats import unmarked

TICK_SECONDS = 3


def draw_no_store(error: Exception) -> None:
    """Say why there is no store to read, and how to get one."""
    absent = isinstance(error.__cause__, StoreNotFound)
    st.title("No store yet" if absent else "The store cannot be read")
    why = str(error)
    st.markdown(unmarked(f"{why[:1].upper()}{why[1:]}."))
    st.markdown("To see a whole system, engine included, on this machine:")
    st.code("kvpulse demo", language="bash")
    st.markdown("To watch an engine that records already, start an agent beside it:")
    st.code("kvpulse agent\nkvpulse dashboard", language="bash")
    look_again()


def draw_no_engine(store: str) -> None:
    """Say that the store is there and no engine has written to it."""
    st.title("No engine yet")
    st.markdown(
        f"The store {unmarked(store)} is there, but no engine has recorded anything into it. "
        "The agent finds engines by their journal; start one that records:"
    )
    st.code("kvpulse serve", language="bash")
    st.markdown("or instrument your own with `kvpulse.Recorder` (docs/instrument-your-engine.md).")
    look_again()


def look_again() -> None:
    """Look again every few seconds, so that the page fills itself once there is something."""
    if "looked" not in st.session_state:
        st.session_state["looked"] = 0

    @st.fragment(run_every=TICK_SECONDS)
    def tick() -> None:
        st.session_state["looked"] += 1
        st.caption(f"Looks again every {TICK_SECONDS} s.")
        if st.session_state["looked"] > 1:
            st.session_state["looked"] = 0
            st.rerun()

    tick()
