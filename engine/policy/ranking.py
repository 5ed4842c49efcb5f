"""When a sequence counts as having come: priority, tier and fairness on one axis of time.

A request's *rank* is its arrival, put off by what each policy says: by `aging_ns` for each level of
priority (brought forward for negative ones), by `batch_patience_ns` in the batch tier, and by
its tenant's lead over the others. Whoever has the lower rank goes first.

A rank never changes: a sequence that ages gains on all later ones by having come earlier. So queue
and batch stay sorted, two sequences never change places, and nothing starves: a rank is finite, and
all that comes late enough ranks behind it.
"""

from engine.policy.scheduling_policy import MAX_PRIORITY, NUM_TIERS, SchedulingPolicy
from engine.sequence import Sequence

SHARE_SCALE = 1 << 20  # virtual time is in tokens of a tenant of this weight


class FairShares:
    """The virtual time of tenants: tokens asked for, by weight.

    A request begins where its tenant's last one ends, or now if that is later; what it asks for,
    divided by the tenant's weight, is its length. Now is where the last begun request began.

    Source: start-time fair queueing, Goyal, Vin, Cheng 1996.
    """

    def __init__(self) -> None:
        self._now = 0
        self._ends: dict[int, int] = {}

    def lead(self, tenant: int) -> int:
        """Return how far a tenant is ahead of the others, in tokens x SHARE_SCALE / weight."""
        return max(self._ends.get(tenant, 0) - self._now, 0)

    def book(self, tenant: int, num_tokens: int, weight: int) -> int:
        """Book a request's tokens; return when, in virtual time, it begins."""
        start = self._now + self.lead(tenant)
        self._ends[tenant] = start + num_tokens * SHARE_SCALE // weight
        return start

    def begin(self, start: int) -> None:
        """Let virtual time go on: the request booked for `start` runs."""
        self._now = max(self._now, start)

    def give_back(self, tenant: int, num_tokens: int, weight: int) -> None:
        """Take back what a request asked for and did not use."""
        end = self._ends.get(tenant, 0) - num_tokens * SHARE_SCALE // weight
        self._ends[tenant] = max(end, self._now)

    def forget(self) -> None:
        """Begin anew: nobody waits or runs, so nobody is ahead."""
        self._ends.clear()


class Ranking:
    """Gives each arriving sequence its rank, and keeps the tenants' shares."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._fair = policy.fairness_ns_per_token > 0
        self._shares = FairShares()
        self._booked: dict[int, int] = {}  # start in virtual time, by sequence
        self._weights: dict[int, int] = {}

    def weigh(self, tenant: int, weight: int) -> None:
        """Say a tenant's weight, before its first request."""
        self._weights[tenant] = weight

    def place(self, seq: Sequence, *, alone: bool) -> None:
        """Set the rank of a sequence that arrives; `alone` when no other is live."""
        policy = self._policy
        seq.tier = min(max(seq.request.tier, 0), NUM_TIERS - 1)
        priority = min(max(seq.request.priority, -MAX_PRIORITY), MAX_PRIORITY)
        seq.priority = priority
        delay_ns = priority * policy.aging_ns + seq.tier * policy.batch_patience_ns
        if self._fair:
            if alone:
                self._shares.forget()
                self._booked.clear()
            lead = self._shares.lead(seq.tenant)
            weight = self._weights.get(seq.tenant, 1)
            tokens = seq.max_num_tokens * seq.num_slots_reserved
            self._booked[seq.seq_id] = self._shares.book(seq.tenant, tokens, weight)
            delay_ns += lead * policy.fairness_ns_per_token // SHARE_SCALE
        seq.rank_ns = seq.arrived_ns + delay_ns

    def begin(self, seq: Sequence) -> None:
        """Note that a sequence runs for the first time."""
        if self._fair and seq.seq_id in self._booked:
            self._shares.begin(self._booked[seq.seq_id])

    def end(self, seq: Sequence) -> None:
        """Take back what an ended sequence did not use of its share."""
        if self._fair and self._booked.pop(seq.seq_id, None) is not None:
            unused = seq.max_num_tokens - (seq.num_tokens if seq.ran else 0)
            weight = self._weights.get(seq.tenant, 1)
            self._shares.give_back(seq.tenant, unused * seq.num_slots_reserved, weight)


def order_key(seq: Sequence) -> tuple[int, int, int]:
    """Return where a sequence stands in queue and batch: the samples of a request together."""
    return (seq.rank_ns, seq.root_id, seq.seq_id)


def outranks(seq: Sequence, other: Sequence) -> bool:
    """Return whether a sequence may take the place of another one that runs.

    It has to be better in tier or priority, and it has to come first after aging too. Both are
    strict and never change, so that two sequences never take each other's place in turn.
    """
    better = (seq.tier, seq.priority) < (other.tier, other.priority)
    return better and seq.rank_ns < other.rank_ns
