"""Events in words, and a map in characters."""

import numpy as np
import pytest

from agent.block_map import BlockMap
from agent.block_map_text import draw, legend
from agent.reads.event_text import EventFields, describe, wait_cause
from kvpulse.events import (
    NOT_MEASURED,
    FinishReason,
    FreeOutcome,
    Kind,
    RejectReason,
    WaitCause,
    WaitFlag,
)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (EventFields(Kind.ALLOCATE, 0, 4, 1, [7, 8, 9, 12]), "took 4 blocks (7-9, 12)"),
        (
            EventFields(Kind.FREE, FreeOutcome.TO_CACHE, 1, 0, [7]),
            "gave back 1 block (7): kept as cached",
        ),
        (
            EventFields(Kind.WAIT, 8 | 4, 1, WaitCause.POOL, [5]),
            "waits: pool (also batch_slots), behind sequence 5",
        ),
        (
            EventFields(Kind.REJECT, 0, 2, RejectReason.EXCEEDS_POOL, [90, 64]),
            "rejected, exceeds_pool: needs 90, limit 64",
        ),
        (
            EventFields(Kind.PREEMPT, 1, 3, 9, [40, 3, 2]),
            "preempted (recompute) for sequence 9: 40 tokens lost, 3 blocks freed,"
            " 2 of them kept as cached",
        ),
        (
            EventFields(Kind.FINISH, 0, 4, FinishReason.LENGTH, [10, 5, 15, 0]),
            "ended, length: 5 tokens out",
        ),
        (
            EventFields(Kind.ALLOCATE_FAILED, 0, 3, WaitCause.POOL, [4, 1, NOT_MEASURED]),
            "no blocks: needs 4, 1 free, ? cached (pool)",
        ),
        (EventFields(Kind.FINISH, 0, 0, 77, []), "ended, code 77: ? tokens out"),
        (EventFields(200, 0, 0, 0, []), ""),
    ],
)
def test_an_event_is_told_with_its_numbers(event: EventFields, told: str) -> None:
    assert describe(event) == told


def test_an_event_names_the_cause_that_it_states_and_no_flag() -> None:
    wait = EventFields(Kind.WAIT, WaitFlag.POOL, 0, WaitCause.TENANT_QUOTA, [])

    assert wait_cause(wait) == "tenant_quota"
    assert wait_cause(wait._replace(aux=42)) is None
    assert wait_cause(EventFields(Kind.ALLOCATE_FAILED, 0, 3, WaitCause.POOL, [9, 1, 0])) == "pool"
    assert wait_cause(EventFields(Kind.PREEMPT, 0, 0, 4, [1, 2, 3])) is None


def make_map() -> BlockMap:
    count = np.array([1, 0, 2, 0, 1, 1, 0, 0], np.int32)
    return BlockMap(
        at_ns=0,
        total_blocks=8,
        block_size=16,
        state=np.array([2, 1, 2, 0, 2, 2, 0, 0], np.uint8),
        count=count,
        owner=np.array([4, 0, 4, 0, 9, -1, 0, 0]),
        tenant=np.array([1, 0, 1, 0, 2, 0, 0, 0], np.int32),
        since_ns=np.zeros(8, np.int64),
        hash_known=np.zeros(8, bool),
        filled=np.full(8, -1, np.int32),
        ref_owner=np.array([4, 4, 9, 9]),
        ref_block=np.array([0, 2, 2, 4]),
        tenants={1: "red", 2: "blue"},
    )


def test_a_map_shows_free_cached_shared_owned_and_unknown_blocks() -> None:
    assert draw(make_map(), width=4) == ["0  A-&.", "4  B?.."]


def test_the_legend_names_who_holds_what() -> None:
    lines = legend(make_map())

    assert lines[0].startswith(". free 3   - cached 1   active 4 of 8")
    assert lines[1:] == [
        "A sequence 4: 2 blocks, 1 shared, tenant red",
        "B sequence 9: 2 blocks, 1 shared, tenant blue",
    ]


def test_a_long_legend_says_how_many_more_there_are() -> None:
    assert legend(make_map(), most=1)[-1] == "and 1 more sequences"
