"""Does waiting for something hurt, and is it more than a burst?"""

from collections.abc import Sequence
from typing import Final

from agent.triage.facts import Facts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import AFTER_A_BURST, AT_LAST

FOR_WANT_OF_ROOM: Final = ("queue_full", "above_watermark", "pool_timeout", "deadline")


def is_congested(facts: Facts, thresholds: Thresholds, causes: Sequence[str]) -> bool:
    """Say whether these causes keep users waiting for too long, and something is lacking.

    A queue that is long for a minute is a burst, or chance. What lacks something was too long over
    minutes and still is; or it is so long that users are turned away.
    """
    return hurts_now(facts, thresholds, causes) and (
        facts.lasting_wait_per_arrival(*causes) >= _lasting_target(facts, thresholds)
        or are_refused(facts, thresholds, FOR_WANT_OF_ROOM)
    )


def opens_after_seconds(facts: Facts) -> float:
    """Return how long congestion has to hold to be an incident.

    Where only the window is known, it has to outlast a burst from now on.
    """
    return AFTER_A_BURST if facts.lasting is None else AT_LAST


def hurts_now(facts: Facts, thresholds: Thresholds, causes: Sequence[str]) -> bool:
    """Say whether these causes kept users waiting for too long in this window.

    A wait that nobody would complain of is how a pool and a batch are kept full.
    """
    return (
        facts.held_up(*causes) >= thresholds.least_waiting
        and facts.wait_per_arrival(*causes) >= thresholds.targets.pool_wait_seconds
    )


def are_refused(facts: Facts, thresholds: Thresholds, reasons: Sequence[str]) -> bool:
    """Say whether more than single requests were refused for these reasons."""
    refused = num_refused(facts, reasons)
    arrived = facts.traffic.came if facts.traffic is not None else 0
    return refused >= max(thresholds.least_rejected, thresholds.rejected_ratio * arrived)


def num_refused(facts: Facts, reasons: Sequence[str]) -> int:
    """Return how many requests of the window were refused for these reasons."""
    rejected = facts.traffic.rejected if facts.traffic is not None else {}
    return sum(rejected.get(reason, 0) for reason in reasons)


def _lasting_target(facts: Facts, thresholds: Thresholds) -> float:
    # Where only the window is known, nothing tells a burst from what lasts.
    targets = thresholds.targets
    return targets.pool_wait_seconds if facts.lasting is None else targets.ttft_seconds
