"""How long a request was in the server before the engine had it, as the journal holds it."""

import time

import httpx

from engine.server.accept_time import STATE_KEY, accepted_ns
from kvpulse.events import ArriveWord, Kind
from tests.engine.factories_server import Pending, connect, request_head, running_server
from tests.engine.factories_server_journal import Recorded
from tests.waiting import wait_until

ARGUMENTS = ("--simulated", "--step-ms", "1")


def test_every_arrival_says_how_long_the_front_end_took(tmp_path):
    with running_server(tmp_path, *ARGUMENTS) as server:
        started = time.monotonic_ns()
        with httpx.Client(base_url=server.url) as client:
            for body in ({"prompt": [1], "max_tokens": 1}, {"prompt": [[1], [2]]}, {"n": 0}):
                client.post("/v1/completions", json=body)
        took_us = (time.monotonic_ns() - started) // 1000

    micros = Recorded(tmp_path).field(Kind.ARRIVE, "aux")
    assert len(micros) == 4
    assert min(micros) > 1
    assert sum(micros) - len(micros) < took_us


def test_a_body_that_comes_slowly_counts_from_its_first_byte(tmp_path):
    pause_seconds = 0.3
    with running_server(tmp_path, *ARGUMENTS) as server:
        body = b'{"prompt":[1]}'
        with connect(server) as connection:
            connection.sendall(request_head(len(body)))
            time.sleep(pause_seconds)  # what is to be measured
            connection.sendall(body)
            assert connection.recv(64).startswith(b"HTTP/1.1 200")

    (micros,) = Recorded(tmp_path).field(Kind.ARRIVE, "aux")
    # The server may have seen the first byte a little after it was sent.
    assert pause_seconds / 2 * 1e6 < micros < (pause_seconds + 5) * 1e6


def test_a_connection_that_rests_between_two_requests_costs_the_second_nothing(tmp_path):
    rest_seconds = 0.3
    with running_server(tmp_path, *ARGUMENTS) as server:
        body = {"prompt": [1], "max_tokens": 1}
        with httpx.Client(base_url=server.url) as client:
            client.post("/v1/completions", json=body)
            time.sleep(rest_seconds)  # what is not to be measured
            asked = time.monotonic()
            client.post("/v1/completions", json=body)
            took_seconds = time.monotonic() - asked

    micros = Recorded(tmp_path).field(Kind.ARRIVE, "aux")
    assert micros[1] < took_seconds * 1e6


def test_waiting_in_the_engines_queue_is_no_part_of_it(tmp_path):
    arguments = ("--simulated", "--step-ms", "20", "--max-batch", "1")
    with running_server(tmp_path, *arguments) as server:
        long = {"prompt": [1], "max_tokens": 20}
        with Pending(server, long), Pending(server, long) as second:
            wait_until(lambda: server.state() == (1, 1))
            queued_from = time.monotonic()
            second.begun()
            queued_seconds = time.monotonic() - queued_from

    micros = Recorded(tmp_path).field(Kind.ARRIVE, "aux")
    assert max(micros) < queued_seconds * 1e6


def test_a_slow_front_end_shows_in_every_arrival(tmp_path):
    fault = ("--fault", "slow_frontend:delay_seconds=0.2")
    with running_server(tmp_path, *ARGUMENTS, *fault) as server:
        server.post({"prompt": [1], "max_tokens": 1})
        server.post({"n": 0})

    assert min(Recorded(tmp_path).field(Kind.ARRIVE, "aux")) > 100_000  # half the mean at least


def test_a_request_that_nobody_timed_counts_from_now():
    assert accepted_ns({"type": "http"}, now_ns=lambda: 77) == 77
    assert accepted_ns({"state": {STATE_KEY: 5}}, now_ns=lambda: 77) == 5


def test_tier_priority_and_deadline_are_recorded(tmp_path):
    with running_server(tmp_path, *ARGUMENTS) as server:
        server.post({"prompt": [1], "max_tokens": 1, "priority": -7, "service_tier": "flex"})
        server.post({"prompt": [1], "max_tokens": 1}, x_kvpulse_timeout_ms="60000")

    batch, timed = Recorded(tmp_path).words(Kind.ARRIVE)
    assert batch[ArriveWord.PRIORITY] == 2**32 - 7
    assert batch[ArriveWord.TIER] == 1
    assert batch[ArriveWord.DEADLINE_LOW] == batch[ArriveWord.DEADLINE_HIGH] == 0
    deadline = int(timed[ArriveWord.DEADLINE_LOW]) | int(timed[ArriveWord.DEADLINE_HIGH]) << 32
    arrived = Recorded(tmp_path).field(Kind.ARRIVE, "ts_ns")[1]
    assert 50e9 < deadline - arrived <= 60e9
