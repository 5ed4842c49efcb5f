"""Forks, swaps, preemptions and windows as an engine states them, as the agent tells them."""

import pytest

from agent.reads.models import RequestState
from kvpulse.events import FinishReason, FreeOutcome, PreemptMode, WaitCause, block_weight
from tests.agent.factories_case import Case
from tests.agent.factories_stream import SECOND
from tests.agent.test_cases_usage import scrape

TO_FREE = int(FreeOutcome.TO_FREE)


def four_samples(folder) -> Case:
    """Block size 4, a prompt of 10 tokens, n = 4: three blocks, held by four sequences."""
    case = Case(folder, total_blocks=32, block_size=4)
    case.recorder.arrive(1, 10, 8)
    case.recorder.admit(1)
    case.take(1, [0, 1, 2])
    case.wait_seconds(0.25)
    case.recorder.first_token(1)
    for child in (2, 3, 4):
        case.recorder.fork(child, 1)
        case.share(child, [0, 1, 2])
    case.account()
    case.wait_seconds(1)
    case.account()
    return case


def write_first_tokens(case: Case) -> None:
    """The first three writers copy the shared last block; the last holder writes in place."""
    for owner, target in ((1, 3), (2, 4), (3, 5)):
        case.take(owner, [target])
        case.recorder.copy_on_write(owner, [2, target])
        case.drop(owner, [2])
    case.account()
    case.wait_seconds(1)
    case.account()


def test_samples_share_blocks_until_they_write(tmp_path):
    case = four_samples(tmp_path)
    seen = case.seen()

    usage = seen.reads.usage(seen.key)
    assert (usage.active_blocks, usage.logical_blocks, usage.shared_blocks) == (3, 12, 9)
    rows = [seen.reads.request(seen.key, owner) for owner in (1, 2, 3, 4)]
    assert [row.parent for row in rows] == [0, 1, 1, 1]
    assert [(row.logical_blocks, row.shared_within, row.shared_across) for row in rows] == [
        (3, 3, 0)
    ] * 4

    write_first_tokens(case)
    seen = case.seen()

    usage = seen.reads.usage(seen.key)
    assert (usage.active_blocks, usage.logical_blocks) == (6, 12)
    exported = scrape(seen)
    assert exported["kvpulse_kv_copied_blocks_total", ""] == 3
    assert exported["kvpulse_forks_total", ""] == 3
    assert exported["kvpulse_kv_shared_blocks", ""] == 6


def test_a_forked_request_arrives_once_and_ends_once(tmp_path):
    case = four_samples(tmp_path)
    for owner in (2, 1, 4):
        case.drop(owner, [0, 1, 2])
        case.finish(owner, prompt=10, output=8)
    case.wait_seconds(1)
    case.account()

    counters = case.seen().live.counters
    assert [counters[n] for n in ("arrived", "sequences_finished", "finished")] == [1, 3, 0]

    case.drop(3, [0, 1, 2])
    case.recorder.finish(3, int(FinishReason.LENGTH), 10, 8, 18, 0)
    case.account()
    seen = case.seen()
    live = seen.live

    (tenant,) = seen.reads.tenants(seen.key, 0, 2**62)
    assert (tenant.num_requests, tenant.num_sequences) == (1, 4)
    assert (tenant.prompt_tokens, tenant.output_tokens) == (10, 32)
    assert [live.counters[n] for n in ("sequences_finished", "finished")] == [4, 1]
    assert live.labelled["finished"] == {"length": 1}
    assert live.labelled["tenant_tokens"] == {"none": 10 + 4 * 8}  # its prompt was computed once
    assert (live.histograms["ttft"].count, live.histograms["ttft"].sum_ns) == (1, SECOND // 4)
    assert (live.histograms["e2e"].count, live.histograms["e2e"].sum_ns) == (1, 2.25 * SECOND)


def test_what_sharing_keeps_alive_is_counted_from_when_the_first_holder_lets_go(tmp_path):
    case = four_samples(tmp_path)
    case.drop(1, [0, 1, 2])
    case.finish(1, prompt=10)
    case.wait_seconds(2)
    case.account()

    seen = case.seen()
    assert scrape(seen)["kvpulse_kv_outlived_block_seconds_total", ""] == 3 * 2

    for owner in (2, 3, 4):
        case.drop(owner, [0, 1, 2])
    case.wait_seconds(5)
    case.account()
    seen = case.seen()

    assert seen.live.counters["outlived_block_ns"] == 3 * 2 * SECOND
    assert scrape(seen)["kvpulse_kv_outlived_block_seconds_total", ""] == 3 * 2


class Swapped(Case):
    """Two sequences; the second is swapped out for the first."""

    def __init__(self, folder) -> None:
        super().__init__(folder, total_blocks=8, host_blocks=6)
        self.host: list[int] = []
        for owner, ids in ((1, [0, 1, 2, 3]), (2, [4, 5, 6])):
            self.recorder.arrive(owner, 40, 20, tier=owner - 1, priority=-owner)
            self.recorder.admit(owner)
            self.take(owner, ids)

    def host_account(self) -> None:
        self.account()
        n = len(self.host)
        checksum = sum(map(block_weight, self.host)) % 2**64
        self.recorder.pool(6, n, 0, 6 - n, n, checksum, host=True)

    def swap_out(self) -> None:
        self.host = [0, 1, 2]
        self.recorder.swap_out(2, [4, 0, 5, 1, 6, 2])
        self.recorder.allocate(2, self.host, host=True)
        self.drop(2, [6, 5, 4])
        self.recorder.preempt(2, 1, int(PreemptMode.SWAP), 0, 3, 0)
        self.recorder.wait(2, int(WaitCause.POOL), 8)
        self.wait_seconds(1)
        self.host_account()

    def swap_in(self) -> None:
        self.recorder.swap_in(2, [0, 5, 1, 6, 2, 7])
        self.take(2, [5, 6, 7])
        self.recorder.free(2, [2, 1, 0], 0, TO_FREE, host=True)
        self.host = []
        self.recorder.resume(2, 40)
        self.wait_seconds(1)
        self.host_account()


def test_a_swapped_sequence_waits_with_its_blocks_in_host_memory(tmp_path):
    case = Swapped(tmp_path)
    case.swap_out()
    seen = case.seen()

    row = seen.reads.request(seen.key, 2)
    assert (row.state, row.host_blocks, row.logical_blocks) == (RequestState.SWAPPED, 3, 0)
    assert (row.preempted_by, row.preemptions, row.swaps, row.tokens_lost) == ([1], 1, 1, 0)
    assert (row.wait_ns, row.wait_after_preempt_ns) == ({}, SECOND)
    (engine,) = seen.reads.engines()
    assert (engine.swapped, engine.host_active_blocks, engine.host_blocks) == (1, 3, 6)
    exported = scrape(seen)
    assert exported["kvpulse_num_requests_swapped", ""] == 1
    assert [exported["kvpulse_kv_host_blocks", state] for state in ("active", "free")] == [3, 3]
    assert exported["kvpulse_preemptions_by_mode_total", "swap"] == 1

    case.swap_in()
    seen = case.seen()

    row = seen.reads.request(seen.key, 2)
    assert (row.state, row.host_blocks, row.logical_blocks) == (RequestState.RUNNING, 0, 3)
    assert (row.priority, row.tier) == (-2, 1)
    assert row.tokens_found == 0  # nothing was lost
    exported = scrape(seen)
    moved = [exported["kvpulse_kv_swapped_blocks_total", way] for way in ("out", "in")]
    assert moved == [3, 3]
    assert exported["kvpulse_num_requests_swapped", ""] == 0
    assert exported["kvpulse_kv_host_leaked_blocks", ""] == 0


def test_host_blocks_that_a_sequence_leaves_behind_at_its_end_are_told(tmp_path):
    case = Swapped(tmp_path)
    case.swap_out()
    case.recorder.finish(2, int(FinishReason.CANCELLED), 40, 3, 43, 0)
    case.wait_seconds(1)
    case.host_account()

    assert scrape(case.seen())["kvpulse_kv_host_leaked_blocks", ""] == 3


def test_an_agent_that_restarts_still_knows_who_holds_host_blocks(tmp_path):
    case = Swapped(tmp_path)
    case.swap_out()
    case.seen()  # stored with a snapshot
    case.wait_seconds(1)
    case.host_account()

    seen = case.seen()

    assert seen.live.host_unreleased == {}
    assert seen.reads.request(seen.key, 2).host_blocks == 3


def test_a_preemption_tells_who_for_whom_and_what_was_lost_kept_and_found(tmp_path):
    case = Swapped(tmp_path)
    case.recorder.cache(2, [4, 5], [77, 78])
    case.drop(2, [6])
    case.drop(2, [5, 4], keep=True)
    case.recorder.preempt(2, 1, int(PreemptMode.RECOMPUTE), 43, 3, 2)
    case.wait_seconds(2)
    case.recorder.resume(2, 32)
    case.share(2, [4, 5])
    case.account()

    seen = case.seen()
    row = seen.reads.request(seen.key, 2)

    assert (row.preempted_by, row.swaps) == ([1], 0)
    assert (row.tokens_lost, row.tokens_found, row.blocks_kept) == (43, 32, 2)
    exported = scrape(seen)
    assert exported["kvpulse_preemptions_by_mode_total", "recompute"] == 1
    kept, gone = (exported["kvpulse_preempted_blocks_total", name] for name in ("cached", "gone"))
    assert (kept, gone) == (2, 1)
    texts = [event.text for event in seen.reads.request_events(seen.key, 2)]
    assert (
        "preempted (recompute) for sequence 1: 43 tokens lost, 3 blocks freed, 2 of them kept as"
        " cached" in texts
    )


def test_a_block_that_slid_out_of_a_window_is_no_longer_the_sequences(tmp_path):
    case = Case(tmp_path, total_blocks=16)
    case.recorder.arrive(1, 64, 64)
    case.recorder.admit(1)
    case.take(1, [3, 7, 1, 9])
    case.wait_seconds(1)
    case.drop(1, [3, 7])
    case.wait_seconds(1)
    case.account()

    seen = case.seen()
    row = seen.reads.request(seen.key, 1)

    assert (row.logical_blocks, row.peak_blocks) == (2, 4)
    assert row.block_seconds == pytest.approx(4 + 2)
    assert seen.reads.block_map(seen.key).blocks_of(1) == [1, 9]
