"""Calls on a recorder, sound and hostile, as values that two recorders can be given in turn."""

from array import array
from typing import Any, NamedTuple

from hypothesis import strategies as st

from kvpulse.events import FreeOutcome, WaitCause, WaitFlag
from tests.kvpulse.test_never_raises import Unsized


class Call(NamedTuple):
    """A method's name, its arguments, and how often it is called in a row."""

    name: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    times: int = 1


class Odd(int):
    """An int that lies about everything but its value."""

    def __bool__(self):
        return False

    def __index__(self):
        return 7

    def __or__(self, other):
        return 3

    def __rshift__(self, other):
        return 1

    __and__ = __rshift__


class Raises:
    """Nothing can be asked of it."""

    def __bool__(self):
        raise RuntimeError("no truth")

    def __index__(self):
        raise RuntimeError("no index")


class Ids(list):
    """A list that says it is shorter than it is."""

    def __len__(self):
        return 1


small = st.integers(0, 4095)
small_edges = st.sampled_from([0, 1, 255, 256, 2**16 - 1, 2**16, 2**30 - 1, 2**30, 2**31])
large_edges = st.sampled_from([2**32 - 1, 2**32, 2**60, 2**64 - 1, 2**64, 2**80, -1, -(2**40)])
edges = small_edges | large_edges
codes = st.sampled_from([WaitCause.POOL, WaitFlag.POOL, FreeOutcome.TO_FREE])
odd = st.sampled_from([None, 1.5, "7", b"7", True, False, Odd(5), Odd(300), Raises(), [], (), {}])
wrong = codes | odd
number = st.one_of(small, small, small, small, small, small, edges, wrong)
flag = st.one_of(st.booleans(), st.booleans(), wrong, edges)
plain_ids = st.lists(small, max_size=5)
many_ids = st.integers(0, 400).map(lambda n: list(range(n)))
bad_ids = st.lists(number, max_size=4)
odd_ids = st.one_of(
    wrong,
    plain_ids.map(lambda ids: array("I", ids)),
    plain_ids.map(lambda ids: array("Q", ids)),
    plain_ids.map(lambda ids: dict.fromkeys(ids, 1)),
    plain_ids.map(Ids),
    st.binary(max_size=9),
    st.integers(0, 9).map(range),
    st.just(Unsized()),
)
ids = st.one_of(plain_ids, plain_ids, plain_ids.map(tuple), many_ids, bad_ids, odd_ids)

OTHER_THAN_NUMBERS = {"ids": ids, "pairs": ids, "hashes": ids, "host": flag, "resumed": flag}


class Shape(NamedTuple):
    """A method's parameters in order, each with what it may be given."""

    parameters: list[tuple[str, Any]]
    required: int


def _shape(names: str, required: int) -> Shape:
    return Shape([(name, OTHER_THAN_NUMBERS.get(name, number)) for name in names.split()], required)


SHAPES = {
    "allocate": _shape("owner ids tenant host", 2),
    "share": _shape("owner ids count tenant host", 3),
    "free": _shape("owner ids count outcome tenant host", 4),
    "copy_on_write": _shape("owner pairs tenant", 2),
    "swap_out": _shape("owner pairs tenant", 2),
    "swap_in": _shape("owner pairs tenant", 2),
    "cache": _shape("owner ids hashes tenant", 3),
    "evict": _shape("ids reason owner tenant", 1),
    "hold": _shape("owner ids reason lease_ms tenant", 4),
    "allocate_failed": _shape("owner needed free cached cause tenant", 5),
    "arrive": _shape("owner prompt_tokens max_tokens tenant", 3),
    "wait": _shape("owner cause flags blocker tenant", 3),
    "admit": _shape("owner tenant", 1),
    "reject": _shape("owner reason needed limit tenant", 2),
    "prefix_hit": _shape("owner tokens queried resumed tenant", 3),
    "preempt": _shape("owner beneficiary mode tokens_lost blocks_freed blocks_kept tenant", 6),
    "resume": _shape("owner tokens_found tenant", 2),
    "fork": _shape("owner parent tenant", 2),
    "first_token": _shape("owner resumed tenant", 1),
    "finish": _shape(
        "owner reason prompt_tokens output_tokens computed_tokens recomputed_tokens tenant", 6
    ),
    "step": _shape(
        "number prefill_tokens decode_tokens sequences context_tokens waiting schedule_ns"
        " compute_ns sample_ns",
        9,
    ),
    "pool": _shape(
        "total active cached free sum_of_counts checksum filled_slots largest_free_run host"
        " allocate_ns",
        6,
    ),
    "heartbeat": _shape("step live waiting", 3),
}
WITHOUT_ARGUMENTS = ("pause_writing", "resume_writing", "_wrap_soon", "_safe_point")


@st.composite
def typed_calls(draw: st.DrawFn) -> Call:
    """Draw a call of one typed method; now and then one argument too few or too many."""
    name = draw(st.sampled_from(sorted(SHAPES)))
    parameters, required = SHAPES[name]
    given = draw(st.integers(required, len(parameters)))
    positional = draw(st.integers(0, given)) if draw(st.integers(0, 3)) == 0 else given
    values = [(parameter, draw(kind)) for parameter, kind in parameters[:given]]
    named = dict(values[positional:])
    if draw(st.integers(0, 19)) == 0:
        named |= draw(st.sampled_from([{"nonsense": 1}, {parameters[0][0]: 1}]))
    arguments = tuple(value for _, value in values[:positional])
    if draw(st.integers(0, 29)) == 0:
        arguments = draw(st.sampled_from([(), arguments[:1], (*arguments, *range(20))]))
    return Call(name, arguments, named, draw(st.sampled_from([1, 1, 1, 1, 2, 70])))


calls = st.one_of(
    typed_calls(),
    typed_calls(),
    typed_calls(),
    typed_calls(),
    st.sampled_from(WITHOUT_ARGUMENTS).map(lambda name: Call(name, (), {})),
    st.text(max_size=4).map(lambda alias: Call("tenant", (alias,), {})),
    st.just(Call("config", ({"engine": "e"},), {})),
)
