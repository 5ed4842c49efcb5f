"""`kvpulse doctor --url`: cases T1 to T4 of scraped engines, over HTTP, at the test's clock."""

import argparse
import json
from collections.abc import Callable, Iterator

import pytest

from agent.commands import doctor
from agent.commands.doctor_url import Looks
from agent.errors import ConfigError
from agent.scraped.address import parse_address
from agent.scraped.errors import PageUnreachable
from agent.sources.http_page import fetch
from kvpulse.command import main as kvpulse
from tests.agent import vllm_pages as vllm
from tests.agent.page_server import Served, serving
from tests.agent.vllm_pages import page

KEYS = {"verdict", "confidence", "evidence", "action", "contributing", "window"}
START = 1_796_000_000.0
BIG_POOL = {"block_size": 16, "num_gpu_blocks": 800, "kv_cache_size_tokens": 12_800}
FLOWING = {vllm.STEPS: 60.0, vllm.DECODED: 500.0, vllm.FIRST_TOKENS: 2.0}  # per look


class Clock:
    """Time that passes only when somebody sleeps, and how often the page was asked for."""

    def __init__(self) -> None:
        self.now = START

    def looks(self) -> Looks:
        return Looks(
            wall_ns=lambda: int(self.now * 1e9), seconds=lambda: self.now, sleep=self._sleep
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


def look_by_look(make: Callable[[int], str]) -> Callable[[], str]:
    """Return what a server says at its first, second, … look."""
    numbers = iter(range(1_000))
    return lambda: make(next(numbers))


def flowing(number: int) -> dict[str, float]:
    """Return what counters have risen by, at the so-manieth look."""
    return {name: number * step for name, step in FLOWING.items()}


def ask(served: Served, capsys, *flags: str) -> tuple[int, dict]:
    arguments = doctor._parser().parse_args(["--url", served.url, "--json", *flags])
    code = doctor._of_page(arguments, Clock().looks())
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() >= KEYS
    return code, answer


def texts(answer: dict) -> str:
    return "; ".join([answer["summary"], *(each["text"] for each in answer["evidence"])])


def verdicts(answer: dict) -> list[str]:
    return [answer["verdict"], *(each["verdict"] for each in answer["contributing"])]


def test_t1_nothing_moves_though_blocks_are_free_is_a_stall(served, capsys):
    still = {vllm.RUNNING: 0, vllm.WAITING: 6, vllm.CAPACITY: 6, vllm.USAGE: 0.0}
    served.page = lambda: page(still)

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"], answer["action"]) == (1, "stalled", "restart")
    assert "nothing moves though 255 blocks are free" in answer["summary"]
    assert set(verdicts(answer)) <= {"stalled", "unknown"}


def test_t2_more_blocks_held_than_two_requests_can_own_is_a_leak(served, capsys):
    served.max_model_len = 4_096
    served.page = look_by_look(
        lambda number: page(
            {vllm.RUNNING: 2, vllm.WAITING: 0, vllm.CAPACITY: 0, vllm.USAGE: 0.60 + 0.03 * number},
            added=flowing(number),
            config=BIG_POOL,
        )
    )

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"], answer["action"]) == (1, "pool_leak", "fix_code")
    assert "2 requests can own at most 512 blocks = 64%, 576 are held" in texts(answer)
    assert "480 blocks were held at the start" in texts(answer)
    assert verdicts(answer) == ["pool_leak"]


@pytest.mark.parametrize(
    ("config", "waiting", "why"),
    [
        ({**BIG_POOL, "kv_cache_size_tokens": 6_400}, 0, "more than one KV group"),
        (BIG_POOL, 1, "requests wait"),
    ],
)
def test_what_may_be_no_leak_is_unknown_with_the_reason(served, capsys, config, waiting, why):
    served.max_model_len = 4_096
    queue = {vllm.RUNNING: 2, vllm.WAITING: waiting, vllm.CAPACITY: waiting, vllm.USAGE: 0.72}
    served.page = look_by_look(lambda number: page(queue, added=flowing(number), config=config))

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"]) == (1, "unknown")
    assert why in answer["summary"]


@pytest.mark.parametrize(
    ("flags", "confidence", "said"),
    [
        (["--max-num-seqs", "48"], "high", "48 run, at most 48 may"),
        ([], "medium", "48 run, unchanging: a cap near 48"),
    ],
)
def test_t3_a_full_batch_with_room_in_the_pool_is_the_batch(
    served, capsys, flags, confidence, said
):
    queue = {vllm.RUNNING: 48, vllm.WAITING: 200, vllm.CAPACITY: 200, vllm.USAGE: 0.35}
    served.page = look_by_look(lambda number: page(queue, added=flowing(number)))

    code, answer = ask(served, capsys, "--max-model-len", "1024", *flags)

    assert (code, answer["verdict"], answer["confidence"]) == (1, "batch_slots", confidence)
    assert said in answer["summary"]
    assert "the pool is not the cause" in texts(answer)
    assert "max_num_seqs" in answer["advice"]
    assert not {"pool_exhausted", "compute_slow"} & set(verdicts(answer))


def test_a_queue_that_nothing_explains_is_unknown_and_says_between_what(served, capsys):
    served.page = look_by_look(
        lambda number: page(
            {vllm.RUNNING: 40 + number, vllm.WAITING: 9, vllm.CAPACITY: 9, vllm.USAGE: 0.5},
            added=flowing(number),
        )
    )

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"]) == (1, "unknown")
    assert "nothing tells whether for blocks, for a place in the batch" in answer["summary"]


def test_t4_a_full_pool_with_preemptions_and_a_queue_is_exhausted(served, capsys):
    queue = {vllm.RUNNING: 9, vllm.WAITING: 60, vllm.CAPACITY: 60, vllm.USAGE: 0.99}
    served.page = look_by_look(
        lambda number: page(queue, added={**flowing(number), vllm.PREEMPTED: 10 * number})
    )

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"], answer["action"]) == (1, "pool_exhausted", "scale")
    assert "3.12 preemptions a second" in texts(answer)
    assert not {"batch_slots", "healthy"} & set(verdicts(answer))


def test_an_engine_at_work_with_nobody_waiting_is_healthy(served, capsys):
    queue = {vllm.RUNNING: 4, vllm.WAITING: 0, vllm.CAPACITY: 0, vllm.USAGE: 0.4}
    served.page = look_by_look(lambda number: page(queue, added=flowing(number)))

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"]) == (0, "healthy")
    assert answer["missing"].keys() == {"books", "wait_causes", "past", "recomputed_tokens"}
    assert 10 <= answer["window"]["seconds"] <= 20


def test_an_idle_engine_is_healthy(served, capsys):
    idle = {vllm.RUNNING: 0, vllm.WAITING: 0, vllm.CAPACITY: 0, vllm.USAGE: 0.0}
    served.page = lambda: page(idle)

    assert ask(served, capsys)[0] == 0


def test_tokens_that_come_slower_than_ever_before_are_no_health_without_a_past(served, capsys):
    queue = {vllm.RUNNING: 4, vllm.WAITING: 0, vllm.CAPACITY: 0, vllm.USAGE: 0.4}
    slow = {
        "vllm:inter_token_latency_seconds_count": 500.0,
        ("vllm:inter_token_latency_seconds_sum"): 500 * 3 * 0.0161,
        ("vllm:inter_token_latency_seconds_bucket"): 500.0,
    }
    served.page = look_by_look(
        lambda number: page(
            queue,
            added={**flowing(number), **{name: number * step for name, step in slow.items()}},
        )
    )

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"]) == (1, "unknown")
    assert "tokens come 3.0 times as slowly as on average since the start" in answer["summary"]


def test_a_restart_between_two_looks_is_a_new_run_and_no_negative_rate(served, capsys):
    queue = {vllm.RUNNING: 4, vllm.WAITING: 0, vllm.CAPACITY: 0, vllm.USAGE: 0.4}
    served.page = look_by_look(
        lambda number: page(
            queue | ({vllm.STEPS: number * 60, vllm.DECODED: number * 500} if number > 1 else {}),
            added={vllm.FIRST_TOKENS: 2.0 * number},
        )
    )

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"]) == (0, "healthy")
    assert answer["window"]["seconds"] == pytest.approx(6.4)  # from the third look on


def test_a_page_that_stops_answering_says_nothing_of_now(served, capsys):
    queue = {vllm.RUNNING: 48, vllm.WAITING: 200, vllm.CAPACITY: 200, vllm.USAGE: 0.35}

    def dies(number: int) -> str:
        served.status = 200 if number < 3 else 500
        return page(queue, added=flowing(number))

    served.page = look_by_look(dies)

    code, answer = ask(served, capsys)

    assert (code, verdicts(answer)) == (1, ["telemetry_incomplete"])


def test_two_engines_on_one_page_are_judged_each_the_worst_first(served, capsys):
    well = page({vllm.RUNNING: 0, vllm.WAITING: 0, vllm.CAPACITY: 0, vllm.USAGE: 0.0})
    ill = page({vllm.RUNNING: 0, vllm.WAITING: 6, vllm.CAPACITY: 6, vllm.USAGE: 0.0})
    both = well + "\n".join(
        line for line in ill.replace('engine="0"', 'engine="1"').splitlines() if "engine=" in line
    )
    served.page = lambda: both + "\n"

    code, answer = ask(served, capsys)

    assert code == 1
    assert [each["verdict"] for each in answer["engines"]] == ["stalled", "healthy"]
    assert answer["engine"].endswith("/metrics engine 1")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, "", "HTTP 500"),
        (302, "", "it redirects"),
        (200, "<html>hello</html>", "cannot use"),
        (200, 'vllm:x{a="1" 2\n', "no page in Prometheus' text format"),
        (200, "up 1\n", "it has no vllm:num_requests_running"),
        (200, b"\xff\xfe\x00", "no page in Prometheus' text format"),
    ],
)
def test_a_page_that_is_none_gives_a_document_and_exits_with_3(served, capsys, status, body, why):
    served.status, served.page = status, lambda: body
    served.headers["Location"] = "http://192.0.2.1/elsewhere"

    code, answer = ask(served, capsys)

    assert (code, answer["verdict"]) == (3, "unknown")
    assert why in answer["missing"]["source"]
    assert {path for path, _ in served.asked} == {"/metrics"}


def test_a_password_is_sent_to_the_server_and_shown_to_nobody(served, capsys):
    served.status = 401
    url = served.url.replace("http://", "http://joe:se%63ret@") + "/metrics?token=hush"

    code = doctor._of_page(argparse.Namespace(**_plain(url)), Clock().looks())

    said = capsys.readouterr().out
    assert code == 3
    assert "HTTP 401" in said
    assert not any(word in said for word in ("joe", "secret", "se%63ret", "hush"))
    assert served.asked[0] == ("/metrics?token=hush", "Basic am9lOnNlY3JldA==")


def _plain(url: str) -> dict[str, object]:
    return vars(doctor._parser().parse_args(["--url", url, "--json"]))


@pytest.mark.parametrize(
    "flags",
    [
        ["--url", "ftp://joe:hush@host/metrics"],
        ["--url", "file:///etc/passwd"],
        ["--url", "http://host:port/"],
        ["--url", "http://host/", "--engine", "a"],
        ["--url", "http://host/", "--max-num-seqs", "-1"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(flags):
    with pytest.raises(ConfigError) as caught:
        doctor.main(flags)

    assert "hush" not in str(caught.value)


def test_a_page_that_drips_is_given_up_after_the_time_that_was_set(served):
    served.drips = True

    with pytest.raises(PageUnreachable, match=r"no whole answer within 0\.3 s"):
        fetch(parse_address(served.url, "--url"), timeout_seconds=0.3)


def test_a_page_without_end_is_given_up(served, monkeypatch):
    monkeypatch.setattr("agent.sources.http_page.MOST_BYTES", 1 << 20)
    served.page = lambda: b"# \n" * (1 << 19)

    with pytest.raises(PageUnreachable, match="it is larger than 1 MiB"):
        fetch(parse_address(served.url, "--url"), timeout_seconds=5)


def test_the_command_itself_says_that_nobody_answers(capsys, monkeypatch):
    monkeypatch.setattr("agent.commands.doctor_url.PAUSE_SECONDS", 0.0)

    code = kvpulse(["doctor", "--url", "http://127.0.0.1:1/metrics"])

    assert code == 3
    assert "cannot read http://127.0.0.1:1/metrics: Connection refused" in capsys.readouterr().out
