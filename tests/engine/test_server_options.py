"""What the command line of `kvpulse serve` comes to, and what is said about one that cannot be."""

import pytest

from engine.errors import ConfigError
from engine.policy.scheduling_policy import PreemptionPolicy, SchedulingPolicy
from engine.server.policy_options import describe_policy
from engine.server.serve_options import AUTO_BLOCKS, ServeOptions
from tests.engine.factories_server import serve_options

SECOND = 1_000_000_000


@pytest.fixture
def options(tmp_path):
    def read(*arguments: str) -> ServeOptions:
        return serve_options(tmp_path, "--simulated", *arguments)

    return read


def test_by_default_the_policy_is_the_engines_own(options):
    config = options().engine_config()

    assert config.policy == SchedulingPolicy()
    assert (config.prefix_index, config.host_blocks) == ("hash", 0)
    assert config.preemption is PreemptionPolicy.RECOMPUTE


def test_settings_of_the_kv_cache_reach_engine_and_loader(options):
    read = options(
        *("--kv-format", "int8", "--attention", "triton", "--prefix-index", "radix"),
        *("--num-blocks", "auto", "--host-blocks", "64", "--watermark", "0.2"),
    )

    assert (read.kv_format, read.attention, read.num_blocks) == ("int8", "triton", AUTO_BLOCKS)
    config = read.engine_config(num_blocks=300)
    assert (config.prefix_index, config.host_blocks, config.total_blocks) == ("radix", 64, 300)
    assert config.preemption is PreemptionPolicy.AUTO
    assert config.watermark_blocks == 60


def test_times_and_order_reach_the_policy(options):
    policy = (
        options(
            *("--timeout-seconds", "1.5", "--queue-timeout-seconds", "0.25"),
            *("--aging-seconds", "3", "--batch-patience-seconds", "60"),
            *("--fairness-ms-per-token", "2", "--protected-tokens", "0"),
            *("--no-preempt-for-waiting", "--swap-min-tokens", "32"),
            *("--high-watermark", "0.9", "--low-watermark", "0.7", "--max-request-tokens", "700"),
        )
        .engine_config()
        .policy
    )

    assert (policy.total_timeout_ns, policy.queue_timeout_ns) == (1.5 * SECOND, SECOND / 4)
    assert (policy.aging_ns, policy.batch_patience_ns) == (3 * SECOND, 60 * SECOND)
    assert (policy.fairness_ns_per_token, policy.protected_tokens) == (2_000_000, 0)
    assert (policy.preempt_for_waiting, policy.swap_min_tokens) == (False, 32)
    assert (policy.high_watermark_ratio, policy.low_watermark_ratio) == (0.9, 0.7)
    assert policy.max_request_tokens == 700


def test_tiers_and_tenants_have_limits_of_their_own(options):
    policy = (
        options(
            *("--tier", "batch:max-context=512,step-tokens=64,watermark=0.25,max-queue=3"),
            *("--tenant", "acme-eu=acme", "--tenant-quota", "acme-eu:ceiling=40,floor=8,weight=3"),
            *("--tenant-quota", "*:ceiling=16", "--tenant-quota", "urn:us:ceiling=20"),
        )
        .engine_config()
        .policy
    )

    batch = policy.batch
    assert (batch.max_context, batch.step_tokens, batch.max_queue) == (512, 64, 3)
    assert batch.watermark_ratio == 0.25
    acme = policy.of_tenant("acme")
    assert (acme.max_blocks, acme.reserved_blocks, acme.weight) == (40, 8, 3)
    assert policy.of_tenant("urn:us").max_blocks == 20
    assert policy.of_tenant("t-123456").max_blocks == 16


def test_a_tenant_with_a_quota_is_recorded_under_its_name(options):
    assert options("--tenant-quota", "acme:weight=2").tenants == {"acme": "acme"}


def test_the_log_says_what_differs_from_first_come_first_served(options):
    policy = options(
        *("--high-watermark", "0.9", "--no-preempt-for-waiting"),
        *("--tier", "batch:max-queue=3", "--tenant-quota", "acme:floor=8,weight=3"),
    ).policy

    assert describe_policy(SchedulingPolicy()) == []
    assert describe_policy(policy) == [
        "policy: preempt_for_waiting False, high_watermark_ratio 0.9",
        "tier batch: max_queue 3",
        "tenant acme: reserved_blocks 8, weight 3",
    ]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--tier", "slow:max-queue=1"), ("--tier", "slow", "interactive or batch")),
        (("--tier", "batch"), ("--tier", "max-context=TOKENS")),
        (("--tier", "batch:speed=1"), ("--tier", "step-tokens=TOKENS")),
        (("--tier", "batch:max-queue=many"), ("--tier", "max-queue=N")),
        (("--tier", "batch:max-queue=0"), ("max_queue", "at least 1")),
        (("--tier", "batch:watermark=7"), ("watermark_ratio", "from 0 to 1")),
        (("--tenant-quota", "acme"), ("--tenant-quota", "ceiling=BLOCKS")),
        (("--tenant-quota", ":ceiling=1"), ("--tenant-quota", "a tenant's name")),
        (("--tenant-quota", "a:ceiling=1,ceiling=2"), ("--tenant-quota", "ceiling=1,ceiling=2")),
        (("--tenant-quota", "a:ceiling=2,floor=3"), ("reserved_blocks", "at most max_blocks (2)")),
        (("--tenant-quota", "*:floor=3"), ("reserved_blocks", "a tenant by name")),
        (("--tenant-quota", "a:floor=600"), ("reserved_blocks", "at most total_blocks (512)")),
        (("--low-watermark", "0.5"), ("low_watermark_ratio", "high_watermark_ratio")),
        (("--high-watermark", "1.5"), ("high_watermark_ratio", "from 0 to 1")),
        (("--watermark", "1"), ("watermark_ratio", "below 1")),
        (("--preemption", "swap"), ("preemption", "host_blocks of at least 1")),
    ],
)
def test_a_setting_that_cannot_be_says_what_can(options, arguments, parts):
    with pytest.raises(ConfigError) as caught:
        options(*arguments).engine_config()

    assert not [part for part in parts if part not in str(caught.value)]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--kv-format", "fp3"), "int8"),
        (("--attention", "quick"), "flash_attn"),
        (("--prefix-index", "trie"), "radix"),
        (("--num-blocks", "all"), "not a whole number"),
        (("--host-blocks", "-1"), "below 0"),
        (("--max-samples", "0"), "not a positive number"),
        (("--timeout-seconds", "soon"), "not a time"),
    ],
)
def test_a_word_that_is_none_of_the_choices_is_a_usage_error(options, capsys, arguments, part):
    with pytest.raises(SystemExit) as caught:
        options(*arguments)

    assert caught.value.code == 2
    assert part in capsys.readouterr().err
