"""Whether the agent is ready, and if not, what is wrong: pure judgement over one live snapshot."""

from dataclasses import dataclass
from typing import Final

from agent.live_view import LiveEngine, LiveSnapshot
from agent.metrics.engine_samples import source_age_seconds, stale_after_seconds
from agent.reads.models import RunState
from agent.rollups.rebucket import NS_PER_SECOND

MAX_LAG_SECONDS: Final = 5.0
MAX_LOOP_AGE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason not to be ready: what it concerns, what was found, what to try."""

    subject: str
    text: str
    since_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """Ready, or the reasons why not."""

    problems: tuple[Problem, ...]

    @property
    def is_ready(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def judge(snapshot: LiveSnapshot, now_ns: int) -> Readiness:
    """Say what keeps the agent from being ready at `now_ns` (wall clock)."""
    problems = [
        *_loop_problems(snapshot, now_ns),
        *_store_problems(snapshot),
        *_source_problems(snapshot, now_ns),
        *(
            Problem(error.subject, error.text, _seconds_since(error.since_ns, now_ns))
            for error in snapshot.errors
        ),
    ]
    return Readiness(tuple(problems))


def _loop_problems(snapshot: LiveSnapshot, now_ns: int) -> list[Problem]:
    last_ns = snapshot.last_loop_at_ns
    age = _seconds_since(snapshot.started_at_ns if last_ns is None else last_ns, now_ns)
    if last_ns is None:
        return [Problem("agent", "the reading loop has not gone round once yet", age)]
    if age > MAX_LOOP_AGE_SECONDS:
        return [Problem("agent", f"the reading loop has stood still for {age:.0f} s", age)]
    return []


def _store_problems(snapshot: LiveSnapshot) -> list[Problem]:
    if snapshot.store_writable:
        return []
    return [
        Problem("store", f"the last transaction could not be written to {snapshot.store_label}")
    ]


def _source_problems(snapshot: LiveSnapshot, now_ns: int) -> list[Problem]:
    if not snapshot.engines:
        text = f"no engine has written a journal under {snapshot.journal or 'the journal folder'}"
        return [Problem("sources", text, _seconds_since(snapshot.started_at_ns, now_ns))]
    problems = (_source_problem(engine, now_ns) for engine in snapshot.engines.values())
    return [problem for problem in problems if problem is not None]


def _source_problem(engine: LiveEngine, now_ns: int) -> Problem | None:
    subject = f"engine {engine.engine}"
    age = source_age_seconds(engine, now_ns)
    if engine.state is RunState.FINISHED:
        return None  # an engine that said goodbye is history, not a fault
    if engine.state is RunState.DEAD:
        return Problem(subject, "its writer went away without closing the journal", age)
    if age > stale_after_seconds(engine):
        text = f"nothing has been committed for {age:.0f} s, {engine.behind_records} records unread"
        return Problem(subject, text, age)
    lag = engine.lag_seconds
    if lag is not None and lag > MAX_LAG_SECONDS:
        text = f"events reach the store {lag:.1f} s late, {engine.behind_records} records unread"
        return Problem(subject, text)
    return None


def _seconds_since(then_ns: int, now_ns: int) -> float:
    return max(0, now_ns - then_ns) / NS_PER_SECOND
