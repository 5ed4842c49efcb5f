"""A scraped engine in the store: looks are rollups, loss and restarts told, one agent writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config import load_config
from agent.errors import ConfigError
from agent.reads.models import RunState
from agent.reads.reads import open_reads
from agent.triage.doctor import examine
from agent.triage.gather import Question
from kvpulse.command import main as kvpulse
from tests.agent import vllm_pages as vllm
from tests.agent.page_server import Served, serving
from tests.agent.scraping import NS, START, Scraping
from tests.agent.vllm_pages import page

QUEUE = {vllm.RUNNING: 4, vllm.WAITING: 0, vllm.CAPACITY: 0, vllm.USAGE: 102 / 255}


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


@pytest.fixture
def scraping(served: Served, tmp_path: Path) -> Iterator[Scraping]:
    found = Scraping(served, str(tmp_path / "kvpulse.db"), [float(START)])
    yield found
    found.watch.close()


def flowing(number: int) -> str:
    added = {vllm.STEPS: 60.0, vllm.DECODED: 500.0, vllm.FIRST_TOKENS: 2.0, vllm.PREEMPTED: 1.0}
    return page(QUEUE, added={name: number * step for name, step in added.items()})


def follow(scraping: Scraping, numbers: range) -> None:
    for number in numbers:
        scraping.served.page = lambda number=number: flowing(number)
        scraping.look()


def series(scraping: Scraping, *names: str, points: int = 2_000, run: int = 0):
    reads = open_reads(scraping.store)
    try:
        row = reads.runs("chat")[run]
        found = reads.series(row.run_key, names, START * NS, (START + 3_600) * NS, points)
        return {name: values.tolist() for name, values in found.values.items()}
    finally:
        reads.close()


def test_each_look_is_a_row_and_coarser_rows_add_up(scraping):
    follow(scraping, range(9))

    fine = series(scraping, "decode_tokens", "active_blocks", "cached_blocks")
    assert fine["decode_tokens"][1:] == [500.0] * 8
    assert fine["active_blocks"] == [102.0] * 9
    minutes = series(scraping, "decode_tokens", "preempted", "active_blocks", points=5)
    assert minutes["decode_tokens"] == [1_500.0, 2_000.0, 500.0]
    assert minutes["preempted"] == [3.0, 4.0, 1.0]


def test_what_the_page_does_not_tell_is_null_and_never_0(scraping):
    follow(scraping, range(3))

    for points in (2_000, 2):
        found = series(
            scraping, "cached_blocks", "arrived", "cancelled", "compute_ns", points=points
        )
        assert all(value != value for values in found.values() for value in values)


def test_the_first_look_has_gauges_and_no_increases(scraping):
    follow(scraping, range(1))

    found = series(scraping, "running", "decode_tokens")
    assert found["running"] == [4.0]
    assert found["decode_tokens"][0] != found["decode_tokens"][0]


def test_the_engine_is_listed_with_its_source_and_what_it_states(scraping):
    follow(scraping, range(2))

    reads = open_reads(scraping.store)
    (row,) = reads.engines()
    reads.close()
    assert (row.engine, row.run_id, row.state) == ("chat", "scraped-1", RunState.LIVE)
    assert (row.total_blocks, row.block_size, row.active_blocks) == (255, 32, 102)
    assert row.free_blocks is None
    assert row.fingerprint["source"] == "metrics page"
    assert row.fingerprint["page"] == f"{scraping.served.url}/metrics"


def test_a_latency_keeps_the_counts_at_the_pages_own_edges(scraping):
    follow(scraping, range(1))
    bucket = "vllm:inter_token_latency_seconds_bucket"
    more = {(bucket, f'le="{edge}"'): value for edge, value in EDGES.items()}
    whole = {
        "vllm:inter_token_latency_seconds_sum": 115.14819079999893 + 3.0,
        "vllm:inter_token_latency_seconds_count": 7150 + 10,
    }
    scraping.served.page = lambda: page({**QUEUE, **more, **whole})
    scraping.look()

    reads = open_reads(scraping.store)
    found = reads.latency_summary(
        reads.runs("chat")[0].run_key, "inter_token", START * NS, (START + 60) * NS
    )
    reads.close()
    assert found is not None
    assert (found.count, found.sum) == (10, pytest.approx(3.0))
    assert 0.025 < found.p50 < 0.05
    assert 0.75 < found.p99 < 1.0


# The captured counts; 6 tokens more up to 50 ms, 4 more up to 1 s.
EDGES = {
    **{"0.05": 7066, "0.075": 7126, "0.1": 7127, "0.15": 7140, "0.2": 7154, "0.3": 7154},
    **{"0.4": 7156, "0.5": 7156, "0.75": 7156, "1.0": 7160, "2.5": 7160, "5.0": 7160},
    **{"7.5": 7160, "10.0": 7160, "20.0": 7160, "40.0": 7160, "80.0": 7160, "+Inf": 7160},
}


def test_a_page_that_does_not_answer_is_a_condition_then_a_gap_with_its_reason(scraping, caplog):
    follow(scraping, range(3))
    scraping.served.status = 503
    for _ in range(8):
        scraping.look()

    (error,) = scraping.view.snapshot().errors
    assert error.subject == "scrape chat: page"
    assert "HTTP 503" in error.text
    scraping.served.status = 200
    for number in (20, 21):
        scraping.served.page = lambda number=number: flowing(number)
        scraping.now[0] += 60.0
        scraping.watch.tick()
        scraping.now[0] -= 45.0

    reads = open_reads(scraping.store)
    (gap,) = reads.gaps(reads.runs("chat")[0].run_key)
    reads.close()
    assert gap.why == "the metrics page did not answer: HTTP 503"
    assert gap.start_ns == (START + 30) * NS
    assert scraping.view.snapshot().errors == ()
    assert sum("HTTP 503" in record.message for record in caplog.records) == 1
    # What moved in the gap is nobody's: neither a spike nor 0.
    assert series(scraping, "decode_tokens")["decode_tokens"][-1] == 500.0
    assert series(scraping, "decode_tokens")["decode_tokens"][-2] != 500.0


def test_a_restarted_engine_is_a_new_run_and_no_negative_rate(scraping):
    follow(scraping, range(3))
    fresh = {vllm.STEPS: 3, vllm.DECODED: 25, vllm.STARTED: START + 40.0}
    scraping.served.page = lambda: page({**QUEUE, **fresh})
    scraping.look()

    reads = open_reads(scraping.store)
    runs = [(run.run_id, run.state) for run in reads.runs("chat")]
    reads.close()
    assert runs == [("scraped-2", RunState.LIVE), ("scraped-1", RunState.FINISHED)]
    assert series(scraping, "decode_tokens", run=1)["decode_tokens"][1:] == [500.0, 500.0]
    first = series(scraping, "decode_tokens")["decode_tokens"]
    assert len(first) == 1
    assert first[0] != first[0]


def test_a_restarted_agent_goes_on_in_the_same_run_and_its_open_minute(scraping):
    follow(scraping, range(2))
    scraping.watch.close()
    again = Scraping(scraping.served, scraping.store, scraping.now)
    follow(again, range(2, 5))
    again.watch.close()

    reads = open_reads(scraping.store)
    assert [run.run_id for run in reads.runs("chat")] == ["scraped-1"]
    (gap,) = reads.gaps(reads.runs("chat")[0].run_key)
    reads.close()
    assert gap.why == "no agent looked"
    # 0 and 15 s by the first agent, 30 s only where from: 500 of the first, 500 of the second.
    assert series(scraping, "decode_tokens", points=5)["decode_tokens"] == [1_000.0, 500.0]


def test_two_agents_on_one_page_store_each_look_once(scraping):
    other = Scraping(scraping.served, scraping.store, scraping.now)
    for number in range(4):
        scraping.served.page = lambda number=number: flowing(number)
        scraping.watch.tick()
        other.look()

    assert series(scraping, "decode_tokens")["decode_tokens"][1:] == [500.0] * 3
    (error,) = other.view.snapshot().errors
    assert "another agent writes it" in error.text
    scraping.watch.close()
    for number in (4, 5):
        scraping.served.page = lambda number=number: flowing(number)
        other.look()
    other.watch.close()
    assert other.view.snapshot().errors == ()
    reads = open_reads(scraping.store)
    assert [run.run_id for run in reads.runs("chat")] == ["scraped-1"]
    reads.close()


def test_the_exporter_gives_what_is_told_and_nothing_for_what_is_not(scraping):
    from prometheus_client.exposition import generate_latest

    from agent.metrics.exporter import exporter_registry

    follow(scraping, range(2))

    text = generate_latest(exporter_registry(scraping.view, lambda: int(scraping.now[0] * NS)))
    said = [line for line in text.decode().splitlines() if not line.startswith("#")]
    named = {line.split("{")[0] for line in said}
    assert 'kvpulse_kv_blocks{engine="chat",model_name="tiny",state="active"} 102.0' in said
    assert not any('state="free"' in line for line in said)
    assert "kvpulse_num_requests_running" in named
    assert not {"kvpulse_kv_leaked_blocks", "kvpulse_events_total"} & named


def test_the_live_status_says_what_a_page_cannot_tell(scraping):
    from agent.http.live_status import status_document

    follow(scraping, range(2))

    (engine,) = status_document(scraping.view.snapshot(), int(scraping.now[0] * NS))["engines"]
    assert engine["fresh"] is True
    assert engine["source"]["kind"] == "metrics page"
    assert "ledger" in engine["not_available"]


@pytest.mark.parametrize(
    "text", ["chat", "=http://a/", "a/b=http://h/", "a=b", "a=http://h,a=http://i"]
)
def test_a_target_that_cannot_be_meant_is_refused(text):
    with pytest.raises(ConfigError):
        load_config({"scrape": text}, {})


def test_targets_come_from_the_environment_and_keep_their_secrets():
    config = load_config({}, {"KVPULSE_SCRAPE": "a=http://joe:hush@h:1/m?t=tok3n,b=https://i"})

    assert [each.address.label for each in config.scrape] == ["http://h:1/m", "https://i/metrics"]
    assert not any(word in repr(config) for word in ("joe", "hush", "tok3n"))


def test_a_stored_window_is_judged_as_one_that_was_just_looked_at(scraping):
    follow(scraping, range(5))

    reads = open_reads(scraping.store)
    found = examine(reads, Question(reads.runs("chat")[0], now_ns=int(scraping.now[0] * NS)))
    reads.close()
    assert found.verdict == "healthy"


@pytest.mark.parametrize("command", ["summary", "costs"])
def test_a_command_that_needs_owners_says_so_instead_of_0(scraping, capsys, command):
    follow(scraping, range(2))

    code = kvpulse([command, "--store", scraping.store])

    assert code == 4
    assert "chat is known by its metrics page" in capsys.readouterr().err
