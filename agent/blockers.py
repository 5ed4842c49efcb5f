"""Book the waiting behind a named blocker to that blocker, to the nanosecond."""

from agent.request_state import RequestState

Live = dict[int, RequestState]


def stand_behind(live: Live, state: RequestState, blocker: int, t_ns: int) -> None:
    """Book the wait behind the last blocker to it; from now on another is named (0 nobody)."""
    if state.blocker:
        before = live.get(state.blocker)
        if before is not None:
            before.blocked_others_ns += t_ns - state.blocker_since_ns
            before.num_behind -= 1
    state.blocker, state.blocker_since_ns = blocker, t_ns
    its = live.get(blocker)
    if its is not None:
        its.num_behind += 1


def settle_blockers(live: Live, t_ns: int) -> None:
    """Book every wait behind somebody up to a time."""
    for state in live.values():
        if state.blocker:
            stand_behind(live, state, state.blocker, t_ns)


def booked_at(live: Live, t_ns: int) -> dict[int, int]:
    """Return what is booked to each blocker that still lives, up to a time."""
    booked = {state.owner: state.blocked_others_ns for state in live.values()}
    for state in live.values():
        if state.blocker in booked:
            booked[state.blocker] += t_ns - state.blocker_since_ns
    return {owner: ns for owner, ns in booked.items() if ns}
