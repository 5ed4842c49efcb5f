"""Rules of triage on facts: the verdict, what it rests on, and what must not be said."""

import pytest

from agent.head_of_line import HeadOfLine
from agent.reads.models import Leak
from agent.triage.facts import (
    BookFacts,
    BrokenLaw,
    LastingFacts,
    PoolFacts,
    QueueFacts,
    Resize,
    StepFacts,
    TenantShare,
    TrafficFacts,
)
from agent.triage.judge import judge
from agent.triage.verdicts import Action, Confidence, Verdict
from kvpulse.events import UNKNOWN_OWNER
from tests.agent.factories_facts import END, NS, facts, lasting, latency

FULL = PoolFacts(1_000, 1_000, active=995, cached=0, free=5, available_ratio=0.01)
SHORT_OF_BLOCKS = {"pool": 3_000.0, "pool_behind": 600.0}
LEAKS = tuple(Leak(block, 7, END - 30 * NS, None) for block in (3, 4))


def test_a_well_engine_is_healthy_and_nothing_is_to_be_done():
    found = judge(facts())

    assert found.verdict is Verdict.HEALTHY
    assert found.headline.action is Action.NONE
    assert found.contributing == ()


def test_an_idle_engine_is_healthy():
    idle = QueueFacts(waiting=0, running=0, live=0, max_batch=48)
    steps = StepFacts(0, 0.0, 0, 0, 0, 0)

    assert judge(facts(queue=idle, steps=steps)).verdict is Verdict.HEALTHY


def test_t1_a_queue_that_nobody_is_let_in_from_though_blocks_are_free_is_a_stall():
    queue = QueueFacts(
        waiting=6,
        running=0,
        live=6,
        max_batch=48,
        stuck_seconds=40.0,
        stuck_by_cause={"engine_busy": 240.0},
        least_needed=4,
    )
    pool = PoolFacts(800, 800, active=0, cached=0, free=800, available_ratio=1.0)
    steps = StepFacts(0, 0.0, 0, 0, 0, 0, since_step_seconds=60.0)

    found = judge(facts(queue=queue, pool=pool, steps=steps, waits={"engine_busy": 360.0}))

    assert found.verdict is Verdict.STALLED
    assert found.headline.action is Action.RESTART
    assert "nothing moves though 800 blocks are free" in found.headline.summary


def test_an_engine_that_hangs_in_a_step_is_stalled_though_its_pool_is_full():
    queue = QueueFacts(waiting=6, running=20, live=26, max_batch=48, least_needed=40)
    steps = StepFacts(600, 50.0, 20_000, 6_000, 0, 0, since_step_seconds=12.0)

    found = judge(facts(queue=queue, pool=FULL, steps=steps))

    assert found.verdict is Verdict.STALLED
    assert "no step for 12 s" in found.headline.summary


def test_the_first_step_of_a_young_engine_may_take_longer():
    queue = QueueFacts(waiting=2, running=1, live=3, max_batch=48)
    steps = StepFacts(0, 0.0, 0, 0, 0, 0, since_step_seconds=40.0)
    young = LastingFacts(600.0, 45.0, 3, {}, computed_tokens=0, recomputed_tokens=0)

    assert judge(facts(queue=queue, steps=steps, lasting=young)).verdict is Verdict.HEALTHY


def test_a_queue_that_waits_for_blocks_is_no_stall():
    queue = QueueFacts(
        waiting=6,
        running=3,
        live=9,
        max_batch=48,
        stuck_seconds=40.0,
        stuck_by_cause={"pool": 240.0},
        least_needed=40,
    )

    found = judge(facts(queue=queue, pool=FULL, waits=SHORT_OF_BLOCKS))

    assert found.verdict is Verdict.POOL_EXHAUSTED


def test_t3_a_full_batch_with_room_in_the_pool_is_the_batch_and_not_the_pool():
    queue = QueueFacts(waiting=200, running=48, live=248, max_batch=48)
    pool = PoolFacts(1_000, 1_000, active=350, cached=0, free=650, available_ratio=0.65)

    found = judge(facts(queue=queue, pool=pool, waits={"batch_slots": 12_000.0}))

    assert found.verdict is Verdict.BATCH_SLOTS
    assert any("the pool is not the cause" in each.text for each in found.headline.evidence)
    assert found.contributing == ()


def test_t4_a_full_pool_with_a_queue_is_exhausted():
    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS))

    assert found.verdict is Verdict.POOL_EXHAUSTED
    assert found.headline.action is Action.SCALE
    assert found.headline.impact == pytest.approx(60.0)


def test_a_queue_that_was_long_for_a_minute_is_a_burst_and_said_to_be_one():
    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, lasting=lasting(SHORT_OF_BLOCKS)))

    assert found.verdict is Verdict.HEALTHY
    assert found.headline.confidence is Confidence.MEDIUM
    assert "60.0 s of waiting for each arrival" in found.headline.summary
    assert "6.0 s over 10 minutes" in found.headline.summary


def test_a_queue_that_was_too_long_for_minutes_and_still_is_lacks_blocks():
    minutes = lasting({"pool": 9_000.0})

    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, lasting=minutes))
    over = judge(facts(pool=FULL, waits={"pool": 30.0}, lasting=minutes))

    assert found.verdict is Verdict.POOL_EXHAUSTED
    assert over.verdict is Verdict.HEALTHY


def test_a_queue_so_long_that_users_are_turned_away_is_no_burst():
    refusing = TrafficFacts(60, 50, 50, 0, rejected={"queue_full": 5}, mean_prompt_tokens=500.0)
    short = lasting(SHORT_OF_BLOCKS)

    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, lasting=short, traffic=refusing))

    assert found.verdict is Verdict.POOL_EXHAUSTED


def test_first_tokens_that_are_late_for_a_known_wait_are_not_unknown():
    waited = {"ttft": latency(12.0), "pool_wait": latency(11.5)}

    assert judge(facts(latencies=waited)).verdict is Verdict.HEALTHY


def test_a_large_tenant_of_a_young_engine_is_no_hog_while_nobody_waits_long():
    large = TenantShare("a", share=0.54, active_blocks=540.0)
    small = TenantShare("b", share=0.46, active_blocks=460.0)

    found = judge(facts(tenants=(large, small), past=None, waits={"pool": 70.0}))

    assert found.verdict is Verdict.HEALTHY


def test_a_full_pool_in_which_nobody_waits_long_is_well():
    pool = PoolFacts(1_000, 1_000, active=980, cached=0, free=20, available_ratio=0.02)

    assert judge(facts(pool=pool, waits={"pool": 30.0})).verdict is Verdict.HEALTHY


def test_a_pool_full_of_cached_blocks_is_well():
    pool = PoolFacts(1_000, 1_000, active=300, cached=700, free=0, available_ratio=0.7)

    assert judge(facts(pool=pool)).verdict is Verdict.HEALTHY


def test_much_recomputed_work_makes_it_thrashing_with_the_pool_as_a_part():
    steps = StepFacts(700, 50.0, 20_000, 6_000, 9_000, 180, slow_ratio=1.0, expected_seconds=50.0)

    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, steps=steps))

    assert found.verdict is Verdict.PREEMPTION_THRASH
    assert [each.verdict for each in found.contributing] == [Verdict.POOL_EXHAUSTED]


def test_a_leak_leads_a_full_pool_names_its_blocks_and_never_says_scale():
    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, books=BookFacts(300.0, leaks=LEAKS)))

    said = {each.name: each.value for each in found.headline.evidence}
    assert found.verdict is Verdict.POOL_LEAK
    assert found.headline.action is Action.FIX_CODE
    assert (said["leaked_blocks"], said["leaking_owners"]) == ([3, 4], [7])


def test_an_owner_that_was_lost_with_events_is_not_named_but_counted():
    lost = Leak(9, UNKNOWN_OWNER, END - 20 * NS, None)

    found = judge(facts(books=BookFacts(300.0, leaks=(*LEAKS, lost))))

    said = {each.name: each.value for each in found.headline.evidence}
    assert (said["leaked_blocks"], said["leaking_owners"]) == ([3, 4, 9], [7])
    assert said["blocks_of_unknown_owners"] == 1
    assert str(UNKNOWN_OWNER) not in found.headline.summary


@pytest.mark.parametrize(
    "books",
    [
        BookFacts(300.0, refused_frees=2),
        BookFacts(300.0, broken_laws=(BrokenLaw(END, "audit: active 3, ledger 4"),)),
    ],
)
def test_books_that_do_not_add_up_are_said_whatever_else_holds(books):
    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, books=books))

    assert found.verdict is Verdict.LEDGER_BROKEN
    assert Verdict.POOL_EXHAUSTED in {each.verdict for each in found.contributing}


def test_a_shrunken_pool_says_from_what_to_what_and_when():
    at = END - 40 * NS
    pool = PoolFacts(
        500,
        1_000,
        active=495,
        cached=0,
        free=5,
        available_ratio=0.01,
        resizes=(Resize(at, 1_000, 500),),
    )

    found = judge(facts(pool=pool, waits=SHORT_OF_BLOCKS))

    assert found.verdict is Verdict.POOL_EXHAUSTED
    assert found.headline.action is Action.CHECK_HARDWARE
    assert "pool went from 1000 to 500 blocks at 2026-" in found.headline.summary


def test_a_request_larger_than_the_pool_never_fits():
    queue = QueueFacts(
        waiting=1, running=0, live=1, max_batch=48, most_needed=1_200, most_needed_by=9
    )

    found = judge(facts(queue=queue))

    assert found.verdict is Verdict.NEVER_FITS
    assert found.headline.action is not Action.SCALE
    assert "sequence 9 needs 1200 blocks, the whole pool has 1000" in found.headline.summary


def test_ho06_one_at_the_head_with_others_behind_that_fit_is_head_of_line():
    head = HeadOfLine(1, 1_000, 50, 2, 2, 20, 30 * NS, 60 * NS)
    queue = QueueFacts(
        waiting=3,
        running=4,
        live=7,
        max_batch=48,
        stuck_seconds=30.0,
        stuck_by_cause={"pool": 30.0, "pool_behind": 60.0},
        least_needed=10,
        head=head,
    )

    found = judge(facts(queue=queue, pool=FULL, waits={"pool": 30.0, "pool_behind": 60.0}))

    assert found.verdict is Verdict.HEAD_OF_LINE
    assert "20 blocks of runnable work" in found.headline.summary


def test_a_tenant_that_took_over_the_pool_is_named_and_leads_the_full_pool():
    hog = TenantShare("hog", share=0.8, active_blocks=790.0, past_share=0.0)
    other = TenantShare("a", share=0.2, active_blocks=200.0, past_share=0.6)

    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, tenants=(hog, other)))

    assert found.verdict is Verdict.TENANT_HOG
    assert found.headline.action is Action.THROTTLE
    assert "tenant hog" in found.headline.summary


def test_a_tenant_that_grew_into_room_that_nobody_else_uses_is_no_hog():
    large = TenantShare("a", share=0.68, active_blocks=340.0, past_share=0.4)
    small = TenantShare("b", share=0.32, active_blocks=160.0, past_share=0.6)

    assert judge(facts(tenants=(large, small))).verdict is Verdict.HEALTHY


def test_a_tenant_that_always_had_most_is_no_hog():
    large = TenantShare("a", share=0.7, active_blocks=400.0, past_share=0.65)
    small = TenantShare("b", share=0.3, active_blocks=100.0, past_share=0.35)

    assert judge(facts(tenants=(large, small))).verdict is Verdict.HEALTHY


def test_slow_steps_are_the_cause_of_the_full_pool_that_they_make():
    steps = StepFacts(300, 58.0, 9_000, 6_000, 0, 0, slow_ratio=3.0, expected_seconds=19.3)

    found = judge(facts(steps=steps, pool=FULL, waits=SHORT_OF_BLOCKS))

    assert found.verdict is Verdict.COMPUTE_SLOW
    assert "3.0 times as long" in found.headline.summary
    assert [each.verdict for each in found.contributing] == [Verdict.POOL_EXHAUSTED]


def test_without_a_past_slowness_is_not_judged_and_said_to_be_missing():
    steps = StepFacts(300, 58.0, 9_000, 6_000, 0, 0)

    found = judge(facts(steps=steps, past=None, missing={"past": "40 s of history"}))

    assert found.verdict is Verdict.HEALTHY
    assert found.missing == {"past": "40 s of history"}


def test_a_slow_frontend_is_told_apart_from_the_engine():
    found = judge(facts(latencies={"frontend": latency(1.0), "ttft": latency(0.3)}))

    assert found.verdict is Verdict.FRONTEND_SLOW
    assert "77% of the users' wait" in found.headline.summary


def test_t6_longer_prompts_are_the_cause_of_the_full_pool():
    traffic = TrafficFacts(60, 40, 40, 0, mean_prompt_tokens=2_000.0)

    found = judge(facts(traffic=traffic, pool=FULL, waits=SHORT_OF_BLOCKS))

    assert found.verdict is Verdict.TRAFFIC_SHIFT
    assert [each.verdict for each in found.contributing] == [Verdict.POOL_EXHAUSTED]


def test_more_traffic_that_nobody_waits_for_is_well():
    traffic = TrafficFacts(300, 300, 300, 0, mean_prompt_tokens=500.0)

    assert judge(facts(traffic=traffic)).verdict is Verdict.HEALTHY


def test_of_two_causes_the_dearer_one_leads():
    steps = StepFacts(300, 58.0, 9_000, 6_000, 0, 0, slow_ratio=1.6, expected_seconds=36.0)
    dear = facts(steps=steps, latencies={"frontend": latency(20.0), "ttft": latency(1.0)})

    found = judge(dear)

    assert found.verdict is Verdict.FRONTEND_SLOW
    assert [each.verdict for each in found.contributing] == [Verdict.COMPUTE_SLOW]
