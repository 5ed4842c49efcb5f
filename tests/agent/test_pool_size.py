"""A pool that shrinks and grows while it runs; tenants at their ceiling; the time in the server."""

import pytest

from agent.ledger.state import decode_state, encode_state
from agent.ledger.state_frame import decode_frame, encode_frame
from agent.reads.models import MarkKind
from agent.rollups.scalars import ADDED_COLUMNS, COLUMN_INDEX, COLUMNS, COUNTERS
from kvpulse.events import RejectReason, WaitCause
from tests.agent.factories_case import Case
from tests.agent.factories_ledger import follow
from tests.agent.factories_stream import MS, SECOND, record
from tests.agent.test_cases_usage import scrape


def resized(folder) -> Case:
    """A pool of 64 whose faulty engine takes 24 blocks out of service, then gives 40 back."""
    case = Case(folder, total_blocks=64)
    case.recorder.arrive(1, 160, 10)
    case.recorder.admit(1)
    case.take(1, list(range(50, 60)))  # beyond where a pool of 40 would end
    for total in (64, 40, 40, 80):
        case.wait_seconds(1)
        case.account(total=total)
    return case


def test_a_pool_of_another_size_keeps_every_law_and_is_marked(tmp_path):
    seen = resized(tmp_path).seen()

    series = seen.reads.series(seen.key, ("total_blocks", "free_blocks"), 0, 2**62, 10**9)
    told = [int(total) for total in series.values["total_blocks"]]
    assert told == [64, 64, 40, 40, 80]
    assert [int(free) for free in series.values["free_blocks"]] == [54, 54, 30, 30, 70]
    marks = [m for m in seen.reads.marks(seen.key, 0, 2**62) if m.kind is MarkKind.POOL]
    assert [mark.text for mark in marks] == [
        "pool went from 64 to 40 blocks",
        "pool went from 40 to 80 blocks",
    ]
    (engine,) = seen.reads.engines()
    assert engine.total_blocks == 80


def test_the_block_map_says_how_many_cells_are_out_of_service(tmp_path):
    seen = resized(tmp_path).seen()
    marks = [m for m in seen.reads.marks(seen.key, 0, 2**62) if m.kind is MarkKind.POOL]

    shrunk = seen.reads.block_map(seen.key, marks[1].t_ns - 1)
    grown = seen.reads.block_map(seen.key)

    assert (shrunk.total_blocks, len(shrunk.state), shrunk.num_out_of_service) == (40, 64, 24)
    assert shrunk.blocks_of(1) == list(range(50, 60))
    assert (grown.total_blocks, len(grown.state), grown.num_out_of_service) == (80, 80, 0)


def tenants(folder) -> Case:
    case = Case(folder, total_blocks=64)
    chat, batch = case.recorder.tenant("chat"), case.recorder.tenant("batch")
    case.recorder.arrive(1, 64, 10, chat)
    case.recorder.admit(1, chat)
    case.recorder.allocate(1, [0, 1, 2, 3], chat)
    case.counts.update(dict.fromkeys(range(4), 1))
    for owner in (2, 3):
        case.recorder.arrive(owner, 64, 10, batch, retry=owner - 2)
    case.recorder.wait(2, int(WaitCause.TENANT_QUOTA), 2, 0, batch)
    case.recorder.reject(3, int(RejectReason.EXCEEDS_QUOTA), 4, 2, batch)
    for _ in range(3):
        case.wait_seconds(1)
        case.account()
    return case


def test_a_tenants_ceiling_is_seen_in_its_waits_and_rejections(tmp_path):
    seen = tenants(tmp_path).seen()

    chat, batch = seen.reads.tenants(seen.key, 0, 2**62)

    assert (chat.tenant, chat.held_blocks, chat.num_rejected, chat.num_at_quota) == (
        *("chat", 4, 0),
        0,
    )
    assert chat.block_seconds == pytest.approx(4 * 3)
    assert (batch.tenant, batch.num_requests, batch.num_rejected, batch.num_at_quota) == (
        *("batch", 2, 1),
        1,
    )
    assert (batch.wait_quota_ns, batch.wait_pool_ns) == (3 * SECOND, 0)
    exported = scrape(seen)
    assert exported["kvpulse_wait_seconds_total", "quota"] == 3
    assert exported["kvpulse_num_requests_waiting", "tenant_quota"] == 1


def test_retries_are_told_from_first_attempts(tmp_path):
    exported = scrape(tenants(tmp_path).seen())

    for name, first, retry in (("request", 2, 1), ("rejected", 0, 1)):
        metric = f"kvpulse_{name}_attempts_total"
        assert [exported[metric, attempt] for attempt in ("first", "retry")] == [first, retry]


def test_the_time_in_the_server_is_kept_apart_from_the_time_to_first_token(tmp_path):
    case = Case(tmp_path)
    case.recorder.arrive(1, 16, 4, frontend_ns=7 * MS)
    case.recorder.arrive(2, 16, 4, frontend_ns=0)
    case.recorder.arrive(3, 16, 4)
    case.recorder.admit(1)
    case.wait_seconds(1)
    case.recorder.first_token(1)
    case.account()

    seen = case.seen()

    rows = [seen.reads.request(seen.key, owner) for owner in (1, 2, 3)]
    assert [row.frontend_ns for row in rows] == [7 * MS, 0, None]
    summary = seen.reads.latency_summary(seen.key, "frontend", 0, 2**62)
    assert (summary.count, summary.max) == (2, pytest.approx(0.007))
    exported = scrape(seen)
    assert exported["kvpulse_request_frontend_seconds_count", ""] == 2
    assert exported["kvpulse_time_to_first_token_seconds_sum", ""] == pytest.approx(1.0)
    arrived = seen.reads.request_events(seen.key, 1)[0].text
    assert arrived == "arrived: 16 prompt tokens, at most 4 more; 7.0 ms in the server before"


def test_a_state_of_the_first_revision_is_resumed_from(tmp_path):
    ledger, _ = follow(record(tmp_path, 11, 150))
    core = ledger.core
    core.owners.rebase(core.blocks, core.t_ns)
    map_blob = ledger._snapshot().map_blob
    values, arrays = decode_frame(encode_state(core, {"refreshed_ns": 0}))
    older = [COLUMN_INDEX[name] for name in COLUMNS if name not in ADDED_COLUMNS]
    for name in ("columns", "host_holders", "filled_of_blocks"):
        del values[name]
    for name in ("base_requests", "requests_ended"):
        del values["tally"][name]
    for name in [name for name in arrays if name.startswith("rollup_")]:
        arrays[name] = arrays[name][older]
    arrays["counters"] = arrays["counters"][: COUNTERS.index("sequences_finished")]
    arrays["histograms"] = arrays["histograms"][:-1]
    values["histograms"] = values["histograms"][:-1]
    del arrays["first_owner"], arrays["outlived_since"]

    resumed, _ = decode_state(encode_frame(values, arrays), map_blob)

    assert resumed.blocks.active == core.blocks.active
    row, before = resumed.rollups.open_row[60], core.rollups.open_row[60]
    assert row[COLUMN_INDEX["arrived"]] == before[COLUMN_INDEX["arrived"]] > 0
    assert resumed.latencies.totals[-1].count == 0
    assert not resumed.host_holders.known or not resumed.host.active
