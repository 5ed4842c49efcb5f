"""Every kind goes in by its typed method and comes out with the values that went in."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpulse.events import (
    HOST_TIER,
    NOT_MEASURED,
    ArriveWord,
    EvictReason,
    FinishReason,
    FreeOutcome,
    HoldReason,
    Kind,
    PreemptMode,
    RejectReason,
    StepWord,
    WaitCause,
    WaitFlag,
)
from kvpulse.recorder import Recorder
from tests.kvpulse.factories_journal import batches, of_kind, open_recorder

U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
OWNER = st.integers(1, 2**32 - 2)
IDS = st.lists(U32, min_size=1, max_size=70)
PAIRS = st.lists(st.tuples(U32, U32), min_size=1, max_size=9).map(
    lambda p: [x for y in p for x in y]
)


def written(recorder: Recorder, kind: Kind) -> tuple[dict[str, int], list[int]]:
    """Close, read back, and return the only record of `kind`: its fields and its words."""
    recorder.close()
    ((record, words),) = of_kind(batches(recorder.directory), kind)
    fields = dict(zip(record.dtype.names, record.item(), strict=True))
    return fields, words


def matches(fields: dict[str, int], **expected: int) -> bool:
    return {name: fields[name] for name in expected} == expected


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@settings(max_examples=25, deadline=None)
@given(owner=OWNER, ids=IDS, count=U32, tenant=U16, host=st.booleans())
def test_block_ids_come_back_with_owner_count_and_tier(journal, owner, ids, count, tenant, host):
    tier = HOST_TIER if host else 0

    recorder = open_recorder(journal)
    recorder.allocate(owner, ids, tenant, host)
    recorder.share(owner, ids, count, tenant, host)
    recorder.free(owner, ids, count, FreeOutcome.TO_CACHE, tenant, host)
    recorder.evict(ids, EvictReason.CLEARED, owner, tenant)
    recorder.hold(owner, ids, HoldReason.PINNED, count, tenant)
    recorder.close()

    read = batches(recorder.directory)
    expected = {
        Kind.ALLOCATE: (tier, 1),
        Kind.SHARE: (tier, count),
        Kind.FREE: (tier | FreeOutcome.TO_CACHE, count),
        Kind.EVICT: (0, EvictReason.CLEARED),
        Kind.HOLD: (HoldReason.PINNED, count),
    }
    for kind, (flags, aux) in expected.items():
        ((record, words),) = of_kind(read, kind)
        assert words == ids
        assert record.item()[3:6] == (flags, tenant, owner)
        assert record["aux"] == aux
        assert record["n"] == len(ids)


@settings(max_examples=15, deadline=None)
@given(owner=OWNER, pairs=PAIRS, tenant=U16)
def test_pairs_come_back_in_order(journal, owner, pairs, tenant):
    recorder = open_recorder(journal)
    recorder.copy_on_write(owner, pairs, tenant)
    recorder.swap_out(owner, pairs, tenant)
    recorder.swap_in(owner, pairs, tenant)
    recorder.close()

    read = batches(recorder.directory)
    for kind in (Kind.COPY_ON_WRITE, Kind.SWAP_OUT, Kind.SWAP_IN):
        ((record, words),) = of_kind(read, kind)
        assert words == pairs
        assert record["n"] == len(pairs) // 2


@settings(max_examples=15, deadline=None)
@given(owner=OWNER, named=st.dictionaries(U32, U64, min_size=1, max_size=40))
def test_content_hashes_come_back_in_64_bits(journal, owner, named):
    recorder = open_recorder(journal)
    recorder.cache(owner, list(named), list(named.values()))

    fields, words = written(recorder, Kind.CACHE)

    n = len(named)
    assert fields["n"] == n
    assert words[:n] == list(named)
    assert [low | high << 32 for low, high in zip(words[n::2], words[n + 1 :: 2], strict=True)] == (
        list(named.values())
    )


@settings(max_examples=25, deadline=None)
@given(
    owner=OWNER,
    numbers=st.tuples(U32, U32, U32, U32, U32),
    priority=st.integers(-(2**31), 2**31 - 1),
    wide=st.tuples(U64, U64),
    hashes=st.lists(U64, max_size=20),
)
def test_an_arrival_keeps_every_field(journal, owner, numbers, priority, wide, hashes):
    prompt, most, asked, parent, retry = numbers
    recorder = open_recorder(journal)
    recorder.arrive(
        owner,
        prompt,
        most,
        9,
        asked_max_tokens=asked,
        priority=priority,
        tier=2,
        deadline_ns=wide[0],
        parent=parent,
        retry=retry,
        request_hash=wide[1],
        hashes=hashes,
    )

    fields, words = written(recorder, Kind.ARRIVE)

    assert matches(fields, owner=owner, tenant=9, n=12 + 2 * len(hashes))
    assert words[:3] == [prompt, most, asked]
    assert words[ArriveWord.PRIORITY] == priority % 2**32
    assert words[ArriveWord.TIER : ArriveWord.DEADLINE_LOW] == [2, parent, retry]
    assert words[7] | words[8] << 32 == wide[0]
    assert words[9] | words[10] << 32 == wide[1]
    assert words[ArriveWord.NUM_HASHES] == len(hashes)
    assert [a | b << 32 for a, b in zip(words[12::2], words[13::2], strict=True)] == hashes


def test_an_arrival_without_asked_limit_says_not_measured(record):
    recorder = record()
    recorder.arrive(1, 5, 6)

    _, words = written(recorder, Kind.ARRIVE)

    assert words[ArriveWord.ASKED_MAX_TOKENS] == NOT_MEASURED


@pytest.mark.parametrize(
    ("frontend_ns", "kept"),
    [
        (None, 0),
        (0, 1),
        (999, 1),
        (2_345_678, 2346),
        (-5, 1),
        ((2**32 - 3) * 1000, 2**32 - 2),
        (2**62, 2**32 - 1),
    ],
)
def test_an_arrival_keeps_how_long_the_front_end_took(record, frontend_ns, kept):
    recorder = record()
    recorder.arrive(1, 5, 6, frontend_ns=frontend_ns)

    fields, words = written(recorder, Kind.ARRIVE)

    assert matches(fields, owner=1, aux=kept, n=12)
    assert words[:2] == [5, 6]


def test_waiting_names_cause_flags_and_blocker(record):
    recorder = record()
    recorder.wait(4, WaitCause.POOL_BEHIND, WaitFlag.POOL_BEHIND | WaitFlag.BATCH_SLOTS, 3, 2)

    fields, words = written(recorder, Kind.WAIT)

    assert matches(fields, owner=4, tenant=2, aux=5, flags=20, n=1, first=3)
    assert words == [3]


def test_waiting_for_nobody_has_no_blocker_word(record):
    recorder = record()
    recorder.wait(4, WaitCause.TOKEN_BUDGET, WaitFlag.TOKEN_BUDGET)

    fields, words = written(recorder, Kind.WAIT)

    assert fields["n"] == 0
    assert words == []


@pytest.mark.parametrize(
    ("kind", "call", "expected", "words"),
    [
        (Kind.ADMIT, ("admit", 5, 3), {"owner": 5, "tenant": 3, "n": 0}, []),
        (Kind.RESUME, ("resume", 5, 640), {"owner": 5, "aux": 640}, []),
        (Kind.FORK, ("fork", 6, 5), {"owner": 6, "aux": 5}, []),
        (Kind.FIRST_TOKEN, ("first_token", 5), {"owner": 5, "flags": 0}, []),
        (Kind.FIRST_TOKEN, ("first_token", 5, True), {"owner": 5, "flags": 1}, []),
        (Kind.PREFIX_HIT, ("prefix_hit", 5, 32, 100), {"aux": 32, "flags": 0}, [100]),
        (Kind.PREFIX_HIT, ("prefix_hit", 5, 0, 8, True), {"aux": 0, "flags": 1}, [8]),
        (
            Kind.ALLOCATE_FAILED,
            ("allocate_failed", 5, 9, 2, 3, WaitCause.POOL),
            {"owner": 5, "aux": 4},
            [9, 2, 3],
        ),
        (
            Kind.REJECT,
            ("reject", 5, RejectReason.EXCEEDS_POOL, 900, 800),
            {"owner": 5, "aux": 2},
            [900, 800],
        ),
        (
            Kind.PREEMPT,
            ("preempt", 5, 6, PreemptMode.RECOMPUTE, 70, 5, 4),
            {"owner": 5, "aux": 6, "flags": 1},
            [70, 5, 4],
        ),
        (
            Kind.FINISH,
            ("finish", 5, FinishReason.LENGTH, 10, 20, 35, 5),
            {"owner": 5, "aux": 2},
            [10, 20, 35, 5],
        ),
    ],
)
def test_a_request_kind_comes_back_as_it_went_in(record, kind, call, expected, words):
    recorder = record()
    getattr(recorder, call[0])(*call[1:])

    fields, payload = written(recorder, kind)

    assert matches(fields, **expected)
    assert payload == words


def test_a_step_keeps_its_number_and_durations_beyond_32_bits(record):
    recorder = record()
    recorder.step(2**32 + 9, 100, 7, 8, 900, 3, 5_000_000_000, 6_000_000_000, 7_000_000_000)

    fields, words = written(recorder, Kind.STEP)

    assert fields["aux"] == 9
    assert words[: StepWord.SCHEDULE_LOW] == [1, 100, 7, 8, 900, 3]
    assert [words[i] | words[i + 1] << 32 for i in (6, 8, 10)] == [5 * 10**9, 6 * 10**9, 7 * 10**9]


def test_a_pool_account_keeps_its_checksum_and_says_what_was_not_measured(record):
    recorder = record()
    recorder.pool(64, 3, 1, 60, 2**33, 2**64 - 2, filled_slots=None, largest_free_run=40, host=True)

    fields, words = written(recorder, Kind.POOL)

    assert fields["flags"] == HOST_TIER
    assert words == [64, 3, 1, 60, 0, 2, 2**32 - 2, 2**32 - 1, NOT_MEASURED, 40]


@pytest.mark.parametrize(
    ("took_ns", "aux"),
    [(None, 0), (0, 1), (1_500, 1_501), (2**32 - 2, 2**32 - 1), (2**40, 2**32 - 1)],
)
def test_a_pool_account_carries_how_long_one_call_to_allocate_took(record, took_ns, aux):
    recorder = record()
    recorder.pool(64, 3, 1, 60, 3, 5, allocate_ns=took_ns)

    assert written(recorder, Kind.POOL)[0]["aux"] == aux


def test_a_heartbeat_carries_both_clocks(record):
    recorder = record(clock=lambda: 77, wall_clock=lambda: 2**40)
    recorder.heartbeat(2**32 + 1, 12, 5)

    _, words = written(recorder, Kind.HEARTBEAT)

    assert words == [1, 1, 12, 5, 0, 256, 77, 0]


def test_a_config_comes_back_as_json(record):
    fingerprint = {"engine": "ours", "total_blocks": 64, "ratio": 0.5, "name": "é", "none": None}
    recorder = record()
    recorder.config(fingerprint)

    fields, words = written(recorder, Kind.CONFIG)

    text = b"".join(word.to_bytes(4, "little") for word in words)[: fields["aux"]]
    assert json.loads(text) == fingerprint
    assert text.isascii()


def test_a_tenant_is_defined_once_and_cleaned(record):
    recorder = record()
    first = recorder.tenant("acme\n<b>\x7fé" + "x" * 200)
    again = recorder.tenant("acme\n<b>\x7fé" + "x" * 200)
    other = recorder.tenant("beta")
    recorder.close()

    defined = of_kind(batches(recorder.directory), Kind.DEFINE)
    texts = [b"".join(w.to_bytes(4, "little") for w in words)[: r["aux"]] for r, words in defined]
    assert first == again != other
    assert [int(r["tenant"]) for r, _ in defined] == [first, other]
    assert texts[0] == b"acme?<b>??" + b"x" * 118
    assert texts[1] == b"beta"
    assert recorder.tenant("") == 0


def test_every_kind_has_a_test_above():
    source = Path(__file__).read_text()

    assert [kind.name for kind in Kind if f"Kind.{kind.name}" not in source] == ["KEYFRAME"]
