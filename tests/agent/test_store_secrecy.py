"""Nothing of a prompt reaches the store: no word of it, no run of its token ids."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from sqlalchemy import create_engine, text

from agent.chunks.chunk import decode_chunk
from agent.ledger.state_frame import decode_frame
from kvpulse.command import main as kvpulse
from kvpulse.events import FinishReason, FreeOutcome
from kvpulse.identity import KeyedHashes
from kvpulse.recorder import Recorder
from tests.agent.factories_store import empty_store
from tests.agent.stored_bytes import store_bytes
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

KEY = bytes(range(100, 132))
WORDS = ("Persephone", "dreizehnhundert", "пароль")
TOKENS = [40_001, 30_777, 50_123, 12_345, 61_000, 44_444, 23_456, 55_555] * 2
REQUEST_ID = "chatcmpl-Persephone-77"
TENANT = "Persephone Holdings"


def record_a_prompt(journal: Path) -> None:
    """Do with a prompt what an engine does, through the public API only."""
    hashes = KeyedHashes(KEY, {"another": "known-alias"})
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


def columns_of_chunks(store: str) -> Iterator[bytes]:
    """Return every chunk's records as an engine wrote them, not as chunks lay them out."""
    engine = create_engine(store if "://" in store else f"sqlite:///{store}")
    with engine.connect() as connection:
        for (blob,) in connection.execute(text("SELECT data FROM chunks")):
            stretch = decode_chunk(bytes(blob))
            yield stretch.records.tobytes() + stretch.lane.tobytes()
        for blobs in connection.execute(text("SELECT map_data, state_data FROM snapshots")):
            for blob in filter(None, blobs):
                values, arrays = decode_frame(bytes(blob))
                yield repr(values).encode() + b"".join(a.tobytes() for a in arrays.values())
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_store(tmp_path)
    return str(request.getfixturevalue("postgres_url"))


def test_no_planted_word_and_no_run_of_token_ids_is_found_in_the_store(
    tmp_path: Path, store: str
) -> None:
    journal = tmp_path / "journal"
    record_a_prompt(journal)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0

    haystack = b"\0".join([*store_bytes(store), *columns_of_chunks(store)])

    planted = (*WORDS, REQUEST_ID, TENANT, "another")
    needles = [word.encode(code) for word in planted for code in ("utf-8", "utf-16-le")]
    runs = [TOKENS[first : first + 3] for first in range(len(TOKENS) - 2)]
    needles += [struct.pack(f"<3{width}", *run) for width in "HI" for run in runs]
    needles += [KEY, KEY.hex().encode(), KeyedHashes(KEY).tenant_salt(TENANT)]
    assert b"secret" in haystack  # the search can find what is there
    assert b"ended" in haystack or b"finished" in haystack
    assert KeyedHashes(KEY).tenant_alias(TENANT).encode() in haystack
    assert struct.pack("<Q", KeyedHashes(KEY).request_hash(REQUEST_ID)) in haystack
    assert [needle for needle in needles if needle in haystack] == []


def test_the_search_would_find_a_run_of_token_ids(tmp_path: Path) -> None:
    packed = struct.pack("<16I", *TOKENS)

    assert struct.pack("<3I", *TOKENS[4:7]) in zstandard.decompress(zstandard.compress(packed))
