"""An engine that raises ends every request with an error, and the server."""

from threading import Thread

import httpx
import openai
import pytest

from engine.commands import serve
from engine.runner import StepPlan, StepResult
from engine.server.listening import bind_exactly
from engine.server.loaded_model import load_model
from tests.engine.factories_server import running_server, serve_options
from tests.waiting import wait_until


class FailingRunner:
    """Runs some steps, then raises."""

    def __init__(self, runner, *, steps: int) -> None:
        self._runner = runner
        self._steps = steps

    def describe(self):
        return self._runner.describe()

    def execute(self, plan: StepPlan) -> StepResult:
        self._steps -= 1
        if self._steps < 0:
            raise RuntimeError("the planted failure")
        return self._runner.execute(plan)


def _failing(folder, *, steps: int):
    model = load_model(serve_options(folder, "--simulated", "--step-ms", "1"), wall_ns=lambda: 0)
    object.__setattr__(model, "runner", FailingRunner(model.runner, steps=steps))
    return model


def test_a_failed_step_ends_its_requests_with_an_error(tmp_path, caplog):
    with (
        running_server(tmp_path, "--simulated", model=_failing(tmp_path, steps=0)) as server,
        server.client(max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="simulated", prompt=[1], max_tokens=3)

        assert caught.value.status_code == 500
        wait_until(lambda: server.failures)
        assert not server.thread.alive
        accounts = server.served.engine.accounts()
        assert accounts.finished_by_reason == {"error": 1}
        assert accounts.active_blocks == 0
        assert httpx.get(f"{server.url}/health").status_code == 503
    assert "the planted failure" in caplog.text


def test_a_stream_that_fails_half_way_says_so_inside_the_stream(tmp_path):
    with running_server(tmp_path, "--simulated", model=_failing(tmp_path, steps=2)) as server:
        body = {"prompt": [1], "max_tokens": 9, "stream": True}

        answer = httpx.post(f"{server.url}/v1/completions", json=body)

        assert answer.status_code == 200
        assert answer.text.count('"text":') == 2
        assert '"code":500' in answer.text
        assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_all_samples_of_a_failed_request_end_with_one_error(tmp_path, stream):
    with running_server(tmp_path, "--simulated", model=_failing(tmp_path, steps=3)) as server:
        body = {"prompt": [[1], [2]], "n": 3, "max_tokens": 9, "stream": stream}

        answer = server.post(body)

        assert answer.status_code == (200 if stream else 500)
        assert answer.text.count('"code":500') == 1
        wait_until(lambda: not server.thread.alive)
        accounts = server.served.engine.accounts()
        assert accounts.finished_by_reason == {"error": 6}
        assert accounts.active_blocks == 0
        server.served.engine.check()  # its thread has ended


def test_a_failure_before_the_first_token_of_a_stream_is_a_status(tmp_path):
    with running_server(tmp_path, "--simulated", model=_failing(tmp_path, steps=0)) as server:
        answer = server.post({"prompt": [1], "stream": True})

        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "InternalServerError"


def test_the_process_of_a_failed_engine_ends_with_one(tmp_path, monkeypatch):
    model = _failing(tmp_path, steps=1)
    monkeypatch.setattr(serve, "load_model", lambda options, wall_ns: model)
    listener = bind_exactly("127.0.0.1", 0)
    listener.socket.close()

    def ask() -> None:
        transport = httpx.HTTPTransport(retries=8)  # with growing pauses, until it listens
        with httpx.Client(base_url=listener.url, transport=transport, timeout=20) as client:
            client.post("/v1/completions", json={"prompt": [1]})

    client = Thread(target=ask)
    client.start()
    arguments = ["--journal", str(tmp_path / "journal"), "--key-file", str(tmp_path / "key")]
    exit_code = serve.main([*arguments, "--simulated", "--port", str(listener.port)])
    client.join()

    assert exit_code == 1


def test_a_question_to_a_stopped_engine_is_an_error_and_not_a_wait(tmp_path):
    with running_server(tmp_path, "--simulated", model=_failing(tmp_path, steps=0)) as server:
        httpx.post(f"{server.url}/v1/completions", json={"prompt": [1]})
        wait_until(lambda: not server.thread.alive)

        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": [1]})

        assert answer.status_code == 500
