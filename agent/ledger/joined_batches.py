"""Neighbouring batches of one segment as one: the ledger costs by batch, not by record."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from kvpulse.stream_values import Batch


def joined_batches(batches: Iterable[Batch]) -> list[Batch]:
    """Return the same records in as few batches as may be, in the same order.

    Batches are joined where nothing is missing between them and their lane words, handed out
    without holes, lie one behind the other.
    """
    runs: list[list[Batch]] = []
    for batch in batches:
        if runs and _goes_on(runs[-1], batch):
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return [_joined(run) for run in runs]


def _goes_on(run: list[Batch], batch: Batch) -> bool:
    last = run[-1]
    if batch.gap is not None or batch.first_in_segment or run[-1].unknown:
        return False
    if batch.position.segment != last.position.segment:
        return False
    if not (len(batch.records) and len(last.records)):
        return False
    with_words = [one for one in run if len(one.lane)]
    if not with_words or not len(batch.lane):
        return True
    return batch.lane_base == with_words[-1].lane_base + len(with_words[-1].lane)


def _joined(run: list[Batch]) -> Batch:
    if len(run) == 1:
        return run[0]
    with_words = [batch for batch in run if len(batch.lane)]
    return replace(
        run[0],
        records=np.concatenate([batch.records for batch in run]),
        lane=np.concatenate([batch.lane for batch in run]),
        lane_base=with_words[0].lane_base if with_words else 0,
        position=run[-1].position,
        unknown=sum(batch.unknown for batch in run),
    )
