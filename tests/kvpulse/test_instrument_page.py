"""The example on the page for engine builders runs as it stands and says what it says."""

import re
from pathlib import Path

from kvpulse.events import Kind, RejectReason, SequenceState
from kvpulse.keyframe_decoder import decode_keyframe
from kvpulse.reader import StreamReader, list_streams
from kvpulse.recorder import Recorder
from kvpulse.stream_values import expand_words
from tests.kvpulse.factories_journal import batches, of_kind, run_python

PAGE = Path(__file__).parents[2] / "docs" / "instrument-your-engine.md"
EXAMPLE = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


def test_the_example_runs_and_its_journal_tells_the_story(tmp_path):
    done = run_python(EXAMPLE, tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")

    (stream,) = list_streams(tmp_path)
    read = batches(stream)
    kinds = [Kind(int(kind)).name.lower() for batch in read for kind in batch.records["kind"]]

    assert stream.parent.name == "toy"
    assert kinds == [
        *("keyframe", "config", "define", "arrive", "admit", "allocate", "first_token"),
        *("arrive", "admit", "allocate", "first_token", "arrive", "reject", "step", "keyframe"),
        *("heartbeat", "free", "finish", "step"),
    ]
    ((rejected, words),) = of_kind(read, Kind.REJECT)
    assert (rejected["owner"], rejected["aux"], words) == (3, RejectReason.EXCEEDS_POOL, [113, 32])
    assert [len(words) for _, words in of_kind(read, Kind.ALLOCATE)] == [13, 18]
    with StreamReader(stream) as reader:
        assert reader.status().writer == "finished"


def test_the_keyframe_of_the_example_knows_both_requests_and_all_blocks(tmp_path):
    assert run_python(EXAMPLE, tmp_path).returncode == 0
    (stream,) = list_streams(tmp_path)
    (batch,) = batches(stream)

    keyframe, strings = decode_keyframe(
        expand_words(batch, batch.records["kind"].tolist().index(Kind.HEARTBEAT) - 1)
    )

    assert strings == {1: "acme"}
    assert sum(keyframe.counts) == 31
    assert {row.owner: (row.state, len(row.table)) for row in keyframe.sequences} == {
        1: (SequenceState.RUNNING, 13),
        2: (SequenceState.RUNNING, 18),
    }


def test_the_example_is_short_and_every_call_on_the_page_exists():
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE.read_text()))
    calls = {kind.name.lower() for kind in Kind} - {"keyframe", "define"}

    assert len(EXAMPLE.splitlines()) <= 70
    assert {name for name in named & calls if not hasattr(Recorder, name)} == set()
    assert {"arrive", "allocate", "free", "pool", "heartbeat", "step"} <= named
