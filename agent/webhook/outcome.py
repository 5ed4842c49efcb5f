"""What became of a message. The values are labels of a metric."""

from enum import StrEnum


class Outcome(StrEnum):
    """How the telling of one message ended."""

    DELIVERED = "delivered"  # the receiver said 2xx
    REFUSED = "refused"  # it said no, or pointed elsewhere: asking again changes nothing
    FAILED = "failed"  # it was away, slow or in trouble for all attempts
    DROPPED = "dropped"  # too many were waiting already
