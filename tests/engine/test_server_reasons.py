"""Every reason for which a request is refused, over HTTP, streaming and not, counted once."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic_ns

import pytest

from engine.errors import StepMemoryError
from engine.runner import StepPlan, StepResult
from engine.server.loaded_model import load_model
from kvpulse.events import REJECT_RULES, Kind, RejectReason
from tests.engine.factories_server import Pending, RunningServer, running_server, serve_options
from tests.engine.factories_server_journal import Recorded
from tests.waiting import wait_until

BASE = ("--simulated", "--step-ms", "40", "--num-blocks", "16", "--max-context", "1024")
LONG = {"prompt": [1] * 100, "max_tokens": 150}  # 7 blocks, growing to all 16


@dataclass(frozen=True)
class Case:
    """How a server comes to refuse, and what it is asked.

    Attributes:
        before: Requests that are sent first.
        state: Running and waiting sequences once they are under way.
        act: What else happens to the server first.
    """

    reason: RejectReason
    asked: dict[str, object]
    arguments: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    before: tuple[dict[str, object], ...] = ()
    state: tuple[int, int] = (0, 0)
    act: Callable[[RunningServer], object] = lambda server: None
    type: str = "BadRequestError"


CASES = (
    Case(RejectReason.CONTEXT_TOO_LONG, {"prompt": [1] * 1024}),
    Case(RejectReason.EXCEEDS_POOL, {"prompt": [1] * 200, "max_tokens": 100}),
    Case(
        RejectReason.EXCEEDS_QUOTA,
        {"prompt": [1] * 60, "max_tokens": 10, "user": "acme"},
        arguments=("--tenant-quota", "acme:ceiling=4"),
    ),
    Case(RejectReason.INVALID_REQUEST, {"prompt": [1], "n": 0}),
    Case(
        RejectReason.QUEUE_FULL,
        {"prompt": [1]},
        arguments=("--max-batch", "1", "--max-queue", "1"),
        before=(LONG, LONG),
        state=(1, 1),
        type="Too Many Requests",
    ),
    Case(
        RejectReason.ABOVE_WATERMARK,
        {"prompt": [1]},
        arguments=("--high-watermark", "0.4"),
        before=(LONG,),
        state=(1, 0),
        type="Service Unavailable",
    ),
    Case(
        RejectReason.POOL_TIMEOUT,
        {"prompt": [2] * 200, "max_tokens": 1},
        headers={"x_kvpulse_queue_timeout_ms": "250"},
        before=(LONG,),
        state=(1, 0),
        type="Service Unavailable",
    ),
    Case(
        RejectReason.DEADLINE,
        {"prompt": [1]},
        arguments=("--max-batch", "1"),
        headers={"x_kvpulse_timeout_ms": "250"},
        before=(LONG,),
        state=(1, 0),
        type="Gateway Timeout",
    ),
    Case(
        RejectReason.SHUTTING_DOWN,
        {"prompt": [1]},
        act=lambda server: server.on_engine(server.served.engine.begin_drain),
        type="Service Unavailable",
    ),
)


@contextlib.contextmanager
def _refusing(folder, case: Case) -> Iterator[RunningServer]:
    with running_server(folder, *BASE, *case.arguments) as server, contextlib.ExitStack() as sent:
        for body in case.before:
            sent.enter_context(Pending(server, body))
            wait_until(lambda: server.state()[0] == 1)
        wait_until(lambda: server.state() == case.state)
        case.act(server)
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason.name.lower())
def test_a_refusal_is_a_status_a_typed_body_and_one_record(tmp_path, case):
    with _refusing(tmp_path, case) as server:
        answers = [
            server.post({**case.asked, "stream": stream}, **case.headers)
            for stream in (False, True)
        ]
        server.check()
        rejected = server.accounts()["rejected_by_reason"]

    rule = REJECT_RULES[case.reason]
    name = case.reason.name.lower()
    for answer in answers:
        assert answer.status_code == rule.http_status
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-kvpulse-reason"] == name
        assert answer.headers["x-should-retry"] == ("true" if rule.retryable else "false")
        assert ("retry-after" in answer.headers) == rule.retryable
        assert int(answer.headers.get("retry-after", "1")) >= 1
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == (case.type, rule.http_status)
        assert set(error) == {"message", "type", "param", "code"}
    assert rejected == {name: 2}
    recorded = Recorded(tmp_path)
    owners = [int(answer.headers["x-kvpulse-owner"]) for answer in answers]
    assert recorded.field(Kind.REJECT, "aux") == [case.reason] * 2
    assert recorded.field(Kind.REJECT, "owner") == owners
    assert [recorded.field(Kind.ARRIVE, "owner").count(owner) for owner in owners] == [1, 1]


class ShortOfMemory:
    """A runner whose memory holds no step of a prompt, however short."""

    def __init__(self, runner) -> None:
        self._runner = runner

    def describe(self):
        return self._runner.describe()

    def execute(self, plan: StepPlan) -> StepResult:
        raise StepMemoryError("planted")


def test_a_step_that_no_memory_holds_is_503_out_of_memory(tmp_path):
    model = load_model(serve_options(tmp_path, *BASE), wall_ns=monotonic_ns)
    model = replace(model, runner=ShortOfMemory(model.runner))
    with running_server(tmp_path, *BASE, model=model) as server:
        answers = [server.post({"prompt": [1] * 40, "stream": stream}) for stream in (False, True)]
        server.check()

        assert server.accounts()["rejected_by_reason"] == {"out_of_memory": 2}
        assert server.is_idle()
    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["x-kvpulse-reason"] == "out_of_memory"
        assert answer.headers["x-should-retry"] == "true"
        assert int(answer.headers["retry-after"]) >= 1


def test_every_other_reason_is_among_the_cases():
    assert {case.reason for case in CASES} == set(RejectReason) - {RejectReason.OUT_OF_MEMORY}


def test_a_time_that_is_over_while_it_runs_is_504_or_a_line_in_its_stream(tmp_path):
    with running_server(tmp_path, *BASE) as server:
        whole = server.post(LONG, x_kvpulse_timeout_ms="700")
        stream = server.post({**LONG, "stream": True}, x_kvpulse_timeout_ms="700")

        assert whole.status_code == 504
        assert whole.headers["x-kvpulse-reason"] == "deadline"
        assert whole.headers["x-should-retry"] == "true"
        assert stream.status_code == 200
        assert '"code":504' in stream.text
        assert stream.text.endswith("data: [DONE]\n\n")
        wait_until(server.is_idle)
        assert server.accounts()["finished_by_reason"] == {"timeout": 2}


def test_the_servers_own_limit_holds_for_who_asks_for_none(tmp_path):
    arguments = (*BASE, "--max-batch", "1", "--queue-timeout-seconds", "0.1")
    with running_server(tmp_path, *arguments) as server, Pending(server, LONG):
        wait_until(lambda: server.state() == (1, 0))

        answer = server.post({"prompt": [1], "stream": True})

        assert answer.status_code == 504
        assert answer.headers["x-kvpulse-reason"] == "deadline"


def test_a_tier_has_a_queue_and_a_context_of_its_own(tmp_path):
    arguments = (*BASE, "--max-batch", "1", "--tier", "batch:max-queue=1,max-context=64")
    with (
        running_server(tmp_path, *arguments) as server,
        Pending(server, LONG),
        Pending(server, {"prompt": [1], "service_tier": "flex"}),
    ):
        wait_until(lambda: server.state() == (1, 1))

        full = server.post({"prompt": [1]}, x_kvpulse_tier="batch")
        long = server.post({"prompt": [1] * 64}, x_kvpulse_tier="batch")

        assert full.headers["x-kvpulse-reason"] == "queue_full"
        assert long.headers["x-kvpulse-reason"] == "context_too_long"
        assert "64 tokens" in long.json()["error"]["message"]
