"""What a new sequence begins with: an `arrive` record, or the parent that it forked from."""

from typing import Final

from agent.ledger.request_state import RequestState, known
from kvpulse.events import ArriveWord

PRIORITY_LABELS: Final = ("<-1", "-1", "0", "1", ">1")
NS_PER_US: Final = 1_000
_SIGN: Final = 1 << 31


def arrived(state: RequestState, words: list[int], aux: int) -> None:
    """Fill in what the record's first `ArriveWord.NUM_HASHES` words and its `aux` say."""
    state.prompt_tokens = words[ArriveWord.PROMPT_TOKENS]
    state.max_tokens = words[ArriveWord.MAX_TOKENS]
    state.asked_max_tokens = known(words[ArriveWord.ASKED_MAX_TOKENS])
    state.priority = (words[ArriveWord.PRIORITY] ^ _SIGN) - _SIGN
    state.tier, state.retry = words[ArriveWord.TIER], words[ArriveWord.RETRY]
    state.parent = words[ArriveWord.PARENT]
    state.deadline_ns = words[ArriveWord.DEADLINE_LOW] | words[ArriveWord.DEADLINE_HIGH] << 32
    low, high = words[ArriveWord.REQUEST_HASH_LOW], words[ArriveWord.REQUEST_HASH_HIGH]
    state.request_hash = low | high << 32
    # One more than the microseconds: 0 says that nobody measured.
    state.frontend_ns = (aux - 1) * NS_PER_US if aux else None


def forked(state: RequestState, parent: RequestState | None, parent_id: int) -> None:
    """Fill in what a new child has from its parent; the parent may never have been seen."""
    state.admitted_ns = state.arrived_ns
    if parent is None:
        state.parent = parent_id
        return
    state.parent = parent.parent or parent.owner
    state.begun_ns, state.first_token_ns = parent.begun_ns, parent.first_token_ns
    state.prompt_tokens, state.max_tokens = parent.prompt_tokens, parent.max_tokens
    state.limit_blocks = parent.limit_blocks
    state.priority, state.tier, state.retry = parent.priority, parent.tier, parent.retry


def priority_label(priority: int) -> str:
    """Return a priority as one of five labels, whatever clients send."""
    return PRIORITY_LABELS[min(max(priority, -2), 2) + 2]
