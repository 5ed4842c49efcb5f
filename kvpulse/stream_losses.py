"""What is missing from a stream, told exactly: pure functions on positions and headers."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kvpulse.events import MAX_KINDS, Kind
from kvpulse.loss_page import LossTotals
from kvpulse.segment import SegmentHeader
from kvpulse.stream_values import NO_EVENTS, Gap, GapReason, Position, Records

Counts = tuple[int, ...]

_KNOWN = frozenset(int(kind) for kind in Kind)
_WORST_LAST = (GapReason.NOT_WRITTEN, GapReason.DELETED, GapReason.DAMAGED)


@dataclass(slots=True)
class LossAccount:
    """Losses found since the last batch, waiting to be told with the next one."""

    gap: Gap | None = None
    damaged: bool = False  # something was unreadable since the last header

    def add(self, gap: Gap) -> None:
        """Join `gap` to what is waiting."""
        old = self.gap
        if old is None:
            self.gap = gap
            return
        self.gap = Gap(
            lost=_plus(old.lost, gap.lost),
            first_seq=min(old.first_seq, gap.first_seq),
            end_seq=max(old.end_seq, gap.end_seq),
            start_ns=old.start_ns or gap.start_ns,
            end_ns=gap.end_ns or old.end_ns,
            reason=max(old.reason, gap.reason, key=_WORST_LAST.index),
        )

    def take(self) -> Gap | None:
        """Hand out what is waiting."""
        gap, self.gap = self.gap, None
        return gap


def at_header(
    account: LossAccount, position: Position, header: SegmentHeader, *, start_ns: int
) -> Position:
    """Settle the account at the start of a segment, whose header knows every total."""
    lost = _missing(header.emitted, position.counts)
    if any(lost) or header.first_seq != position.seq:
        account.add(
            Gap(
                lost=lost,
                first_seq=min(position.seq, header.first_seq),
                end_seq=header.first_seq,
                start_ns=start_ns,
                end_ns=header.monotonic_ns,
                reason=_reason(account, position, header, lost),
            )
        )
    account.damaged = False
    return Position(
        segment=header.segment,
        record=0,
        seq=header.first_seq,
        counts=header.emitted,
        lost=_plus(position.lost, lost),
    )


def in_a_segment(
    account: LossAccount,
    position: Position,
    records: Records,
    refused: npt.NDArray[np.bool_],
    skipped: int,
) -> Position:
    """Step over `skipped` records: stand-ins, whose kind is known, and damaged ones."""
    lost = [0] * MAX_KINDS
    for record in records[refused[: len(records)]]:
        lost[int(record["aux"])] += int(record["n"])
    only_refused = len(records) == skipped and bool(refused.all())
    account.damaged = account.damaged or not only_refused
    account.add(
        Gap(
            lost=tuple(lost),
            first_seq=position.seq,
            end_seq=position.seq + skipped,
            start_ns=0,
            end_ns=0,
            reason=GapReason.NOT_WRITTEN if only_refused else GapReason.DAMAGED,
        )
    )
    return Position(
        segment=position.segment,
        record=position.record + skipped,
        seq=position.seq + skipped,
        counts=_plus(position.counts, lost),
        lost=_plus(position.lost, lost),
    )


def at_the_end(
    account: LossAccount,
    position: Position,
    header: SegmentHeader | None,
    loss: LossTotals | None,
    *,
    start_ns: int,
) -> Position:
    """Settle the account of a stream whose writer has ended, by its loss page."""
    if loss is None:
        return position
    before = header.not_written if header is not None else NO_EVENTS
    records_before = header.unwritten_records if header is not None else 0
    unwritten = _missing(loss.not_written, before)
    # A clean end left every total; a dead writer only those that it could not write.
    lost = _missing(loss.emitted, position.counts) if loss.state else unwritten
    records = max(0, loss.records - records_before)
    if any(lost) or records:
        account.add(
            Gap(
                lost=lost,
                first_seq=position.seq,
                end_seq=position.seq + records,
                start_ns=start_ns,
                end_ns=0,
                reason=GapReason.NOT_WRITTEN if lost == unwritten else GapReason.DAMAGED,
            )
        )
    return replace(
        position,
        seq=position.seq + records,
        counts=_plus(position.counts, lost),
        lost=_plus(position.lost, lost),
    )


def _reason(
    account: LossAccount, position: Position, header: SegmentHeader, lost: Counts
) -> GapReason:
    if account.damaged:
        return GapReason.DAMAGED
    if header.segment > position.segment:
        return GapReason.DELETED
    if all(a <= b for a, b in zip(lost, header.not_written, strict=True)):
        return GapReason.NOT_WRITTEN
    return GapReason.DAMAGED


def _missing(emitted: Counts, accounted: Counts) -> Counts:
    """Return what is missing of the kinds that this version counts.

    Damage can have made a reader count more than there was; that is no loss.
    """
    return tuple(
        max(0, total - mine) if code in _KNOWN else 0
        for code, (total, mine) in enumerate(zip(emitted, accounted, strict=True))
    )


def _plus(left: Counts, right: Counts | list[int]) -> Counts:
    return tuple(a + b for a, b in zip(left, right, strict=True))
