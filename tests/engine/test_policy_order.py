"""Who goes first: priority, tier, aging, fair shares; and who gives way to one that waits."""

import pytest

from engine.policy.scheduling_policy import TenantPolicy
from engine.policy.victims import VictimChoice, Why
from engine.runner import StepPlan
from engine.sequence import SequenceStatus
from tests.engine.factories_policy import MS, SECOND, Watched, ask


def order_of_start(watched, *, most_steps=400):
    """Run to the end; return the requests in the order in which they began to run."""
    seen = []
    for _ in range(most_steps):
        if not watched.engine.has_work:
            return seen
        watched.step()
        seen += [seq.seq_id for seq in watched.scheduler.running if seq.seq_id not in seen]
    raise AssertionError("not done")


def test_the_better_priority_goes_first_and_equal_ones_in_order_of_arrival():
    watched = Watched(max_batch=1)
    for priority in (1, 0, 1, -1):
        watched.submit(ask(priority=priority))

    assert order_of_start(watched) == [4, 2, 1, 3]


def test_the_interactive_tier_goes_before_the_batch_tier():
    watched = Watched(max_batch=1)
    watched.submit(ask(tier=1, priority=-5))
    watched.submit(ask(tier=0))

    assert order_of_start(watched) == [2, 1]


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({"priority": 1}, {"aging_ns": 100 * MS}),
        ({"tier": 1}, {"batch_patience_ns": 100 * MS}),
    ],
)
def test_waiting_makes_up_for_priority_and_tier(fields, policy):
    watched = Watched(max_batch=1, policy=policy)
    watched.submit(ask(**fields))
    watched.wait(101 * MS)

    watched.submit(ask())

    assert order_of_start(watched) == [1, 2]


def test_a_stream_of_urgent_requests_does_not_starve_another():
    watched = Watched(max_batch=1, policy={"aging_ns": SECOND})
    watched.submit(ask(4, 4, priority=3))
    started_at = None
    for _ in range(1_000):
        if watched.engine.num_waiting < 3:
            watched.submit(ask(4, 4, priority=0))
        watched.step()
        if watched.scheduler.live.get(1) is None:
            started_at = watched.clock.now_ns()
            break

    assert started_at is not None
    assert 3 * SECOND < started_at < 4 * SECOND, "three levels are worth three seconds"


def test_a_tenant_with_many_requests_lets_another_one_pass():
    watched = Watched(max_batch=1, policy={"fairness_ns_per_token": 100 * MS})
    for _ in range(4):
        watched.submit(ask(tenant="many"))
    watched.submit(ask(tenant="one"))

    order = order_of_start(watched)

    assert order.index(5) <= 1


def test_a_heavier_tenant_gets_its_share_of_the_turns():
    tenants = {"heavy": TenantPolicy(weight=3)}
    watched = Watched(max_batch=1, policy={"fairness_ns_per_token": SECOND, "tenants": tenants})
    for _ in range(8):
        watched.submit(ask(tenant="heavy"))
        watched.submit(ask(tenant="light"))

    first = order_of_start(watched)[:8]

    assert sum(seq_id % 2 for seq_id in first) == 6, "three of four turns"


def test_without_others_a_tenants_past_use_is_forgotten():
    watched = Watched(max_batch=1, policy={"fairness_ns_per_token": SECOND})
    for _ in range(4):
        watched.submit(ask(tenant="many"))
    watched.finish()
    watched.submit(ask(tenant="many"))
    watched.submit(ask(tenant="one"))

    assert order_of_start(watched) == [5, 6]


def busy_with_batches(**settings):
    watched = Watched(total_blocks=16, token_budget=64, **settings)
    for _ in range(2):
        watched.submit(ask(20, 20, tier=1))
    watched.step()
    return watched


def test_an_urgent_request_takes_the_place_of_one_it_outranks_once_that_has_had_its_turn():
    watched = busy_with_batches(policy={"protected_tokens": 4})
    watched.submit(ask(20, 4))
    steps = 0
    while watched.scheduler.live[3].status is SequenceStatus.WAITING:
        watched.step()
        steps += 1

    assert steps == 4, "each batch sequence yields its protected tokens first"
    (gave_way,) = watched.scheduler.latest_preemptions
    assert (gave_way.victim, gave_way.beneficiary) == (2, 3)
    assert gave_way.why is Why.OUTRANKED
    assert gave_way.candidates == 2
    assert "sequence 2 gave way for sequence 3" in str(gave_way)
    watched.finish()


@pytest.mark.parametrize(
    "policy", [{"preempt_for_waiting": False}, {"protected_tokens": 1_000}], ids=["off", "kept"]
)
def test_without_leave_the_urgent_request_waits_for_blocks(policy):
    watched = busy_with_batches(policy=policy)
    watched.submit(ask(20, 4))
    for _ in range(3):
        watched.step()

    assert watched.scheduler.live[3].status is SequenceStatus.WAITING
    assert not watched.scheduler.latest_preemptions


def test_nobody_gives_way_where_it_would_not_make_room_enough():
    watched = Watched(total_blocks=16, token_budget=64, policy={"protected_tokens": 0})
    watched.submit(ask(28, 8))
    watched.submit(ask(12, 8, tier=1))
    watched.step()
    watched.submit(ask(36, 4))  # 9 blocks; the batch sequence holds 4 and 5 are free or less

    watched.step()

    assert watched.scheduler.live[2].status is SequenceStatus.RUNNING
    assert watched.scheduler.live[3].status is SequenceStatus.WAITING


def test_equals_never_take_each_others_place():
    watched = Watched(total_blocks=16, token_budget=64, policy={"protected_tokens": 0})
    for _ in range(4):
        watched.submit(ask(20, 12))
    watched.finish()

    whys = {preemption.why for preemption in watched.scheduler.latest_preemptions}
    assert Why.OUTRANKED not in whys


def test_a_place_in_the_batch_is_taken_too():
    watched = Watched(total_blocks=64, max_batch=2, policy={"protected_tokens": 0})
    for _ in range(2):
        watched.submit(ask(8, 30, tier=1))
    watched.step()
    watched.submit(ask(8, 2))

    watched.step()

    assert [seq.seq_id for seq in watched.scheduler.running] == [3, 1]
    watched.finish()


def test_beams_give_way_together_and_come_back_together():
    watched = Watched(total_blocks=18, max_batch=6, token_budget=64, policy={"protected_tokens": 0})
    watched.submit(ask(8, 20, tier=1, sampling={"beam_width": 3}))
    watched.step()
    watched.step()
    assert len(watched.live) == 3
    watched.submit(ask(60, 2))

    watched.step()

    assert [seq.seq_id for seq in watched.scheduler.running] == [4]
    assert {seq.num_shared_blocks for seq in watched.scheduler.waiting} == {2}
    watched.finish()


def test_the_last_in_order_gives_way_to_one_that_needs_a_block_and_the_choice_says_so():
    watched = Watched(total_blocks=6, token_budget=64)
    watched.submit(ask(8, 12, priority=1))
    watched.submit(ask(8, 12, priority=0))
    while not watched.scheduler.latest_preemptions:
        watched.step()

    (gave_way,) = watched.scheduler.latest_preemptions
    assert (gave_way.victim, gave_way.beneficiary) == (1, 2), "it came first, and matters less"
    assert gave_way.why is Why.LAST
    assert gave_way.blocks_freed == 3
    assert gave_way.blocks_kept == 3
    watched.finish()


def test_one_that_only_came_earlier_takes_nobodys_place():
    tenants = {"a": TenantPolicy(max_blocks=6)}
    watched = Watched(
        total_blocks=13,
        max_batch=6,
        token_budget=64,
        policy={"protected_tokens": 0, "tenants": tenants},
    )
    watched.submit(ask(14, 3, tenant="a"))
    watched.submit(ask(20, 4, tenant="a"))  # waits for its tenant's quota, and lets others pass
    watched.wait(MS)
    watched.submit(ask(33, 12, tenant="b"))
    for _ in range(5):
        watched.step()

    assert 1 not in watched.scheduler.live
    assert [seq.seq_id for seq in watched.scheduler.running] == [3]
    assert [seq.seq_id for seq in watched.scheduler.waiting] == [2]
    whys = {preemption.why for preemption in watched.scheduler.latest_preemptions}
    assert Why.OUTRANKED not in whys
    watched.finish()


def test_beams_that_give_way_again_while_they_come_back_forget_what_they_were_to_go_on_with():
    watched = Watched(total_blocks=18, max_batch=6, token_budget=7, policy={"protected_tokens": 0})
    watched.submit(ask(8, 20, tier=1, sampling={"beam_width": 3}))
    for _ in range(5):
        watched.step()
    (gang,) = {seq.gang for seq in watched.live}
    watched.submit(ask(60, 2))
    while not gang.pending:
        watched.step()
    assert len(gang.pending) < len(gang.members), "some still compute"

    again = VictimChoice(gang.members[0], 0, Why.MEMORY, 1)
    watched.scheduler._preemptor.preempt(again, StepPlan(0))

    watched.check()
    assert not gang.pending
    watched.finish()
