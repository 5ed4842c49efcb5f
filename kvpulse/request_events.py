"""What the scheduler states: one method for each kind that is about requests and sequences.

`owner` is a sequence's number, 1 or more; `tenant` an id that `Recorder.tenant` gave out.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from kvpulse.block_events import BlockEvents
from kvpulse.events import NOT_MEASURED, Kind

ARRIVE: Final = int(Kind.ARRIVE)
WAIT: Final = int(Kind.WAIT)
ADMIT: Final = int(Kind.ADMIT)
REJECT: Final = int(Kind.REJECT)
PREFIX_HIT: Final = int(Kind.PREFIX_HIT)
PREEMPT: Final = int(Kind.PREEMPT)
RESUME: Final = int(Kind.RESUME)
FORK: Final = int(Kind.FORK)
FIRST_TOKEN: Final = int(Kind.FIRST_TOKEN)
FINISH: Final = int(Kind.FINISH)
LOW: Final = 0xFFFF_FFFF
ARRIVAL: Final = Struct("<IIIIIIIQQI")  # `ArriveWord`
NS_PER_US: Final = 1000
REJECTION: Final = Struct("<II")  # needed, limit
PREEMPTION: Final = Struct("<III")  # `PreemptWord`
END: Final = Struct("<IIII")  # `FinishWord`


class RequestEvents(BlockEvents):
    """The request half of `Recorder`."""

    __slots__ = ()

    def arrive(
        self,
        owner: int,
        prompt_tokens: int,
        max_tokens: int,
        tenant: int = 0,
        *,
        asked_max_tokens: int | None = None,
        priority: int = 0,
        tier: int = 0,
        deadline_ns: int = 0,
        parent: int = 0,
        retry: int = 0,
        request_hash: int = 0,
        hashes: Sequence[int] = (),
        frontend_ns: int | None = None,
    ) -> None:
        """State that a request came, also one that will be refused; its waiting begins.

        Args:
            max_tokens: After clamping to the context length.
            asked_max_tokens: What the client asked for, None if it did not say.
            deadline_ns: On the engine's clock, 0 for none.
            parent: Sequence number of the request's first sequence, 0 if this is it.
            retry: 0 for a first attempt.
            request_hash: `KeyedHashes.request_hash` of the client's id, 0 for none.
            hashes: `KeyedHashes.chain_hash` of each full block of the prompt.
            frontend_ns: From the server's accepting the request until now, None if nobody measured
                it; kept in microseconds.
        """
        try:
            # A prompt longer than a segment can say keeps its first hashes.
            some = hashes[: self._piece >> 1]
            fixed = ARRIVAL.pack(
                prompt_tokens,
                max_tokens,
                NOT_MEASURED if asked_max_tokens is None else asked_max_tokens,
                priority & LOW,
                tier,
                parent,
                retry,
                deadline_ns,
                request_hash,
                len(some),
            )
            words = array("I", fixed + array("Q", some).tobytes())
            # One more than the microseconds, so that 0 can say that nobody measured.
            aux = 0 if frontend_ns is None else min(max(frontend_ns, 0) // NS_PER_US + 1, LOW)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(ARRIVE, 1)
        return self._emit_lane(ARRIVE, 0, tenant, owner, words, len(words), aux)

    def wait(self, owner: int, cause: int, flags: int, blocker: int = 0, tenant: int = 0) -> None:
        """State why `owner` waits; call it when cause or blocker change, not for flags alone."""
        try:
            n = 1 if blocker else 0
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(WAIT, 1)
        return self._emit(WAIT, flags, tenant, owner, blocker, n, cause)

    def admit(self, owner: int, tenant: int = 0) -> None:
        """State that `owner` runs for the first time."""
        self._emit(ADMIT, 0, tenant, owner, 0, 0, 0)

    def reject(
        self, owner: int, reason: int, needed: int = 0, limit: int = 0, tenant: int = 0
    ) -> None:
        """State a refusal: `RejectReason`, what it would have needed and what there is."""
        self._emit_words(REJECT, 0, tenant, owner, reason, REJECTION, (needed, limit))

    def prefix_hit(
        self, owner: int, tokens: int, queried: int, resumed: bool = False, tenant: int = 0
    ) -> None:
        """State what the prefix cache had: `tokens` of `queried`; call it also for 0 tokens."""
        try:
            flags = 1 if resumed else 0
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(PREFIX_HIT, 1)
        return self._emit(PREFIX_HIT, flags, tenant, owner, queried, 1, tokens)

    def preempt(
        self,
        owner: int,
        beneficiary: int,
        mode: int,
        tokens_lost: int,
        blocks_freed: int,
        blocks_kept: int,
        tenant: int = 0,
    ) -> None:
        """State that running `owner` gave its blocks back for `beneficiary` (0 none).

        `mode` is a `PreemptMode`; `blocks_kept` of the `blocks_freed` stay cached. Its waiting
        begins again.
        """
        values = (tokens_lost, blocks_freed, blocks_kept)
        self._emit_words(PREEMPT, mode, tenant, owner, beneficiary, PREEMPTION, values)

    def resume(self, owner: int, tokens_found: int, tenant: int = 0) -> None:
        """State that `owner` runs again after a preemption; `tokens_found` were still cached."""
        self._emit(RESUME, 0, tenant, owner, 0, 0, tokens_found)

    def fork(self, owner: int, parent: int, tenant: int = 0) -> None:
        """State that `owner` split off running `parent`; its shares are calls of their own."""
        self._emit(FORK, 0, tenant, owner, 0, 0, parent)

    def first_token(self, owner: int, resumed: bool = False, tenant: int = 0) -> None:
        """State the first token of `owner`, or the first one after a resume."""
        try:
            flags = 1 if resumed else 0
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(FIRST_TOKEN, 1)
        return self._emit(FIRST_TOKEN, flags, tenant, owner, 0, 0, 0)

    def finish(
        self,
        owner: int,
        reason: int,
        prompt_tokens: int,
        output_tokens: int,
        computed_tokens: int,
        recomputed_tokens: int,
        tenant: int = 0,
    ) -> None:
        """State how `owner` ended (`FinishReason`); its blocks are freed before."""
        values = (prompt_tokens, output_tokens, computed_tokens, recomputed_tokens)
        self._emit_words(FINISH, 0, tenant, owner, reason, END, values)
