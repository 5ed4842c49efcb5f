"""Cases HO04 (what is used and what is waste), HO05 (a leak or a cache) and HO07 (whose hits)."""

import pytest

from agent.http.live_status import status_document
from agent.live_view import LiveView
from agent.metrics.exporter import exporter_registry
from tests.agent.factories_case import Case, Seen
from tests.agent.factories_stream import SECOND


def scrape(seen: Seen) -> dict[tuple[str, str], float]:
    """Return every sample of a scrape a moment after the agent's last commit, by name and label."""
    view = LiveView(0)
    view.publish(seen.engine)
    now_ns = seen.engine.last_commit_at_ns
    found = {}
    for family in exporter_registry(view, lambda: now_ns).collect():
        for sample in family.samples:
            own = [v for k, v in sample.labels.items() if k not in ("engine", "model_name")]
            found[sample.name, " ".join(own)] = sample.value
    return found


def live_sequences(folder, *, number: int, tokens: int, block_size: int, total_blocks: int) -> Case:
    case = Case(folder, total_blocks=total_blocks, block_size=block_size)
    each = -(-tokens // block_size)
    for owner in range(1, number + 1):
        case.recorder.arrive(owner, tokens, 100)
        case.recorder.admit(owner)
        case.take(owner, list(range((owner - 1) * each, owner * each)))
        case.recorder.first_token(owner)
    return case


@pytest.mark.parametrize(
    ("block_size", "total_blocks", "blocks", "slots", "waste"),
    [(16, 300, 66.7, 35.4, 46.9), (8, 600, 50.0, 35.4, 29.2)],
)
@pytest.mark.parametrize("counted_by_engine", [True, False])
def test_used_blocks_used_slots_and_waste_are_three_numbers(  # HO04
    tmp_path, block_size, total_blocks, blocks, slots, waste, counted_by_engine
):
    case = live_sequences(
        tmp_path, number=100, tokens=17, block_size=block_size, total_blocks=total_blocks
    )
    case.account(filled=1700 if counted_by_engine else None)
    case.wait_seconds(2)
    case.account(filled=1700 if counted_by_engine else None)

    seen = case.seen()
    usage = seen.reads.usage(seen.key)

    assert usage.at_least is not counted_by_engine
    assert round(100 * usage.block_ratio, 1) == blocks
    assert round(100 * usage.slot_ratio, 1) == slots
    assert round(100 * usage.waste_ratio, 1) == waste
    exported = scrape(seen)
    assert round(100 * exported["kvpulse_kv_cache_usage_ratio", ""], 1) == blocks
    found = exported.get(("kvpulse_kv_waste_ratio", ""))
    assert (round(100 * found, 1) if found else None) == (waste if counted_by_engine else None)


def test_waste_of_a_pool_that_nobody_uses_is_unknown_and_not_zero(tmp_path):
    case = Case(tmp_path)
    case.account(filled=0)
    case.wait_seconds(1)
    case.account(filled=0)

    seen = case.seen()

    assert seen.reads.usage(seen.key).waste_ratio is None
    assert ("kvpulse_kv_waste_ratio", "") not in scrape(seen)


def ten_requests_end(folder, *, release: bool) -> Seen:
    """Ten requests fill 64 blocks and end, with or without releasing them."""
    case = Case(folder, total_blocks=64)
    blocks = [list(range(64))[number::10] for number in range(10)]
    for owner, ids in enumerate(blocks, start=1):
        case.recorder.arrive(owner, 16 * len(ids), 1)
        case.recorder.admit(owner)
        case.take(owner, ids)
        case.recorder.cache(owner, ids, [block + 1 for block in ids])
    for owner, ids in enumerate(blocks, start=1):
        if release:
            case.drop(owner, ids, keep=True)
        case.finish(owner)
    for _ in range(4):
        case.wait_seconds(1)
        case.step()
        case.account(cached=64 if release else 0)
    return case.seen()


def test_blocks_that_ended_requests_hold_are_references_never_released(tmp_path):  # HO05
    seen = ten_requests_end(tmp_path, release=False)

    report = seen.reads.leak_report(seen.key)

    assert report.num_blocks == 64
    assert sorted(each.owner for each in report.owners) == list(range(1, 11))
    assert sum(each.num_blocks for each in report.owners) == 64
    assert report.sentence == (
        "references never released: 64 blocks of ended sequences 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    )
    usage = seen.reads.usage(seen.key)
    assert (usage.active_blocks, usage.cached_blocks, usage.free_blocks) == (64, 0, 0)
    assert seen.live.counters["evicted"] == 0
    (engine,) = status_document(view_of(seen), seen.engine.last_commit_at_ns)["engines"]
    assert engine["ledger"]["leak_report"] == report.sentence
    assert scrape(seen)["kvpulse_kv_leaked_blocks", ""] == 64


def test_blocks_that_nobody_holds_are_cached_and_reclaimable(tmp_path):  # HO05, control
    seen = ten_requests_end(tmp_path, release=True)

    report = seen.reads.leak_report(seen.key)

    assert (report.owners, report.num_blocks) == ((), 0)
    assert report.sentence == "nothing leaked; cached, reclaimable 64"
    assert scrape(seen)["kvpulse_kv_leaked_blocks", ""] == 0


def view_of(seen: Seen):
    view = LiveView(0)
    view.publish(seen.engine)
    return view.snapshot()


def test_what_a_preempted_request_finds_again_is_no_hit_of_a_fresh_prompt(tmp_path):  # HO07
    case = Case(tmp_path, total_blocks=1024)
    for owner in range(1, 11):
        case.recorder.arrive(owner, 1024, 10)
        case.recorder.prefix_hit(owner, 0, 1024)
        case.recorder.admit(owner)
    for owner in (1, 2, 3):
        case.recorder.preempt(owner, 4, 1, 1024, 0, 0)
        case.wait_seconds(0.5)
        case.recorder.prefix_hit(owner, 1000, 1024, resumed=True)
        case.recorder.resume(owner, 1000)
    case.account()
    case.wait_seconds(1)
    case.account()

    seen = case.seen()
    exported = scrape(seen)

    hits = exported["kvpulse_prefix_cache_hits_total", ""]
    queries = exported["kvpulse_prefix_cache_queries_total", ""]
    assert (hits, queries) == (0, 10 * 1024)
    assert exported["kvpulse_resume_tokens_found_total", ""] == 3000
    assert exported["kvpulse_preempted_tokens_lost_total", ""] == 3 * 1024
    series = seen.reads.series(
        seen.key, ("prefix_hit_tokens", "resume_hit_tokens"), 0, 2**62, max_points=10**6
    )
    assert series.values["prefix_hit_tokens"].sum() == 0
    assert series.values["resume_hit_tokens"].sum() == 3000
    rows = [seen.reads.request(seen.key, owner) for owner in range(1, 5)]
    assert [row.prefix_hit_tokens for row in rows] == [0, 0, 0, 0]
    assert [(row.tokens_lost, row.tokens_found) for row in rows] == [(1024, 1000)] * 3 + [(0, 0)]
    assert rows[0].wait_after_preempt_ns == SECOND // 2


def test_sampled_calls_to_allocate_are_a_histogram_of_samples(tmp_path):
    case = Case(tmp_path)
    case.recorder.arrive(1, 16, 1)
    for took_ns in (1_400, 1_600, None, 3_000_000):
        case.recorder.pool(64, 0, 0, 64, 0, 0, allocate_ns=took_ns)
        case.wait_seconds(1)
    case.recorder.pool(64, 0, 0, 64, 0, 0)

    seen = case.seen()

    histogram = seen.live.histograms["allocate_call"]
    assert (histogram.count, histogram.sum_ns, histogram.max_ns) == (3, 3_003_000, 3_000_000)
    exported = scrape(seen)
    name = "kvpulse_kv_allocate_call_seconds"
    assert exported[f"{name}_bucket", "2e-06"] == 2
    assert exported[f"{name}_count", ""] == 3
    summary = seen.reads.latency_summary(seen.key, "allocate_call", 0, 1 << 62)
    assert (summary.count, summary.max) == (3, 0.003)
