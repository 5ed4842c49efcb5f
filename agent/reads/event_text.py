"""One event in words, for a sequence's timeline. Pure; damaged codes are named by their number."""

from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from kvpulse.events import (
    HOST_TIER,
    NOT_MEASURED,
    UNKNOWN_OWNER,
    ArriveWord,
    EvictReason,
    FailWord,
    FinishReason,
    FinishWord,
    FreeOutcome,
    HoldReason,
    Kind,
    PreemptMode,
    PreemptWord,
    RejectReason,
    WaitCause,
    WaitFlag,
)


class EventFields(NamedTuple):
    """What the texts are made from."""

    kind: int
    flags: int
    n: int
    aux: int
    words: Sequence[int]


def describe(event: EventFields) -> str:
    """Return an event as a sentence without its subject."""
    kind = next((kind for kind in Kind if kind == event.kind), None)
    teller = _TELLERS.get(kind) if kind is not None else None
    return teller(event) if teller is not None else ""


def wait_cause(event: EventFields) -> str | None:
    """Return the wait cause that an event states; None if it states none, or an unknown code."""
    if event.kind not in (Kind.WAIT, Kind.ALLOCATE_FAILED):
        return None
    return next((_low(cause) for cause in WaitCause if cause == event.aux), None)


def _blocks(event: EventFields) -> str:
    number = f"{event.n} block{'' if event.n == 1 else 's'}"
    tier = " in host memory" if event.flags & HOST_TIER else ""
    return f"{number}{tier} ({_ids(event.words[: event.n])})"


def _ids(ids: Sequence[int]) -> str:
    """Return block ids as runs: 3-7, 12."""
    runs: list[list[int]] = []
    for block in ids:
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:8]]
    return ", ".join(texts) + (", …" if len(runs) > 8 else "")


def _allocate(event: EventFields) -> str:
    return f"took {_blocks(event)}"


def _share(event: EventFields) -> str:
    return f"shares {_blocks(event)}, held {event.aux}x now"


def _free(event: EventFields) -> str:
    outcomes = {
        FreeOutcome.HELD: f"still held {event.aux}x",
        FreeOutcome.TO_CACHE: "kept as cached",
        FreeOutcome.TO_FREE: "free now",
        FreeOutcome.REFUSED: "refused: nobody held them",
    }
    return f"gave back {_blocks(event)}: {outcomes[FreeOutcome(event.flags & 3)]}"


def _copy(event: EventFields) -> str:
    pairs = list(zip(event.words[0::2], event.words[1::2], strict=False))
    return "copied on write " + ", ".join(f"{source} → {target}" for source, target in pairs[:8])


def _swap(event: EventFields) -> str:
    way = "out to host memory" if event.kind == Kind.SWAP_OUT else "back in from host memory"
    return f"{event.n} block{'' if event.n == 1 else 's'} swapped {way}"


def _cache(event: EventFields) -> str:
    return f"content known of {_blocks(event)}"


def _evict(event: EventFields) -> str:
    return f"evicted {_blocks(event)}: {_name(EvictReason, event.aux)}"


def _failed(event: EventFields) -> str:
    needed, free, cached = (_word(event, word) for word in FailWord)
    cause = _name(WaitCause, event.aux)
    return f"no blocks: needs {needed}, {free} free, {cached} cached ({cause})"


def _hold(event: EventFields) -> str:
    reason = _name(HoldReason, event.flags & ~HOST_TIER)
    until = f"for {event.aux} ms" if event.aux else "released"
    return f"hold on {_blocks(event)}: {reason}, {until}"


def _arrive(event: EventFields) -> str:
    prompt, limit = (_word(event, w) for w in (ArriveWord.PROMPT_TOKENS, ArriveWord.MAX_TOKENS))
    text = f"arrived: {prompt} prompt tokens, at most {limit} more"
    # One more than the microseconds: 0 says that nobody measured.
    in_server = f"; {(event.aux - 1) / 1_000:.1f} ms in the server before" if event.aux else ""
    return text + in_server


def _wait(event: EventFields) -> str:
    others = [_low(flag) for flag in WaitFlag if event.flags & flag]
    cause = _name(WaitCause, event.aux)
    also = [name for name in others if name != cause]
    text = f"waits: {cause}" + (f" (also {', '.join(also)})" if also else "")
    if event.words:
        text += f", behind sequence {owner_name(event.words[0])}"
    return text


def _admit(_event: EventFields) -> str:
    return "admitted to the running batch"


def _reject(event: EventFields) -> str:
    numbers = f": needs {event.words[0]}, limit {event.words[1]}" if len(event.words) > 1 else ""
    return f"rejected, {_name(RejectReason, event.aux)}{numbers}"


def _prefix_hit(event: EventFields) -> str:
    queried = f" of {event.words[0]}" if event.words else ""
    return f"prefix cache: {event.aux}{queried} tokens found" + (
        " on resuming" if event.flags & 1 else ""
    )


def _preempt(event: EventFields) -> str:
    lost, freed, kept = (_word(event, word) for word in PreemptWord)
    text = f"preempted ({_name(PreemptMode, event.flags)})"
    if event.aux:
        text += f" for sequence {owner_name(event.aux)}"
    return f"{text}: {lost} tokens lost, {freed} blocks freed, {kept} of them kept as cached"


def _resume(event: EventFields) -> str:
    return f"running again, {event.aux} tokens found again"


def _fork(event: EventFields) -> str:
    return f"forked from sequence {owner_name(event.aux)}"


def _first_token(event: EventFields) -> str:
    return "first token after resuming" if event.flags & 1 else "first token"


def _finish(event: EventFields) -> str:
    output = _word(event, FinishWord.OUTPUT_TOKENS)
    recomputed = _word(event, FinishWord.RECOMPUTED_TOKENS)
    text = f"ended, {_name(FinishReason, event.aux)}: {output} tokens out"
    return f"{text}, {recomputed} recomputed" if recomputed not in ("0", "?") else text


def owner_name(owner: int) -> str:
    """Return a sequence number, or `unknown`."""
    return "unknown" if owner == UNKNOWN_OWNER else str(owner)


def _word(event: EventFields, index: int) -> str:
    if index >= len(event.words) or event.words[index] == NOT_MEASURED:
        return "?"
    return str(event.words[index])


def _name(codes: type[IntEnum], code: int) -> str:
    return next((_low(known) for known in codes if known == code), f"code {code}")


def _low(code: IntEnum | IntFlag) -> str:
    return str(code.name).lower()


_TELLERS: Final[dict[Kind, Callable[[EventFields], str]]] = {
    Kind.ALLOCATE: _allocate,
    Kind.SHARE: _share,
    Kind.FREE: _free,
    Kind.COPY_ON_WRITE: _copy,
    Kind.SWAP_OUT: _swap,
    Kind.SWAP_IN: _swap,
    Kind.CACHE: _cache,
    Kind.EVICT: _evict,
    Kind.ALLOCATE_FAILED: _failed,
    Kind.HOLD: _hold,
    Kind.ARRIVE: _arrive,
    Kind.WAIT: _wait,
    Kind.ADMIT: _admit,
    Kind.REJECT: _reject,
    Kind.PREFIX_HIT: _prefix_hit,
    Kind.PREEMPT: _preempt,
    Kind.RESUME: _resume,
    Kind.FORK: _fork,
    Kind.FIRST_TOKEN: _first_token,
    Kind.FINISH: _finish,
}
