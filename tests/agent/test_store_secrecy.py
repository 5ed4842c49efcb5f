"""Nothing of a prompt reaches the store: no word of it, no run of its token ids."""

import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import zstandard

from agent.chunks.chunk import decode_chunk
from agent.ledger.state_frame import decode_frame
from kvpulse.command import main as kvpulse
from kvpulse.events import FinishReason, FreeOutcome
from kvpulse.identity import KeyedHashes
from kvpulse.recorder import Recorder
from tests.agent.factories_store import empty_store

WORDS = ("Persephone", "dreizehnhundert", "пароль")
TOKENS = [40_001, 30_777, 50_123, 12_345, 61_000, 44_444, 23_456, 55_555] * 2
REQUEST_ID = "chatcmpl-Persephone-77"
TENANT = "Persephone Holdings"


def record_a_prompt(journal: Path) -> None:
    """Do with a prompt what an engine does, through the public API only."""
    hashes = KeyedHashes(b"k" * 32, {"another": "known-alias"})
    with_salt = hashes.tenant_salt(TENANT)
    chain = hashes.chain_hashes(TOKENS, 4, salt=with_salt)
    recorder = Recorder.open(journal, "secret", total_blocks=16, block_size=4, run_id="r")
    tenant = recorder.tenant(hashes.tenant_alias(TENANT))
    request = hashes.request_hash(REQUEST_ID)
    recorder.arrive(1, len(TOKENS), 8, tenant, request_hash=request, hashes=chain)
    recorder.admit(1, tenant)
    recorder.allocate(1, [0, 1, 2, 3], tenant)
    recorder.cache(1, [0, 1, 2, 3], chain, tenant)
    recorder.first_token(1, tenant=tenant)
    recorder.step(0, len(TOKENS), 0, 1, len(TOKENS), 0, 10, 10, 10)
    recorder.free(1, [0, 1, 2, 3], 0, FreeOutcome.TO_CACHE, tenant)
    recorder.finish(1, FinishReason.STOP, len(TOKENS), 1, len(TOKENS), 0, tenant)
    recorder.heartbeat(1, 0, 0)
    recorder.close()


def stored_bytes(store: str) -> Iterator[bytes]:
    """Return every file of the store, and every blob in it decompressed."""
    for path in sorted(Path(store).parent.glob("kvpulse.db*")):
        yield path.read_bytes()
    connection = sqlite3.connect(store)
    for (blob,) in connection.execute("SELECT data FROM chunks"):
        stretch = decode_chunk(blob)
        yield stretch.records.tobytes() + stretch.lane.tobytes()
    for blobs in connection.execute("SELECT map_data, state_data FROM snapshots"):
        for blob in filter(None, blobs):
            values, arrays = decode_frame(blob)
            yield repr(values).encode() + b"".join(a.tobytes() for a in arrays.values())
    connection.close()


def test_no_planted_word_and_no_run_of_token_ids_is_found_in_the_store(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    record_a_prompt(journal)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0

    haystack = b"\0".join(stored_bytes(store))

    needles = [word.encode(code) for word in WORDS for code in ("utf-8", "utf-16-le")]
    runs = [TOKENS[first : first + 3] for first in range(len(TOKENS) - 2)]
    needles += [struct.pack(f"<3{width}", *run) for width in "HI" for run in runs]
    assert b"secret" in haystack  # the search can find what is there
    assert b"ended" in haystack or b"finished" in haystack
    assert [needle for needle in needles if needle in haystack] == []


def test_the_search_would_find_a_run_of_token_ids(tmp_path: Path) -> None:
    packed = struct.pack("<16I", *TOKENS)

    assert struct.pack("<3I", *TOKENS[4:7]) in zstandard.decompress(zstandard.compress(packed))
