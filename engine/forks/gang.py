"""Beams of one request, which run in lockstep and wait, run and end together."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.forks.hypotheses import Hypotheses
    from engine.runner import Candidate
    from engine.sequence import Sequence


class Gang:
    """The beams of one request.

    A member stands for a place among the beams rather than for one beam: when its beam dies, it
    takes on the child of another. The members are all as long as each other.

    Attributes:
        root_id: The number that `submit` gave the request.
        width: Most beams that go on.
        members: In the order in which they stand in the batch; one until the first fork.
        totals: Sum of the log-probabilities of each member's tokens.
        logprobs: Log-probability of each token of each member.
        hypotheses: The best complete answers so far.
        pending: Candidates of members that have theirs while others still compute, as after a
            preemption; such a member rests.
    """

    __slots__ = ("hypotheses", "logprobs", "members", "pending", "root_id", "totals", "width")

    def __init__(self, root: "Sequence", hypotheses: "Hypotheses") -> None:
        self.root_id = root.root_id
        self.width = root.sampling.beam_width
        self.members = [root]
        self.totals = [0.0]
        self.logprobs: list[list[float]] = [[]]
        self.hypotheses = hypotheses
        self.pending: dict[int, list[Candidate]] = {}
