"""The public way to record what an engine does: one stream, one typed method per kind."""

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final, Self, cast

from kvpulse.emitter_choice import Emitter, chosen
from kvpulse.errors import ConfigError
from kvpulse.events import HOST_TIER, NOT_MEASURED, Kind
from kvpulse.keyframe import Keyframe, empty_keyframe
from kvpulse.plain_text import MAX_CONFIG_BYTES, plain_text
from kvpulse.request_events import RequestEvents
from kvpulse.segment import segment_shape
from kvpulse.segment_reserver import SegmentReserver
from kvpulse.stream_rotation import DEFINE

if TYPE_CHECKING:
    from kvpulse.reader import StreamReader

STEP: Final = int(Kind.STEP)
POOL: Final = int(Kind.POOL)
HEARTBEAT: Final = int(Kind.HEARTBEAT)
CONFIG: Final = int(Kind.CONFIG)
LOW: Final = 0xFFFF_FFFF
STEP_WORDS: Final = Struct("<IIIIIIQQQ")  # `StepWord`
POOL_WORDS: Final = Struct("<IIIIQQII")  # `PoolWord`
HEARTBEAT_WORDS: Final = Struct("<QIIQQ")  # `HeartbeatWord`
TENANT_STRING: Final = 1  # flags of `define`

SEGMENT_BYTES: Final = 16 * 2**20
MAX_BYTES: Final = 256 * 2**20
FEWEST_SEGMENTS: Final = 3  # one being written, one reserved, one to read
MAX_STRINGS: Final = 4096

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Recorder(RequestEvents):
    """Records one engine's events into one stream of the journal.

    It belongs to one thread at a time: another thread opens its own, and a signal handler calls
    none. It never raises, waits or ends the process after `open`; what cannot be written is counted
    per kind (`not_written`). After `fork` the child's is closed.

    Call `step`, `pool` or `heartbeat` regularly, when the engine's state and what it recorded
    agree: keyframes are taken and segments changed there.
    """

    __slots__ = ()

    @classmethod
    def open(
        cls,
        journal: Path,
        engine: str,
        *,
        total_blocks: int,
        block_size: int,
        host_blocks: int = 0,
        snapshot: Callable[[], Keyframe | None] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], int] = time.time_ns,
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int = MAX_BYTES,
        run_id: str | None = None,
        starts_empty: bool = True,
        emitter: str | None = None,
    ) -> Self:
        """Begin a stream `<journal>/<engine>/<run id>/`.

        A journal that cannot be written does not fail: recording is paused, counts what it cannot
        write, says why in `failure`, and begins when it can.

        Args:
            snapshot: Returns the engine's whole state for keyframes, or None while there is none.
                It may also be set later (`set_snapshot`).
            clock: Engine time in monotonic nanoseconds.
            segment_bytes: Size of a segment; larger where the pool's keyframe asks for it.
            max_bytes: The oldest segments are unlinked beyond this; at least three are kept.
            starts_empty: No block is in use yet, so that the first keyframe can say so even when
                the snapshot cannot.
            emitter: "c" or "python" (`Emitter`); None takes what `emitter_choice` says is in force.
                A subclass of `Recorder` writes with what it is made of.

        Raises:
            ConfigError: An argument cannot work.
        """
        kind = cls._written_with(emitter)
        run = run_id or _new_run_id()
        for name, value in (("engine", engine), ("run_id", run)):
            if not _NAME.fullmatch(value):
                raise ConfigError(
                    f"{name} {value!r} cannot name a directory; use letters, digits, '.', '_', '-'"
                )
        if total_blocks < 0 or host_blocks < 0 or block_size < 1 or segment_bytes < 8192:
            raise ConfigError(
                f"total_blocks {total_blocks}, host_blocks {host_blocks}, block_size {block_size},"
                f" segment_bytes {segment_bytes}: blocks are 0 or more, their size 1 or more,"
                " segments 8192 or more"
            )
        directory = Path(journal).absolute() / engine / run
        if os.path.lexists(directory):
            raise ConfigError(f"{directory} exists already; give each run an id of its own")
        shape = segment_shape(segment_bytes, total_blocks=total_blocks, host_blocks=host_blocks)
        kept = max(FEWEST_SEGMENTS, max_bytes // shape.file_bytes)
        reserver = SegmentReserver(directory, shape, max_segments=kept)
        reserver.attempt()
        recorder = kind(
            reserver,
            blocks=(total_blocks, host_blocks, block_size),
            snapshot=snapshot,
            clock=clock,
            wall_clock=wall_clock,
        )
        recorder._begin(starts_empty)
        reserver.start()
        return recorder

    @classmethod
    def _written_with(cls, emitter: str | None) -> type[Self]:
        """Return the class that records with that writer."""
        if cls is not Recorder or chosen(emitter) is Emitter.PYTHON:
            return cls
        from kvpulse.compiled_recorder import CompiledRecorder

        return cast(type[Self], CompiledRecorder)

    def _begin(self, starts_empty: bool) -> None:
        """Publish the first segment, with a keyframe if the state is known."""
        wanted, self._snapshot = self._snapshot, None
        total_blocks, host_blocks, _ = self._shape_blocks
        known: Keyframe | None = None
        try:
            known = wanted() if wanted is not None else None
        except Exception:  # noqa: BLE001 - an engine that is not built yet cannot answer
            known = None
        if known is None and starts_empty:
            known = empty_keyframe(total_blocks=total_blocks, host_blocks=host_blocks)
        self._snapshot = (lambda: known) if known is not None else None
        self._rotate(at_safe_point=True)
        self._snapshot = wanted

    def step(
        self,
        number: int,
        prefill_tokens: int,
        decode_tokens: int,
        sequences: int,
        context_tokens: int,
        waiting: int,
        schedule_ns: int,
        compute_ns: int,
        sample_ns: int,
    ) -> None:
        """State one finished engine step; a safe point.

        Args:
            context_tokens: Sum of context lengths over the step's sequences.
            waiting: Sequences that wait at its end.
        """
        try:
            high, low = number >> 32, number & LOW
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(STEP, 1)
        values = (
            high,
            prefill_tokens,
            decode_tokens,
            sequences,
            context_tokens,
            waiting,
            schedule_ns,
            compute_ns,
            sample_ns,
        )
        self._emit_words(STEP, 0, 0, 0, low, STEP_WORDS, values)
        if self._index >= self._soft_limit or self._word >= self._soft_word:
            self._safe_point()
        return None

    def pool(
        self,
        total: int,
        active: int,
        cached: int,
        free: int,
        sum_of_counts: int,
        checksum: int,
        filled_slots: int | None = None,
        largest_free_run: int | None = None,
        host: bool = False,
        allocate_ns: int | None = None,
    ) -> None:
        """State the pool's own account of itself, counted by the pool; a safe point.

        Args:
            checksum: Sum of `block_weight(block) * count` over all blocks, modulo 2**64.
            filled_slots: Filled token slots in active blocks, each block once.
            largest_free_run: Longest run of neighbouring free ids.
            allocate_ns: How long one call that allocated blocks took since the last account; a
                sample, since timing every call would cost as much as recording it.
        """
        try:
            flags = HOST_TIER if host else 0
            # One more than it took: 0 says that no call was timed.
            aux = 0 if allocate_ns is None else min(allocate_ns, NOT_MEASURED - 1) + 1
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(POOL, 1)
        values = (
            total,
            active,
            cached,
            free,
            sum_of_counts,
            checksum,
            NOT_MEASURED if filled_slots is None else filled_slots,
            NOT_MEASURED if largest_free_run is None else largest_free_run,
        )
        self._emit_words(POOL, flags, 0, 0, aux, POOL_WORDS, values)
        if self._index >= self._soft_limit or self._word >= self._soft_word:
            self._safe_point()
        return None

    def heartbeat(self, step: int, live: int, waiting: int) -> None:
        """State that the engine lives, with a fresh pair of clocks; a safe point."""
        try:
            values = (step, live, waiting, self._wall_clock(), self._clock())
        except Exception:  # noqa: BLE001 - the engine must survive its own clock
            return self._refuse(HEARTBEAT, 1)
        self._emit_words(HEARTBEAT, 0, 0, 0, 0, HEARTBEAT_WORDS, values)
        if self._index >= self._soft_limit or self._word >= self._soft_word:
            self._safe_point()
        return None

    def config(self, fingerprint: Mapping[str, str | int | float | bool | None]) -> None:
        """State what the engine runs with; once at the start and when it changes. No secrets."""
        try:
            text = json.dumps(dict(fingerprint), sort_keys=True, default=str).encode("ascii")
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(CONFIG, 1)
        if len(text) > MAX_CONFIG_BYTES:
            return self._refuse(CONFIG, 1)
        return self._emit_text(CONFIG, 0, 0, text)

    def tenant(self, alias: str) -> int:
        """Return the id of a tenant's alias, defining it on first use; 0 for an empty one.

        Anything but printable ASCII becomes '?', and 128 bytes are kept. Past 4,096 strings the
        rest share the alias `other`.
        """
        try:
            text = plain_text(str(alias))
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return 0
        if not text:
            return 0
        if text not in self._strings and len(self._strings) >= MAX_STRINGS - 1:
            text = "other"
        known = self._strings.get(text)
        if known is not None:
            return known
        string_id = self._strings[text] = len(self._strings) + 1
        self._emit_text(DEFINE, TENANT_STRING, string_id, text.encode())
        return string_id

    def reader(self) -> "StreamReader":
        """Return a reader of this stream for use in this process, told rather than asking."""
        from kvpulse.reader import StreamReader

        return StreamReader(self.directory, is_alive=lambda: not self._closed)


def _new_run_id() -> str:
    started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{started}-{os.getpid()}-{os.urandom(3).hex()}"
