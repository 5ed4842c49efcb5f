"""The pieces of the demonstration: its workload, its client, its children, its sums."""

import asyncio
import signal
import sys
import time

import psutil
import pytest

from engine.demo.http_client import Exchange, UnreachableError, get
from engine.demo.options import has_room, parse_options
from engine.demo.processes import Child, ChildFailedError, wait_for
from engine.demo.status_line import describe, lost_events
from engine.demo.summary import accounts_of_crash, in_words, summarize
from engine.demo.workload import REAL_SHAPE, SIMULATED_SHAPE, Prompts
from engine.server.listening import bind_exactly
from tests.engine.factories_server import running_server
from tests.waiting import wait_until


@pytest.mark.parametrize("shape", [REAL_SHAPE, SIMULATED_SHAPE])
def test_the_shape_leaves_room_for_every_kind_of_refusal(shape):
    prompts = Prompts(shape, seed=1)

    assert len(prompts.over_long()["prompt"]) > shape.max_context
    assert shape.pool_tokens < len(prompts.never_fitting()["prompt"]) < shape.max_context
    assert shape.burst_requests > shape.max_queue


def test_the_same_seed_sends_the_same_workload():
    first, second, other = (Prompts(REAL_SHAPE, seed=seed) for seed in (1, 1, 2))

    sent = [[p.chat(), p.search(), p.report(), p.over_long()] for p in (first, second, other)]

    assert sent[0] == sent[1] != sent[2]


ACCOUNTS = {
    "events_emitted": 5,
    "per_kind": {"arrive": 2, "allocate": 3},
    "requests": 2,
    "finished_by_reason": {"length": 1, "rejected": 1},
    "rejected_by_reason": {"queue_full": 1},
    "preemptions": 0,
    "prefix_hit_tokens": 0,
    "cancelled": 0,
}
STORED = {
    "stored": 5,
    "lost": 0,
    "per_kind": {"arrive": {"stored": 2, "lost": 0}, "allocate": {"stored": 3, "lost": 0}},
    "seconds_with_pool_wait": 0,
    "audits_passed": 4,
    "audits_failed": 0,
    "ledger_balanced": True,
    "active_blocks_at_end": 0,
    "leaked_blocks": [],
    "refused_frees": 0,
}


def test_a_run_that_adds_up_has_no_fault():
    summary = summarize(ACCOUNTS, STORED)

    assert summary.faults == []
    assert summary.ledger_balanced
    assert summary.per_kind["allocate"] == {"emitted": 3, "stored": 3, "lost": 0}


def test_an_event_that_nobody_accounts_for_is_a_fault():
    kinds = {"arrive": {"stored": 2, "lost": 0}, "allocate": {"stored": 2, "lost": 0}}

    summary = summarize(ACCOUNTS, {**STORED, "per_kind": kinds})

    assert summary.faults == ["emitted is not stored + lost for allocate"]
    assert not summary.ledger_balanced


def test_an_event_the_engine_never_counted_is_a_fault():
    kinds = {**STORED["per_kind"], "share": {"stored": 1, "lost": 0}}

    assert summarize(ACCOUNTS, {**STORED, "per_kind": kinds}).faults


def test_a_broken_law_of_the_ledger_is_a_fault_by_itself():
    summary = summarize(ACCOUNTS, {**STORED, "ledger_balanced": False})

    assert summary.faults == ["the ledger does not balance"]


def test_lost_events_failed_audits_and_leaks_are_faults():
    leaks = [{"block": b, "owner": 7} for b in (4, 3, 5, 9)] + [{"block": 9, "owner": 8}]

    summary = summarize(ACCOUNTS, {**STORED, "lost": 2, "audits_failed": 1, "leaked_blocks": leaks})

    assert "2 events were lost" in summary.faults
    assert "1 audits failed" in summary.faults
    assert "4 blocks leaked" in summary.faults
    assert in_words(summary)[-2:] == [
        "LEAK: sequence 7 ended and kept blocks 3-5, 9",
        "LEAK: sequence 8 ended and kept blocks 9",
    ]


def test_a_request_with_two_answers_ends_once():
    ends = {"finished_by_reason": {"length": 3, "rejected": 1, "stop": 1}, "requests": 3}
    forks = {"forks_finished_by_reason": {"length": 1, "stop": 1}}

    summary = summarize({**ACCOUNTS, **ends, **forks}, STORED)

    assert summary.finished_by_reason == {"length": 2, "rejected": 1}


def test_blocks_freed_twice_are_a_fault():
    summary = summarize(ACCOUNTS, {**STORED, "refused_frees": 3})

    assert summary.faults == ["3 blocks were freed although nobody held them"]
    assert in_words(summary)[-1] == "DOUBLE FREE: the pool refused 3 frees of blocks"


def test_what_was_made_to_go_wrong_is_said_and_is_no_fault_by_itself():
    summary = summarize(ACCOUNTS, STORED, injected=["slow_step (steps take several times as long)"])

    assert summary.faults == []
    assert in_words(summary)[-1].startswith("made to go wrong: slow_step (steps")


def test_an_engine_that_was_killed_is_summed_up_from_what_is_stored():
    summary = summarize(accounts_of_crash(STORED), STORED)

    assert summary.faults == ["the engine died before it could end"]
    assert summary.events_emitted is None
    assert summary.requests == 2
    assert summary.per_kind["allocate"] == {"emitted": None, "stored": 3, "lost": 0}
    assert in_words(summary)[0] == "events: an unknown number emitted, 5 stored, 0 lost"


def test_the_status_line_says_blocks_queue_speed_and_losses():
    metrics = (
        b"# TYPE kvpulse_events_lost_total counter\n"
        b'kvpulse_events_lost_total{engine="a",kind="free"} 2.0\n'
        b'kvpulse_events_lost_total{engine="a",kind="wait"} 1.0\n'
    )
    accounts = {"active_blocks": 5, "cached_blocks": 2, "free_blocks": 1, "waiting": 3}

    line = describe(accounts, 41.6, lost_events(metrics))

    assert line == "active 5 cached 2 free 1 | waiting 3 | 42 tokens/s | rejected 0 | lost 3"


def test_the_client_reads_whole_answers_and_streams_and_can_leave(tmp_path):
    async def talk(url: str) -> tuple[int, list[str]]:
        path = f"{url}/v1/completions"
        body = {"prompt": [1], "max_tokens": 900, "stream": True}
        async with Exchange(path, body={**body, "max_tokens": 2}) as exchange:
            events = [event async for event in exchange.events()]
        async with Exchange(path, body=body) as exchange:
            async for _ in exchange.events():
                break
        async with Exchange(path, body={"prompt": {}}) as exchange:
            status = (await exchange.read()).status
        assert (await get(f"{url}/health")).json() == {"status": "ok"}
        return status, events

    with running_server(tmp_path, "--simulated", "--step-ms", "5") as server:
        status, events = asyncio.run(talk(server.url))
        wait_until(lambda: server.accounts()["cancelled"] == 1)

    assert status == 400
    assert len(events) == 3
    assert events[-1] == "[DONE]"


def test_an_address_where_nobody_answers_is_an_error_that_names_it():
    listener = bind_exactly("127.0.0.1", 0)
    listener.socket.close()

    with pytest.raises(UnreachableError, match=listener.url):
        asyncio.run(get(f"{listener.url}/health"))


def test_a_child_that_ends_by_itself_is_noticed_with_its_last_words(tmp_path):
    child = Child("part", ["nonsense"], log=tmp_path / "log")

    with pytest.raises(ChildFailedError, match="no command 'nonsense'"):
        wait_for(lambda: False, children=[child], timeout_seconds=30)
    assert child.stop(patience_seconds=0) == 2


def test_a_child_is_ended_with_its_whole_group_even_when_it_does_not_listen(tmp_path, monkeypatch):
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "$SCRIPT"\n')
    fake.chmod(0o700)
    monkeypatch.setenv("SCRIPT", script)
    monkeypatch.setattr(sys, "executable", str(fake))
    log = tmp_path / "log"
    child = Child("deaf", [], log=log)
    wait_until(lambda: log.read_text().strip())
    grandchild = psutil.Process(int(log.read_text()))

    started = time.monotonic()
    assert child.stop(patience_seconds=0.2) == -signal.SIGKILL

    assert time.monotonic() - started < 5
    psutil.wait_procs([grandchild], timeout=5)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_a_demo_without_a_model_says_why_and_simulates(monkeypatch, tmp_path):
    monkeypatch.setenv("KVPULSE_MODEL", str(tmp_path / "none.gguf"))

    options = parse_options(["--seconds", "5"])

    assert options.simulated
    assert options.shape is SIMULATED_SHAPE
    assert "none.gguf" in options.why_simulated or "not installed" in options.why_simulated


def test_room_is_judged_where_the_folder_will_be(tmp_path):
    assert has_room(tmp_path / "not" / "there" / "yet") == has_room(tmp_path)
