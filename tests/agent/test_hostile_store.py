"""Blobs of a store that others may write: bounded, checked before they are used, never run."""

import json
import zlib
from pathlib import Path
from struct import Struct

import pytest
import zstandard

from agent.block_map import MOST_BLOCKS, MapReplay
from agent.chunks import chunk as chunk_module
from agent.chunks.chunk import MAX_PAYLOAD_BYTES, decode_chunk
from agent.errors import AgentError, ChunkError, StateError
from agent.ledger.state_frame import decode_frame

CHUNK_HEAD = Struct("<BBIII")
FRAME_HEAD = Struct("<BII")


def chunk_of(
    payload: bytes, *, version: int = 1, flags: int = 0, claimed: int | None = None
) -> bytes:
    packed = zstandard.ZstdCompressor().compress(payload)
    size = len(payload) if claimed is None else claimed
    head = CHUNK_HEAD.pack(version, flags, zlib.crc32(payload), size, len(packed))
    return head + packed + zstandard.ZstdCompressor().compress(b"")


def frame_of(payload: bytes) -> bytes:
    packed = zstandard.ZstdCompressor().compress(payload)
    return FRAME_HEAD.pack(1, zlib.crc32(payload), len(payload)) + packed


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = chunk_of(bytes(MAX_PAYLOAD_BYTES + 1))
    assert len(blob) < 20_000
    monkeypatch.setattr(chunk_module, "_decompress", lambda *_: pytest.fail("unpacked"))

    with pytest.raises(ChunkError, match="more than"):
        decode_chunk(blob)


def test_a_bomb_that_claims_to_be_small_is_not_unpacked_further_than_it_claims() -> None:
    with pytest.raises(ChunkError, match="does not fit"):
        decode_chunk(chunk_of(bytes(1 << 24), claimed=100))


@pytest.mark.parametrize(("version", "flags"), [(0, 0), (2, 0), (255, 0), (1, 2), (1, 255)])
def test_an_unknown_version_is_named_before_anything_else(version: int, flags: int) -> None:
    with pytest.raises(ChunkError, match="this kvpulse reads"):
        decode_chunk(chunk_of(b"", version=version, flags=flags))


@pytest.mark.parametrize("flags", [0, 1])
def test_counts_that_claim_more_than_there_is_allocate_nothing(flags: int) -> None:
    for numbers in ((1 << 32) - 1, 0, 0), (1, (1 << 32) - 1, 0), (3, 0, 9):
        payload = Struct("<QQIII").pack(0, 0, *numbers) + bytes(200)
        with pytest.raises(ChunkError):
            decode_chunk(chunk_of(payload, flags=flags))


def test_a_state_nested_without_end_is_an_error_like_any_other() -> None:
    head = b"[" * 200_000
    with pytest.raises(StateError):
        decode_frame(frame_of(len(head).to_bytes(4, "little") + head))


def test_a_state_may_hold_plain_numbers_only() -> None:
    for dtype, shape in (("|O", [1]), ("|V8", [1]), ("<f8", [1 << 40]), ("<f8", ["x"])):
        head = json.dumps({"values": {}, "arrays": [["a", dtype, shape]]}).encode()
        payload = len(head).to_bytes(4, "little") + head + bytes(64)
        with pytest.raises(StateError):
            decode_frame(frame_of(payload))


def test_a_pool_beyond_belief_is_not_made() -> None:
    replay = MapReplay.__new__(MapReplay)
    with pytest.raises(ChunkError, match="a pool of"):
        replay._resize(MOST_BLOCKS + 1)


def test_random_damage_is_always_an_error_of_ours() -> None:
    payload = Struct("<QQIII").pack(5, 0, 0, 0, 0)
    good = chunk_of(payload)
    for place in range(len(good)):
        for flip in (1, 0x80, 0xFF):
            bad = bytearray(good)
            bad[place] ^= flip
            try:
                decode_chunk(bytes(bad))
            except AgentError:
                continue


def test_nothing_here_reads_pickles() -> None:
    folder = Path(__file__).parents[2] / "agent"
    for path in folder.rglob("*.py"):
        text = path.read_text()
        for name in ("pickle", "marshal", "shelve", "dill"):
            assert f"import {name}" not in text, path
        assert "allow_pickle=True" not in text, path
