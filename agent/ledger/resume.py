"""Bring a ledger back to where a run's stored position is: snapshot, then the chunks after it."""

from agent.ledger.ledger import Ledger
from agent.store.resume import StoredRun


def resume_ledger(stored: StoredRun) -> Ledger:
    """Return the ledger as it was at the run's last commit.

    Raises:
        StateError, ChunkError: A stored blob is damaged; reading cannot go on from here.
    """
    ledger = Ledger(stored.shape) if stored.snapshot is None else Ledger.resume(stored.snapshot)
    for blob in stored.chunks:
        ledger.replay(blob)
    ledger.replayed_to(stored.position.seq)
    return ledger
