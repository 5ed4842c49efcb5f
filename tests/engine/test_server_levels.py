"""What a request may say about how urgent it is, in its body and its headers."""

import pytest

from engine.server.openai_errors import ApiError
from engine.server.service_level import Tier, parse_service_level


def test_a_request_that_says_nothing_is_interactive_and_has_no_limit_of_its_own():
    level = parse_service_level({}, {})

    assert (level.priority, level.tier) == (0, Tier.INTERACTIVE)
    assert (level.timeout_ns, level.queue_timeout_ns) == (0, 0)


@pytest.mark.parametrize(
    ("service_tier", "header", "tier"),
    [
        ("default", None, Tier.INTERACTIVE),
        ("auto", None, Tier.INTERACTIVE),
        ("flex", None, Tier.BATCH),
        (None, "batch", Tier.BATCH),
        (None, "interactive", Tier.INTERACTIVE),
        ("flex", "interactive", Tier.INTERACTIVE),
        ("default", "batch", Tier.BATCH),
    ],
)
def test_the_tier_is_the_headers_or_else_the_service_tier(service_tier, header, tier):
    headers = {} if header is None else {"x-kvpulse-tier": header}

    assert parse_service_level({"service_tier": service_tier}, headers).tier is tier


def test_priority_and_times_are_read():
    headers = {"x-kvpulse-timeout-ms": "1500", "x-kvpulse-queue-timeout-ms": "20"}

    level = parse_service_level({"priority": -3}, headers)

    assert level.priority == -3
    assert (level.timeout_ns, level.queue_timeout_ns) == (1_500_000_000, 20_000_000)


@pytest.mark.parametrize(
    ("body", "headers", "param"),
    [
        ({"priority": 1 << 31}, {}, "priority"),
        ({"priority": 1.5}, {}, "priority"),
        ({"service_tier": "scale"}, {}, "service_tier"),
        ({"service_tier": 1}, {}, "service_tier"),
        ({}, {"x-kvpulse-tier": "Batch"}, "x-kvpulse-tier"),
        ({}, {"x-kvpulse-timeout-ms": "0"}, "x-kvpulse-timeout-ms"),
        ({}, {"x-kvpulse-timeout-ms": "-5"}, "x-kvpulse-timeout-ms"),
        ({}, {"x-kvpulse-timeout-ms": "1e3"}, "x-kvpulse-timeout-ms"),
        ({}, {"x-kvpulse-timeout-ms": "9" * 5000}, "x-kvpulse-timeout-ms"),
        ({}, {"x-kvpulse-queue-timeout-ms": "\u0663"}, "x-kvpulse-queue-timeout-ms"),
        ({}, {"x-kvpulse-queue-timeout-ms": ""}, "x-kvpulse-queue-timeout-ms"),
    ],
)
def test_what_cannot_be_meant_is_named_and_not_ignored(body, headers, param):
    with pytest.raises(ApiError) as caught:
        parse_service_level(body, headers)

    assert (caught.value.status, caught.value.param) == (400, param)
