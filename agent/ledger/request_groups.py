"""Which live sequences are one request: a forked one ends when the last of its sequences does."""

from collections.abc import Iterable

from agent.ledger.request_state import RequestState


class RequestGroups:
    """Requests that forked while they ran, by their first sequence: how many sequences live."""

    def __init__(self) -> None:
        self.live: dict[int, int] = {}

    def fork(self, child: RequestState, parent: RequestState | None) -> bool:
        """Note a child; return whether it is the first that is seen of its request."""
        if parent is None:  # it ended before, or was never seen
            child.group = child.parent
            self.live[child.group] = self.live.get(child.group, 0) + 1
            return self.live[child.group] == 1
        if not parent.group:
            parent.group = parent.parent or parent.owner
            self.live[parent.group] = self.live.get(parent.group, 0) + 1
        child.group = parent.group
        self.live[child.group] += 1
        return False

    def leave(self, state: RequestState) -> bool:
        """Note that a sequence ended; return whether its request has ended with it."""
        if not state.group:
            return True
        left = self.live.get(state.group, 1) - 1
        if left > 0:
            self.live[state.group] = left
            return False
        self.live.pop(state.group, None)
        return True

    def recount(self, states: Iterable[RequestState]) -> None:
        """Count anew over the live sequences, as after a keyframe or a restart."""
        self.live.clear()
        for state in states:
            if state.group:
                self.live[state.group] = self.live.get(state.group, 0) + 1


def regroup(states: dict[int, RequestState]) -> None:
    """Work out groups from who is whose child: a keyframe states no forks."""
    for state in states.values():
        if state.parent:
            state.group = state.parent
            first = states.get(state.parent)
            if first is not None:
                first.group = first.owner


def num_requests(states: Iterable[RequestState]) -> int:
    """Return how many requests some live sequences are."""
    alone, groups = 0, set()
    for state in states:
        if state.group:
            groups.add(state.group)
        else:
            alone += 1
    return alone + len(groups)
