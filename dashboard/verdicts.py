"""Triage's answer for one run as it is stored, as pages ask for it."""

import time
from dataclasses import dataclass
from typing import Final

import streamlit as st

from agent.reads.reads import Reads
from agent.targets.target import Target
from agent.triage.doctor import examine
from agent.triage.gather import Question
from agent.triage.verdicts import Diagnosis
from dashboard.config import DashboardConfig

KEPT_SECONDS: Final = (
    5.0  # a diagnosis takes some hundredths of a CPU second, and a page asks often
)


@dataclass(frozen=True, slots=True)
class VerdictData:
    """Asks one store; answers are kept for all sessions, by the store's address."""

    reads: Reads
    config: DashboardConfig

    def now(self, run_key: int) -> Diagnosis | None:
        """Return what `kvpulse doctor` says of a run now; None where the run is gone."""
        return kept_diagnosis(self.reads, self.config.store, self.config.targets, run_key)


@st.cache_data(ttl=KEPT_SECONDS, max_entries=100, show_spinner=False)
def kept_diagnosis(
    _reads: Reads, store: str, targets: tuple[Target, ...], run_key: int
) -> Diagnosis | None:
    """Examine a run, at most once in a few seconds, however many people look."""
    run = _reads.run(run_key)
    if run is None:
        return None
    return examine(_reads, Question(run, now_ns=time.time_ns(), targets=targets))
