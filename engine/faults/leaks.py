"""Ended sequences that do not give their blocks back."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from engine.clock import Clock
from engine.faults.protocol import NoFaults
from kvpulse.events import FinishReason

_log = logging.getLogger(__name__)


class LeakOnCancel(NoFaults):
    """Cancelled sequences do not give their blocks back.

    Each leak is said aloud in the log, and appended to the truth file, if there is one, as a line
    of JSON: `fault`, `t_ns` (engine time), `owner`, `blocks`.
    """

    def __init__(self, *, clock: Clock, truth: Path | None = None) -> None:
        self._clock = clock
        self._truth = truth

    def kept_at_end(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Note the leak and keep all, of a cancelled sequence that holds blocks."""
        if reason is not FinishReason.CANCELLED or not block_ids:
            return []
        kept = list(block_ids)
        _log.warning(
            "FAULT leak_on_cancel: sequence %d was cancelled and keeps %d blocks: %s",
            seq_id,
            len(kept),
            kept,
        )
        if self._truth is not None:
            line = {
                "fault": "leak_on_cancel",
                "t_ns": self._clock.now_ns(),
                "owner": seq_id,
                "blocks": kept,
            }
            with self._truth.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return kept
