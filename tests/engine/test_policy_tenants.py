"""What tenants may take: ceilings, reserves, and what others do about them."""

import pytest

from engine.errors import ConfigError
from engine.policy.scheduling_policy import SchedulingPolicy, TenantPolicy, tenant_ceilings
from engine.policy.victims import Why
from kvpulse.events import RejectReason, WaitCause
from tests.engine.factories_engine import make_engine, make_request
from tests.engine.factories_policy import Watched, ask


def with_tenants(*, total_blocks=16, max_batch=8, policy=None, **tenants):
    limits = {name: TenantPolicy(**values) for name, values in tenants.items()}
    return Watched(
        total_blocks=total_blocks,
        max_batch=max_batch,
        token_budget=64,
        policy={"tenants": limits, **(policy or {})},
    )


def causes(watched):
    return {seq.seq_id: seq.wait_cause for seq in watched.scheduler.waiting}


def test_a_tenant_at_its_ceiling_waits_for_quota_while_others_go_on():
    watched = with_tenants(a={"max_blocks": 6})
    watched.submit(ask(16, 4, tenant="a"))
    watched.submit(ask(16, 4, tenant="a"))
    watched.submit(ask(16, 4, tenant="b"))

    watched.step()

    assert causes(watched) == {2: WaitCause.TENANT_QUOTA}
    assert [seq.seq_id for seq in watched.scheduler.running] == [1, 3]
    watched.finish()


def test_a_small_request_does_not_slip_past_a_large_one_of_its_own_tenant():
    watched = with_tenants(a={"max_blocks": 6})
    watched.submit(ask(16, 8, tenant="a"))
    watched.submit(ask(16, 4, tenant="a"))
    watched.submit(ask(4, 4, tenant="a"))

    watched.step()

    assert causes(watched) == {2: WaitCause.TENANT_QUOTA, 3: WaitCause.TENANT_QUOTA}
    assert [seq.wait_blocker for seq in watched.scheduler.waiting] == [0, 2]
    watched.finish()


def test_a_request_larger_than_its_tenants_ceiling_is_refused():
    watched = with_tenants(a={"max_blocks": 6})

    rejection = watched.submit(ask(20, 20, tenant="a")).rejection

    assert rejection.reason is RejectReason.EXCEEDS_QUOTA
    assert (rejection.needed, rejection.limit) == (10, 6)
    assert (rejection.http_status, rejection.retryable) == (400, False)
    assert watched.submit(ask(20, 20, tenant="b")).accepted


def test_at_the_ceiling_the_tenants_own_last_sequence_gives_way():
    watched = with_tenants(a={"max_blocks": 6})
    watched.submit(ask(8, 12, tenant="a"))
    watched.submit(ask(8, 12, tenant="a"))
    watched.submit(ask(8, 4, tenant="b"))
    while not watched.scheduler.latest_preemptions:
        watched.step()

    (gave_way,) = watched.scheduler.latest_preemptions
    assert (gave_way.victim, gave_way.beneficiary) == (2, 1)
    assert gave_way.why is Why.LAST_OF_TENANT
    watched.finish()


def test_what_is_reserved_nobody_else_takes():
    watched = with_tenants(sure={"reserved_blocks": 6})
    watched.submit(ask(28, 4, tenant="b"))
    watched.submit(ask(12, 4, tenant="b"))  # 3 blocks; 9 are left, 6 of them reserved
    watched.submit(ask(16, 4, tenant="b"))

    watched.step()

    assert causes(watched) == {3: WaitCause.POOL}
    assert watched.engine._pool.num_available == 6
    watched.finish()


def test_a_reserve_lets_its_tenant_pass_those_who_wait_for_blocks():
    watched = with_tenants(sure={"reserved_blocks": 6})
    watched.submit(ask(28, 8, tenant="b"))
    watched.submit(ask(28, 4, tenant="b"))
    watched.submit(ask(8, 4, tenant="b"))
    watched.submit(ask(16, 8, tenant="sure"))

    watched.step()

    assert [seq.seq_id for seq in watched.scheduler.running] == [1, 4]
    assert causes(watched) == {2: WaitCause.POOL, 3: WaitCause.POOL_BEHIND}
    watched.finish()


def test_growing_into_a_reserve_makes_somebody_give_way_instead():
    watched = with_tenants(total_blocks=10, sure={"reserved_blocks": 4})
    watched.submit(ask(8, 12, tenant="b"))
    watched.submit(ask(8, 12, tenant="b"))
    for _ in range(6):
        watched.step()

    assert len(watched.scheduler.running) == 1
    assert watched.engine._pool.num_available >= 4
    watched.finish()


def test_a_request_that_fits_only_beside_nobodys_reserve_is_refused():
    watched = with_tenants(sure={"reserved_blocks": 6})

    rejection = watched.submit(ask(30, 20, tenant="b")).rejection

    assert rejection.reason is RejectReason.EXCEEDS_POOL
    assert (rejection.needed, rejection.limit) == (13, 10)
    assert "reserved" in rejection.message
    assert watched.submit(ask(30, 20, tenant="sure")).accepted


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: TenantPolicy(max_blocks=0), "max_blocks"),
        (lambda: TenantPolicy(max_blocks=2, reserved_blocks=3), "reserved_blocks"),
        (lambda: TenantPolicy(weight=0), "weight"),
        (
            lambda: SchedulingPolicy(other_tenants=TenantPolicy(reserved_blocks=1)),
            "reserved_blocks",
        ),
        (
            lambda: make_engine(
                total_blocks=4,
                policy=SchedulingPolicy(tenants={"a": TenantPolicy(reserved_blocks=5)}),
            ),
            "reserved_blocks",
        ),
    ],
)
def test_limits_that_cannot_hold_are_configuration_errors(make, name):
    with pytest.raises(ConfigError) as caught:
        make()

    assert caught.value.name == name


def test_a_pool_that_shrank_below_its_reserves_has_nothing_for_others_and_says_so():
    policy = SchedulingPolicy(tenants={"sure": TenantPolicy(reserved_blocks=12)})
    engine = make_engine(total_blocks=16, policy=policy)
    engine._pool.withdraw(8)

    refused = engine.submit(make_request(4, 4)).rejection

    assert (refused.reason, refused.limit) == (RejectReason.EXCEEDS_POOL, 0)


def test_ceilings_are_stated_as_the_tenants_page_reads_them():
    limited = SchedulingPolicy(
        tenants={"search": TenantPolicy(max_blocks=40), "chat": TenantPolicy(reserved_blocks=3)},
        other_tenants=TenantPolicy(max_blocks=100),
    )

    assert tenant_ceilings(limited) == "search=40, *=100"
    assert tenant_ceilings(SchedulingPolicy()) == ""
