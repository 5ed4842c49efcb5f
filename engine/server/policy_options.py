"""The scheduling policies among the options of `kvpulse serve`."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from engine.errors import ConfigError
from engine.option_types import duration, positive, whole_number
from engine.policy.scheduling_policy import SchedulingPolicy, TenantPolicy, TierPolicy

_AnyPolicy = SchedulingPolicy | TierPolicy | TenantPolicy

NS_PER_SECOND: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
OTHERS: Final = "*"

_TIER_FORM: Final = (
    "interactive or batch, then ':' and any of max-context=TOKENS, step-tokens=TOKENS, "
    "watermark=RATIO, max-queue=N with ',' between them"
)
_TENANT_FORM: Final = (
    "a tenant's name or * for all others, then ':' and any of ceiling=BLOCKS, floor=BLOCKS, "
    "weight=N with ',' between them"
)
_TIER_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "max-context": ("max_context", int),
    "step-tokens": ("step_tokens", int),
    "watermark": ("watermark_ratio", float),
    "max-queue": ("max_queue", int),
}
_TENANT_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "ceiling": ("max_blocks", int),
    "floor": ("reserved_blocks", int),
    "weight": ("weight", int),
}


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Add the options; their defaults are those of `SchedulingPolicy`."""
    _add_times(parser.add_argument_group("order and times"))
    _add_shares(parser.add_argument_group("shares"))


def _add_times(group: argparse._ArgumentGroup) -> None:
    default = SchedulingPolicy()
    group.add_argument(
        "--timeout-seconds",
        type=duration,
        default=0.0,
        metavar="S",
        help="end every request after so long, done or not; 0 never (0); header "
        "x-kvpulse-timeout-ms asks for less",
    )
    group.add_argument(
        "--queue-timeout-seconds",
        type=duration,
        default=0.0,
        metavar="S",
        help="refuse a request that has not run after so long; 0 never (0); header "
        "x-kvpulse-queue-timeout-ms asks for less",
    )
    group.add_argument(
        "--aging-seconds",
        type=duration,
        default=default.aging_ns / NS_PER_SECOND,
        metavar="S",
        help="waiting time that makes up for one level of priority (10)",
    )
    group.add_argument(
        "--batch-patience-seconds",
        type=duration,
        default=default.batch_patience_ns / NS_PER_SECOND,
        metavar="S",
        help="how long a request of the batch tier lets later interactive ones pass (600)",
    )
    group.add_argument(
        "--no-preempt-for-waiting",
        action="store_true",
        help="let a more urgent request wait for room rather than take it from a running one",
    )
    group.add_argument(
        "--protected-tokens",
        type=whole_number,
        default=default.protected_tokens,
        metavar="N",
        help="tokens a sequence yields before a waiting one may take its place (16)",
    )
    group.add_argument(
        "--swap-min-tokens",
        type=whole_number,
        default=default.swap_min_tokens,
        metavar="N",
        help="with --preemption auto: swap sequences of at least so many tokens (256)",
    )


def _add_shares(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--high-watermark",
        type=float,
        metavar="RATIO",
        help="refuse new requests (503 above_watermark) while more of the pool than this is in use",
    )
    group.add_argument(
        "--low-watermark",
        type=float,
        metavar="RATIO",
        help="take them again below this (0.9 of the high one)",
    )
    group.add_argument(
        "--max-request-tokens",
        type=positive,
        metavar="N",
        help="most tokens of any request, if less than the context",
    )
    group.add_argument(
        "--fairness-ms-per-token",
        type=duration,
        default=0.0,
        metavar="MS",
        help="how much later a tenant's request counts as having come for each token that the "
        "tenant is ahead of the others; 0 is first come, first served (0)",
    )
    group.add_argument(
        "--tier",
        action="append",
        default=[],
        metavar="NAME:KEY=VALUE,...",
        help="limits of a tier: batch:max-context=2048,step-tokens=128,watermark=0.2,max-queue=32",
    )
    group.add_argument(
        "--tenant-quota",
        action="append",
        default=[],
        metavar="NAME:KEY=VALUE,...",
        help="limits of a tenant, in blocks: acme:ceiling=200,floor=50,weight=3; * for all others",
    )


def read_policy(given: argparse.Namespace, aliases: Mapping[str, str]) -> SchedulingPolicy:
    """Return the policy that a command line asks for.

    Args:
        aliases: What is recorded for the tenants that are known by name.

    Raises:
        ConfigError: A value that no policy can have.
    """
    tiers = {name: TierPolicy(**values) for name, values in _tiers(given.tier)}
    tenants = {
        aliases.get(name, name): TenantPolicy(**values)
        for name, values in _tenants(given.tenant_quota)
    }
    others = tenants.pop(OTHERS, TenantPolicy())
    return SchedulingPolicy(
        aging_ns=round(given.aging_seconds * NS_PER_SECOND),
        batch_patience_ns=round(given.batch_patience_seconds * NS_PER_SECOND),
        fairness_ns_per_token=round(given.fairness_ms_per_token * NS_PER_MS),
        preempt_for_waiting=not given.no_preempt_for_waiting,
        protected_tokens=given.protected_tokens,
        swap_min_tokens=given.swap_min_tokens,
        high_watermark_ratio=given.high_watermark,
        low_watermark_ratio=given.low_watermark,
        max_request_tokens=given.max_request_tokens,
        queue_timeout_ns=round(given.queue_timeout_seconds * NS_PER_SECOND),
        total_timeout_ns=round(given.timeout_seconds * NS_PER_SECOND),
        interactive=tiers.get("interactive", TierPolicy()),
        batch=tiers.get("batch", TierPolicy()),
        tenants=tenants,
        other_tenants=others,
    )


def quota_names(given: argparse.Namespace) -> list[str]:
    """Return the tenants that have limits of their own, as clients call them."""
    return [name for name, _ in _tenants(given.tenant_quota) if name != OTHERS]


def _tiers(texts: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    read = [_named_settings("--tier", text, _TIER_SETTINGS, _TIER_FORM) for text in texts]
    for name, _ in read:
        if name not in ("interactive", "batch"):
            raise ConfigError("--tier", found=name, accepted=_TIER_FORM)
    return read


def _tenants(texts: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    return [
        _named_settings("--tenant-quota", text, _TENANT_SETTINGS, _TENANT_FORM) for text in texts
    ]


def _named_settings(
    option: str,
    text: str,
    settings: Mapping[str, tuple[str, Callable[[str], object]]],
    form: str,
) -> tuple[str, dict[str, Any]]:
    """Read `NAME:key=value,key=value`; the name itself may hold colons."""
    name, _, rest = text.rpartition(":")
    values: dict[str, Any] = {}
    for item in rest.split(","):
        key, _, value = item.partition("=")
        field, read = settings.get(key, ("", str))
        if not name or not field or field in values:
            raise ConfigError(option, found=text, accepted=form)
        try:
            values[field] = read(value)
        except ValueError:
            raise ConfigError(option, found=text, accepted=form) from None
    return name, values


def describe_policy(policy: SchedulingPolicy) -> list[str]:
    """Say what differs from first come, first served: one line each for order, tiers, tenants."""
    lines = [_differences("policy", policy, SchedulingPolicy())]
    for name, tier in zip(("interactive", "batch"), policy.tiers, strict=True):
        lines.append(_differences(f"tier {name}", tier, TierPolicy()))
    for alias, tenant in policy.tenants.items():
        lines.append(_differences(f"tenant {alias}", tenant, TenantPolicy()))
    lines.append(_differences("other tenants", policy.other_tenants, TenantPolicy()))
    return [line for line in lines if line]


def _differences(title: str, value: _AnyPolicy, default: _AnyPolicy) -> str:
    """Return the plain settings of a value that are not the default's, "" if there are none."""
    settings = [
        f"{field.name} {getattr(value, field.name)}"
        for field in fields(value)
        if isinstance(getattr(value, field.name), int | float)
        and getattr(value, field.name) != getattr(default, field.name)
    ]
    return f"{title}: {', '.join(settings)}" if settings else ""
