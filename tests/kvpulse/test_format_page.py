"""The page on the format is enough to read a journal, and a wrong number on it shows."""

import re
import zlib
from array import array
from pathlib import Path

import pytest

from kvpulse.events import (
    FORMS,
    EvictReason,
    FinishReason,
    FreeOutcome,
    HoldReason,
    Kind,
    PreemptMode,
    RejectReason,
    SequenceState,
    WaitCause,
)
from kvpulse.keyframe import Keyframe, KeyframeSequence
from kvpulse.recorder import Recorder
from tests.kvpulse.format_page import PAGE, Decoded, FormatPage
from tests.waiting import wait_until

TEXT = PAGE.read_text()
EVERY_FIELD_ROW = [
    line for line in TEXT.splitlines() if re.match(r"\| \d+ \| \d+ \| `\w+` \|", line)
]


def record_some_of_everything(recorder: Recorder) -> list[tuple[str, int, list[int]]]:
    """Record each kind; return kind, owner and payload words of what must be found."""
    tenant = recorder.tenant("acme")
    recorder.config({"a": 1})
    recorder.allocate(1, [3], tenant)
    recorder.allocate(2, [3, 4, 5], tenant)
    recorder.share(3, [7, 8], 2)
    recorder.free(4, [9, 9], 0, 2)
    recorder.copy_on_write(5, [1, 2])
    recorder.cache(6, [1, 2], [2**40 + 1, 2])
    recorder.evict([5, 6], 1, 7)
    recorder.swap_out(8, [1, 9, 2, 8])
    recorder.swap_in(9, [9, 1])
    recorder.allocate_failed(10, 5, 2, 1, 4)
    recorder.hold(11, [4], 1, 500)
    recorder.arrive(12, 100, 20, asked_max_tokens=40, priority=-1, hashes=[2**33])
    recorder.wait(13, 5, 16, 12)
    recorder.admit(14)
    recorder.reject(15, 2, 90, 80)
    recorder.prefix_hit(16, 32, 100)
    recorder.preempt(17, 18, 1, 50, 4, 3)
    recorder.resume(18, 16)
    recorder.fork(19, 18)
    recorder.first_token(20)
    recorder.finish(21, 1, 2, 3, 4, 5)
    recorder.step(2**32 + 1, 2, 3, 4, 5, 6, 2**32 + 7, 8, 9)
    recorder.pool(64, 1, 2, 61, 1, 2**63)
    recorder.heartbeat(1, 2, 3)
    low = 0xFFFF_FFFF
    return [
        ("define", 0, [int.from_bytes(b"acme", "little")]),
        ("config", 0, [int.from_bytes(part, "little") for part in (b'{"a"', b": 1}")]),
        ("allocate", 1, [3]),
        ("allocate", 2, [3, 4, 5]),
        ("share", 3, [7, 8]),
        ("free", 4, [9, 9]),
        ("copy_on_write", 5, [1, 2]),
        ("cache", 6, [1, 2, 1, 256, 2, 0]),
        ("evict", 7, [5, 6]),
        ("swap_out", 8, [1, 9, 2, 8]),
        ("swap_in", 9, [9, 1]),
        ("allocate_failed", 10, [5, 2, 1]),
        ("hold", 11, [4]),
        ("arrive", 12, [100, 20, 40, low, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]),
        ("wait", 13, [12]),
        ("admit", 14, []),
        ("reject", 15, [90, 80]),
        ("prefix_hit", 16, [100]),
        ("preempt", 17, [50, 4, 3]),
        ("resume", 18, []),
        ("fork", 19, []),
        ("first_token", 20, []),
        ("finish", 21, [2, 3, 4, 5]),
        ("step", 0, [1, 2, 3, 4, 5, 6, 7, 1, 8, 0, 9, 0]),
        ("pool", 0, [64, 1, 2, 61, 1, 0, 0, 2**31, low, low]),
        ("heartbeat", 0, [1, 0, 2, 3, 5, 0, 7, 0]),
    ]


def distinct_keyframe(*, by_block: bool) -> Keyframe:
    """A state in which no two fields have the same value, and none is 0."""
    counts = [0] * 64
    counts[3:6] = 2, 1, 1
    one = KeyframeSequence(*range(101, 107), 2**40, 2**41, *range(109, 115), 2**42, -7, 17, 18, 19)
    two = KeyframeSequence(*range(201, 207), 2**43, 2**44, *range(209, 215), 2**45, 77, 27, 28, 29)
    live = [one._replace(table=[3, 4]), two._replace(table=[3, 5, 2**32 - 1])]
    hashes = array("Q", [0] * 63 + [2**50]) if by_block else {3: 2**64 - 1, 9: 17, 11: 2**33}
    return Keyframe(counts, hashes, [9], live, [1, 7], step=2**33 + 5)


class Journal:
    """A finished stream with known content; between its two segments it could not write."""

    def __init__(self, folder: Path) -> None:
        clocks = iter([7] * 10_000)
        self.recorder = recorder = Recorder.open(
            folder,
            "engine-a",
            total_blocks=64,
            host_blocks=2,
            block_size=16,
            segment_bytes=16_384,
            snapshot=lambda: distinct_keyframe(by_block=False),
            clock=lambda: next(clocks),
            wall_clock=lambda: 5,
        )
        self.expected = record_some_of_everything(recorder)
        wait_until(lambda: recorder._reserver.ready is not None)
        recorder._pause()
        recorder.admit(1)
        recorder.allocate(1, [1, 2, 3])
        recorder.set_snapshot(lambda: distinct_keyframe(by_block=True))
        recorder.step(1, 1, 1, 1, 1, 0, 1, 1, 1)
        recorder.close()
        directory = recorder.directory
        self.first, self.second = (
            (directory / f"0000000{number}.seg").read_bytes() for number in (0, 1)
        )
        self.loss = (directory / "loss").read_bytes()
        self.not_written = [recorder.not_written().get(code, 0) for code in range(64)]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return Journal(tmp_path_factory.mktemp("journal"))


def check_page(text: str, journal: Journal) -> None:
    """Read the whole journal as `text` says and compare all of it with what went in."""
    page = FormatPage(text)
    records = page.decode_segment(journal.first)
    check_headers(page, journal, records)
    check_records(records, journal)
    check_keyframe(page, records[0], by_block=False)
    (second,) = page.decode_segment(journal.second)
    check_keyframe(page, second, by_block=True)
    check_loss_page(page, journal)


def check_headers(page: FormatPage, journal: Journal, records: list[Decoded]) -> None:
    read = {name: field.read for name, field in page.header.items()}
    first, second = journal.first, journal.second
    process = journal.recorder._reserver.process
    shape = journal.recorder._reserver.shape
    assert read["magic"](first).to_bytes(8, "little") == b"KVPULSEJ"
    expected = {
        "version": 1,
        "header_bytes": 4096,
        "ordering": 1,
        "block_size": 16,
        "segment": 1,
        "first_seq": len(records) + 3,
        "wall_ns": 5,
        "monotonic_ns": 7,
        "record_capacity": shape.record_capacity,
        "lane_capacity": shape.lane_capacity,
        "total_blocks": 64,
        "host_blocks": 2,
        "pid": process.pid,
        "pid_namespace": process.pid_namespace,
        "process_start": process.start,
        "unwritten_records": 3,
        "state": 3,
        "commit": len(page.decode_segment(second)),
    }
    assert {name: read[name](second) for name in expected} == expected
    checksum = page.header["checksum"]
    assert checksum.read(second) == zlib.crc32(second[: checksum.offset])
    emitted = list(journal.not_written)
    for record in records:
        emitted[record.fields["kind"]] += page.events(record)
    assert page.header["emitted"].counters(second) == emitted
    assert page.header["not_written"].counters(second) == journal.not_written


def check_records(records: list[Decoded], journal: Journal) -> None:
    some = records[1 : 1 + len(journal.expected)]
    assert [(r.kind, r.fields["owner"], r.words) for r in some] == journal.expected
    assert [record.fields["seq"] for record in records] == list(range(len(records)))
    assert {record.fields["ts_ns"] for record in records} == {7}
    by_kind = {record.kind: record.fields for record in some}
    assert by_kind["allocate"]["tenant"] == by_kind["define"]["tenant"] == 1
    assert (by_kind["wait"]["flags"], by_kind["wait"]["aux"]) == (16, 5)
    assert (by_kind["config"]["aux"], by_kind["define"]["flags"]) == (8, 1)
    assert by_kind["step"]["aux"] == 1


def check_keyframe(page: FormatPage, record: Decoded, *, by_block: bool) -> None:
    wanted = distinct_keyframe(by_block=by_block)
    sequences, parts = page.decode_keyframe(record.words)
    assert record.kind == "keyframe"
    prefix = b"".join(word.to_bytes(4, "little") for word in record.words[:12])
    assert page.keyframe["keyframe_version"].read(prefix) == 1
    assert page.keyframe["step"].read(prefix) == wanted.step
    assert page.keyframe["num_strings"].read(prefix) == (1 if by_block else 0)
    counts, host, hashed, hashes, dense, cached, _, entries, strings = parts.values()
    assert (counts, host, cached) == (wanted.counts, wanted.host_counts, [9])
    assert strings == ([1, 4, int.from_bytes(b"acme", "little")] if by_block else [])
    if by_block:
        assert wide(dense) == wanted.hashes.tolist()
    else:
        assert dict(zip(hashed, wide(hashes), strict=True)) == wanted.hashes
    assert entries == [3, 4, 3, 5, 2**32 - 1]
    for row, sequence in zip(sequences, wanted.sequences, strict=True):
        values = sequence._asdict()
        values["table_entries"] = len(values.pop("table"))
        values["priority"] %= 2**32
        assert row == values


def wide(words: list[int]) -> list[int]:
    return [low | high << 32 for low, high in zip(words[::2], words[1::2], strict=True)]


def check_loss_page(page: FormatPage, journal: Journal) -> None:
    process = journal.recorder._reserver.process
    read = {name: field.read(journal.loss) for name, field in page.loss.items()}
    assert read["loss_magic"].to_bytes(8, "little") == b"KVPULSEL"
    assert (read["loss_version"], read["page_bytes"]) == (1, 4096)
    assert (read["loss_pid"], read["loss_pid_namespace"], read["loss_process_start"]) == process
    assert (read["loss_state"], read["loss_records"]) == (3, 3)
    emitted = journal.recorder.emitted()
    totals = [emitted.get(code, 0) for code in range(64)]
    assert page.loss["final_emitted"].counters(journal.loss) == totals
    assert page.loss["final_not_written"].counters(journal.loss) == journal.not_written


def test_a_parser_built_from_the_page_reads_a_whole_journal(journal):
    check_page(TEXT, journal)


@pytest.mark.parametrize("line", EVERY_FIELD_ROW, ids=lambda line: line.split("`")[1])
@pytest.mark.parametrize("by", [-4, 1, 8])
def test_a_wrong_offset_on_the_page_is_noticed(journal, line, by):
    offset = int(line.split()[1])
    wrong = line.replace(f"| {offset} |", f"| {max(0, offset + by) or 2} |", 1)

    with pytest.raises((AssertionError, KeyError, ValueError, OverflowError)):
        check_page(TEXT.replace(line, wrong, 1), journal)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("| lane of records | 4096 |", "| lane of records | 4128 |"),
        ("| 4096 + 32 x", "| 4096 + 28 x"),
        ("| `cache` | `hashed_ids` |", "| `cache` | `pairs` |"),
        ("| `share` | `ids` | n |", "| `share` | `ids` | 1 |"),
        ("| 32 | `step` |", "| 31 | `step` |"),
        ("| ids of cached blocks | `num_cached` |", "| ids of cached blocks | `num_hashed` |"),
    ],
)
def test_another_wrong_number_on_the_page_is_noticed(journal, right, wrong):
    assert right in TEXT
    with pytest.raises((AssertionError, KeyError, ValueError, IndexError)):
        check_page(TEXT.replace(right, wrong), journal)


def test_the_page_names_every_kind_as_the_code_does():
    page = FormatPage(TEXT)

    assert {code: row.name for code, row in page.kinds.items()} == {
        int(kind): kind.name.lower() for kind in Kind
    }
    for kind in Kind:
        row = page.kinds[kind]
        lane = "keyframe" if kind is Kind.KEYFRAME else FORMS[kind].lane
        assert (row.lane, row.events) == (lane, "n" if FORMS[kind].counts_blocks else "1")


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("outcome of `free", FreeOutcome),
        ("wait cause", WaitCause),
        ("reject reason", RejectReason),
        ("finish reason", FinishReason),
        ("preempt mode", PreemptMode),
        ("eviction reason", EvictReason),
        ("hold reason", HoldReason),
        ("sequence state", SequenceState),
    ],
)
def test_the_page_names_every_code_as_the_code_does(name, codes):
    rows = dict(FormatPage(TEXT).tables["Codes"][1:])
    named = re.findall(r"(\d+) ([a-z ]+)", rows[name])

    assert {int(code): words.strip() for code, words in named} == {
        int(code): code.name.lower().replace("_", " ") for code in codes
    }
