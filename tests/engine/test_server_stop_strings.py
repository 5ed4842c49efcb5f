"""Stop strings cut the text before it is sent, wherever the pieces fall."""

from hypothesis import given
from hypothesis import strategies as st

from engine.server.stop_strings import StopStrings


def send(stops: tuple[str, ...], pieces: list[str]) -> str:
    cutter, sent = StopStrings(stops), ""
    for piece in pieces:
        cut = cutter.push(piece)
        sent += cut.text
        if cut.stopped:
            return sent
    return sent + cutter.flush()


def test_text_before_a_stop_string_is_sent_and_nothing_after_it():
    assert send(("\n\n",), ["one", " two\n", "\nthree"]) == "one two"


def test_a_tail_that_may_become_a_stop_string_is_held_back():
    cutter = StopStrings(("STOP",))

    assert cutter.push("go ST").text == "go "
    assert cutter.push("ART").text == "START"


def test_what_was_held_back_is_sent_when_the_text_ends():
    assert send(("STOP",), ["to be ST"]) == "to be ST"


def test_the_earliest_of_two_stop_strings_cuts():
    assert send(("d", "b"), ["abcd"]) == "a"


@given(
    st.text("ab", max_size=20),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1),
)
def test_text_ends_where_a_stop_string_begins_and_never_holds_one(text, stops, sizes):
    pieces, rest = [], text
    for size in sizes * 20:
        pieces.append(rest[:size])
        rest = rest[size:]
    whole = send(tuple(stops), pieces)

    assert text.startswith(whole)
    assert not any(stop in whole for stop in stops)
    if whole != text:
        assert any(text.startswith(stop, len(whole)) for stop in stops)
