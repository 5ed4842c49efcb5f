"""Free what runs that were killed had reserved ahead; their streams stay as they are."""

import os
from pathlib import Path

from kvpulse.lifetime_lock import is_locked
from kvpulse.loss_page import read_loss_page
from kvpulse.segment import RESERVED_SUFFIX, ProcessIdentity


def free_reserves_of_dead_runs(engine: Path, process: ProcessIdentity) -> None:
    """Unlink the reserved segments of an engine's dead runs.

    A run of this very process is left alone without a look at its lock, which looking would drop.
    """
    try:
        reserved = list(engine.glob(f"*/*{RESERVED_SUFFIX}"))
    except OSError:
        return  # nothing of ours can be reserved where we cannot look
    for path in reserved:
        loss = read_loss_page(path.parent)
        if loss is None or loss.process == process or is_locked(path.parent):
            continue
        try:
            os.unlink(path)
        except OSError:
            continue  # somebody else's run, or gone already
