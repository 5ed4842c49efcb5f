"""Faults in a server that answers over HTTP, on the machine's own clock."""

import time
from collections import Counter

import httpx
import pytest

from kvpulse.events import FORMS, Kind, StepWord
from tests.engine.factories_faults import lines_of, read, records_of
from tests.engine.factories_server import running_server
from tests.waiting import wait_until

TINY = ("--simulated", "--step-ms", "2", "--num-blocks", "64", "--max-context", "256")


def complete(server, *, tokens=8):
    started = time.monotonic()
    body = {"prompt": [5, 6, 7, 8], "max_tokens": tokens}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=30)
    assert answer.status_code == 200
    return time.monotonic() - started


def test_a_request_is_held_before_the_engine_has_it_and_that_is_recorded(tmp_path):
    truth = tmp_path / "truth"
    faults = ("--fault", "slow_frontend:delay_seconds=0.4", "--faults-truth", str(truth))
    with running_server(tmp_path, *TINY, *faults) as server:
        took = complete(server)
        directory = server.served.recorder.directory

    (line,) = lines_of(truth)
    assert took > line["delay_ns"] / 1e9 > 0.2
    ((record, _),) = records_of(directory, Kind.ARRIVE)
    assert record["aux"] - 1 >= line["delay_ns"] // 1000


def test_a_hog_sends_to_a_real_model_in_its_own_tokens(tmp_path):
    pytest.importorskip("torch", reason="no torch: make setup installs it")
    arguments = ("--model", "random", "--num-blocks", "64", "--max-context", "256")
    fault = "hog_tenant:every_seconds=0.05,prompt_tokens=24,max_tokens=4"
    with running_server(tmp_path, *arguments, "--fault", fault) as server:
        wait_until(lambda: server.accounts()["finished_by_reason"].get("length", 0) >= 3)
        complete(server, tokens=2)
        directory = server.served.recorder.directory

    lengths = Counter(words[0] for _, words in records_of(directory, Kind.ARRIVE))
    assert lengths[24] >= 3
    assert lengths[4] == 1
    assert not server.failures


def test_a_slow_model_really_takes_its_time(tmp_path):
    pytest.importorskip("torch", reason="no torch: make setup installs it")
    arguments = ("--model", "random", "--num-blocks", "64", "--max-context", "256")
    with running_server(tmp_path, *arguments, "--fault", "slow_step:factor=20") as server:
        took = complete(server, tokens=16)
        directory = server.served.recorder.directory

    compute = [
        words[StepWord.COMPUTE_LOW] | words[StepWord.COMPUTE_HIGH] << 32
        for _, words in records_of(directory, Kind.STEP)
    ]
    assert len(compute) >= 16
    assert took >= sum(compute) / 1e9


def test_a_server_whose_recording_has_holes_accounts_for_every_event(tmp_path):
    fault = "drop_events:after_seconds=0.1,drop_seconds=0.2,keep_seconds=0.3"
    with running_server(tmp_path, *TINY, "--fault", fault) as server:
        ends_at = time.monotonic() + 1.2
        while time.monotonic() < ends_at:
            complete(server, tokens=16)
        recorder, engine = server.served.recorder, server.served.engine

    stored, lost = Counter(), Counter()
    for batch in read(recorder.directory):
        for record in batch.records:
            kind = Kind(int(record["kind"]))
            stored[kind] += int(record["n"]) if FORMS[kind].counts_blocks else 1
        if batch.gap is not None:
            lost.update({kind: batch.gap.lost[kind] for kind in Kind})
    assert +lost == Counter(recorder.not_written())
    assert sum(lost.values()) > 10
    assert dict(stored + lost) == {kind: n for kind, n in engine.accounts().acts.items() if n}
