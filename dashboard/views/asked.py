"""What the agent was asked to do from a page, and what it said."""

from collections.abc import Callable

import streamlit as st

from agent.errors import AgentError
from dashboard.formats import unmarked


def do(action: Callable[[], str]) -> None:
    """Ask the agent for something; keep for the next drawing what it said, or why it did not."""
    try:
        st.session_state["said"] = ("status", action())
    except AgentError as error:
        st.session_state["said"] = ("alert", f"{error}.")


def refuse(text: str) -> None:
    """Keep for the next drawing why nothing was asked."""
    st.session_state["said"] = ("alert", text)


def draw_said() -> None:
    """Draw once what the last request to the agent brought."""
    role, text = st.session_state.pop("said", ("", ""))
    if text and role == "alert":
        st.error(unmarked(text))
    elif text:
        st.success(unmarked(text))
