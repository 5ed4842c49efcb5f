"""The conservation laws of the ledger, as checks on totals that were reached in different ways.

A law that does not hold is a value with numbers in it; nothing is clamped or mended.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.ledger.block_ledger import BlockLedger
from agent.ledger.delta import LawFailure
from agent.ledger.owner_ledger import OwnerLedger
from agent.ledger.request_groups import num_requests
from agent.ledger.request_ledger import RequestLedger

# Broken, they can be told block by block.
NAMED_BY_REFERENCES: Final = frozenset(
    {"states_add_up", "counts_add_up", "active_adds_up", "references_add_up"}
)
RELATIVE: float = 1e-9
ABSOLUTE_NS: float = 1e3  # floating-point sums of ns


@dataclass(frozen=True, slots=True)
class Equation:
    """Two ways to reach one number."""

    law: str
    left: str
    left_value: float
    right: str
    right_value: float
    tolerance: float = 0.0

    def failure(self, t_ns: int) -> LawFailure | None:
        """Return the failure, if the two differ by more than the tolerance."""
        if abs(self.left_value - self.right_value) <= self.tolerance:
            return None
        detail = f"{self.left} is {self.left_value}, {self.right} is {self.right_value}"
        expected = f"{self.right}: {self.right_value}"
        return LawFailure(self.law, detail, t_ns, expected, f"{self.left}: {self.left_value}")


def block_laws(blocks: BlockLedger) -> list[Equation]:
    """Laws 1 to 3 of one tier: each total against a recount of the blocks themselves."""
    tier = "host_" if blocks.host else ""
    # Which blocks a shrunken pool took out of service is not stated; they are free, wherever.
    by_state = np.bincount(blocks.state, minlength=3)
    out_of_service = len(blocks.state) - blocks.total
    counts = int(blocks.count.sum())
    with_count = int(np.count_nonzero(blocks.count))
    return [
        Equation(
            f"{tier}states_add_up",
            "active + cached + free",
            blocks.active + blocks.cached + int(by_state[0]) - out_of_service,
            "total",
            blocks.total,
        ),
        Equation(
            f"{tier}states_add_up",
            "cached",
            blocks.cached,
            "blocks in state cached",
            int(by_state[1]),
        ),
        Equation(
            f"{tier}counts_add_up",
            "allocate + share - free",
            blocks.base_sum + blocks.taken - blocks.dropped,
            "sum of counts",
            counts,
        ),
        Equation(
            f"{tier}active_adds_up",
            "records 0 to 1 minus 1 to 0",
            blocks.base_active + blocks.activations - blocks.deactivations,
            "blocks with a count",
            with_count,
        ),
        Equation(f"{tier}active_adds_up", "active", blocks.active, "with a count", with_count),
    ]


def sequence_laws(requests: RequestLedger, t_ns: int, accrued_ns: int) -> list[Equation]:
    """Laws 4 and 6: every sequence is somewhere, and every ns of waiting has one cause."""
    tally, live = requests.tally, requests.live.values()
    begun = tally.base_live + tally.arrived + tally.forked
    waiting_ns = sum(t_ns - state.cause_since_ns for state in live if state.cause)
    return [
        Equation(
            "sequences_add_up",
            "arrived + forked",
            begun,
            "finished + rejected + live",
            tally.finished + tally.rejected + len(requests.live),
        ),
        Equation(
            "requests_add_up",
            "requests arrived",
            tally.base_requests + tally.arrived,
            "ended + rejected + live",
            tally.requests_ended + tally.rejected + num_requests(live),
        ),
        Equation("waits_add_up", "queue ns", tally.queue_ns, "by cause", tally.queue_waits_ns),
        Equation(
            "waits_add_up",
            "ns waited by all sequences",
            tally.waited_ns + waiting_ns,
            "ns accrued second by second",
            accrued_ns,
        ),
    ]


def reference_laws(owners: OwnerLedger, blocks: BlockLedger) -> list[Equation]:
    """Law 2's other half: the references that sequences hold are the blocks' counts. Settled."""
    held = np.bincount(owners.references.block, minlength=len(blocks.count))
    return [
        Equation(
            "references_add_up",
            "references held by sequences",
            len(owners.references.block),
            "sum of counts",
            blocks.sum_counts,
        ),
        Equation(
            "references_add_up",
            "blocks whose holders and count differ",
            int(np.count_nonzero(held != blocks.count)),
            "none",
            0,
        ),
        Equation(
            "references_add_up",
            "sequences that dropped more than they took",
            int(np.count_nonzero(owners.held < 0)),
            "none",
            0,
        ),
    ]


def block_second_law(paid_ns: float, active_block_ns: int) -> Equation:
    """Law 5: what all sequences paid is the integral of active blocks."""
    return Equation(
        "block_seconds_add_up",
        "block-ns of all sequences",
        paid_ns,
        "integral of active blocks",
        active_block_ns,
        max(RELATIVE * active_block_ns, ABSOLUTE_NS),
    )


def failures_of(equations: list[Equation], t_ns: int) -> list[LawFailure]:
    """Return the failures among some equations."""
    found = (equation.failure(t_ns) for equation in equations)
    return [failure for failure in found if failure is not None]
