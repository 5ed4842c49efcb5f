"""Examine one engine: gather the facts, judge them."""

from agent.reads.reads import Reads
from agent.triage.gather import Question, gather
from agent.triage.judge import judge
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import Diagnosis


def examine(reads: Reads, question: Question, thresholds: Thresholds | None = None) -> Diagnosis:
    """Return what is wrong with one engine in one window."""
    return judge(gather(reads, question), thresholds)
