"""Which run a scraped engine's next look belongs to; pure.

A page names no run. Runs are numbered per engine in the store, so two agents that look at the same
page arrive at the same name, and the lease of that name lets one of them write.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.reads.models import RunRow, RunState
from agent.scraped.fingerprint import is_scraped, stated_of
from agent.scraped.moves import MAY_DIFFER_SECONDS
from agent.scraped.reading import Reading

PREFIX: Final = "scraped-"


@dataclass(frozen=True, slots=True)
class RunChoice:
    """What to write, and what has ended.

    Attributes:
        goes_on: The run is in the store already, and this look is of it.
        ended: A run that is still marked as live though the engine has started anew since.
    """

    run_id: str
    goes_on: RunRow | None
    ended: RunRow | None


def choose_run(runs: Sequence[RunRow], reading: Reading) -> RunChoice:
    """Return the run of a first look.

    Args:
        runs: Of the engine, those of a journal too.
    """
    scraped = [run for run in runs if is_scraped(run.fingerprint)]
    newest = max(scraped, key=lambda run: _number(run.run_id), default=None)
    if newest is None:
        return RunChoice(f"{PREFIX}1", None, None)
    is_live = newest.state is RunState.LIVE
    if is_live and not _started_anew(newest, reading):
        return RunChoice(newest.run_id, newest, None)
    return RunChoice(next_run(newest.run_id), None, newest if is_live else None)


def next_run(run_id: str) -> str:
    """Return the name of the run after one."""
    return f"{PREFIX}{_number(run_id) + 1}"


def _number(run_id: str) -> int:
    digits = run_id.removeprefix(PREFIX)
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _started_anew(run: RunRow, reading: Reading) -> bool:
    then, now = stated_of(run).started_at_seconds, reading.stated.started_at_seconds
    return then is not None and now is not None and abs(now - then) > MAY_DIFFER_SECONDS
