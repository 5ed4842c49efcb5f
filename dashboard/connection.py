"""One connection pool per store, opened again when the file behind its path is replaced."""

from pathlib import Path

import streamlit as st

from agent.errors import StoreError
from agent.reads.reads import Reads, open_reads
from dashboard.config import DashboardConfig
from dashboard.data import Data
from dashboard.errors import StoreMissing


def identity(store: str) -> str:
    """Return what changes when a store's file is deleted and made anew; empty for a server."""
    if "://" in store and not store.startswith("sqlite:"):
        return ""
    path = Path(store.removeprefix("sqlite:///")).expanduser()
    try:
        return str(path.stat().st_ino)
    except OSError:
        return "absent"


@st.cache_resource(show_spinner=False, max_entries=4, on_release=lambda reads: reads.close())
def cached_reads(store: str, made: str) -> Reads:
    """Open a store once for all sessions; a failure is not remembered."""
    return open_reads(store)


def connect(config: DashboardConfig) -> Data:
    """Open the store for reading.

    Raises:
        StoreMissing: Nothing usable is there yet.
    """
    try:
        return Data(cached_reads(config.store, identity(config.store)), config)
    except StoreError as error:
        raise StoreMissing(str(error)) from error
