"""Cases T1 to T7 through the agent: pages served each 15 s, stored, and judged from the store."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.reads.reads import open_reads
from agent.triage.doctor import examine
from agent.triage.gather import Question
from agent.triage.verdicts import Diagnosis
from tests.agent import vllm_pages as vllm
from tests.agent.page_server import serving
from tests.agent.scraping import NS, Scraping
from tests.agent.vllm_pages import page

ITL_SUM, ITL_COUNT = (f"vllm:inter_token_latency_seconds_{end}" for end in ("sum", "count"))
BIG_POOL = {"block_size": 16, "num_gpu_blocks": 800, "kv_cache_size_tokens": 12_800}
BUCKETS = tuple(
    f'le="{edge}"'
    for edge in (
        *("0.1", "0.15", "0.2", "0.3", "0.4", "0.5", "0.75", "1.0", "2.5", "5.0", "7.5", "10.0"),
        *("20.0", "40.0", "80.0", "+Inf"),
    )
)
CAPTURED = {"0.1": 7_121, "0.15": 7_134, "0.2": 7_148, "0.3": 7_148}
CAPTURED_WHOLE = 7_150


@pytest.fixture
def scraping(tmp_path: Path) -> Iterator[Scraping]:
    with serving() as server:
        found = Scraping(server, str(tmp_path / "kvpulse.db"), [1_795_999_980.0])
        yield found
        found.watch.close()


class Counters:
    """What an engine has counted, look by look, on top of what was captured."""

    def __init__(self) -> None:
        self.tokens = 0
        self.seconds = 0.0
        self.added: dict[str, float] = {}

    def work(
        self,
        *,
        tokens: int = 500,
        token_seconds: float = 0.02,
        prompts: int = 4,
        prompt_tokens: int = 400,
        preempted: int = 0,
    ) -> None:
        """Count 15 s of work."""
        self.tokens += tokens
        self.seconds += tokens * token_seconds
        for name, step in {
            vllm.STEPS: 60,
            vllm.DECODED: tokens,
            vllm.FIRST_TOKENS: prompts,
            vllm.PREEMPTED: preempted,
            vllm.PROMPTS: prompts * prompt_tokens,
        }.items():
            self.added[name] = self.added.get(name, 0.0) + step

    def page(self, running: int, waiting: int, usage: float, **config: object) -> str:
        """Return the captured page with these counters and this queue."""
        edges = {
            ("vllm:inter_token_latency_seconds_bucket", label): CAPTURED.get(
                label[4:-1], CAPTURED_WHOLE
            )
            + self.tokens
            for label in BUCKETS
        }
        latency = {
            ITL_SUM: 115.14819079999893 + self.seconds,
            ITL_COUNT: CAPTURED_WHOLE + self.tokens,
        }
        queue = {vllm.RUNNING: running, vllm.WAITING: waiting, vllm.USAGE: usage}
        values = {**queue, vllm.CAPACITY: waiting, **edges, **latency}
        computed = (vllm.PROMPTS_BY_SOURCE, 'source="local_compute"')
        values[computed] = 5_288 + self.added.get(vllm.PROMPTS, 0.0)
        return page(values, added=self.added, config=config)


def follow(scraping: Scraping, looks: int, make: Callable[[int], str]) -> None:
    for number in range(looks):
        scraping.served.page = lambda number=number: make(number)
        scraping.look()


def verdict(scraping: Scraping) -> Diagnosis:
    reads = open_reads(scraping.store)
    try:
        run = reads.runs("chat")[0]
        # Judged right after the newest look, as the agent's watch does.
        return examine(reads, Question(run, now_ns=int((scraping.now[0] - 14) * NS)))
    finally:
        reads.close()


def named(found: Diagnosis) -> set[str]:
    return {each.verdict.value for each in (found.headline, *found.contributing)}


def texts(found: Diagnosis) -> str:
    return "; ".join([found.headline.summary, *(x.text for x in found.headline.evidence)])


def test_t1_stall(scraping):
    counters = Counters()

    follow(scraping, 5, lambda _: counters.page(0, 6, 0.0))

    found = verdict(scraping)
    assert found.verdict == "stalled"
    assert "nothing moves though 255 blocks are free" in found.headline.summary
    assert "healthy" not in named(found)


def test_t2_leak(scraping):
    counters = Counters()
    scraping.served.max_model_len = 4_096

    def grow(number: int) -> str:
        counters.work(tokens=100)
        return counters.page(2, 0, 0.60 + 0.03 * number, **BIG_POOL)

    follow(scraping, 5, grow)

    found = verdict(scraping)
    assert found.verdict == "pool_leak"
    assert "2 requests can own at most 512 blocks = 64%, 576 are held" in texts(found)


def test_t3_sequence_cap(scraping):
    counters = Counters()

    def full(_: int) -> str:
        counters.work(prompts=6)
        return counters.page(48, 200, 0.35)

    follow(scraping, 5, full)

    found = verdict(scraping)
    assert (found.verdict, found.headline.confidence) == ("batch_slots", "medium")
    assert "a cap near 48" in found.headline.summary
    assert not {"pool_exhausted", "compute_slow"} & named(found)


def test_t4_pool(scraping):
    counters = Counters()

    def short(_: int) -> str:
        counters.work(preempted=45, prompts=6)
        return counters.page(9, 60, 0.99)

    follow(scraping, 5, short)

    found = verdict(scraping)
    assert found.verdict == "pool_exhausted"
    assert "3.00 preemptions a second" in texts(found)
    assert not {"batch_slots", "healthy"} & named(found)


def at_work(counters: Counters, *, seconds: float, waiting: int = 0, usage: float = 0.4) -> str:
    counters.work(token_seconds=seconds)
    return counters.page(16, waiting, usage)


def test_t5_compute_with_its_ratio_against_the_engines_own_past(scraping):
    counters = Counters()
    follow(scraping, 17, lambda _: at_work(counters, seconds=0.02))

    follow(scraping, 5, lambda _: at_work(counters, seconds=0.06))

    found = verdict(scraping)
    assert found.verdict == "compute_slow"
    assert "steps take 3.0 times as long as before for the same work" in texts(found)
    assert not {"pool_exhausted", "traffic_shift"} & named(found)


def test_t5_at_another_batch_is_not_compared(scraping):
    counters = Counters()

    def small(_: int) -> str:
        counters.work(token_seconds=0.02)
        return counters.page(4, 0, 0.1)

    follow(scraping, 17, small)
    follow(scraping, 5, lambda _: at_work(counters, seconds=0.06))

    assert "compute_slow" not in named(verdict(scraping))


def test_t5_without_a_past_is_unknown(scraping):
    counters = Counters()

    follow(scraping, 5, lambda _: at_work(counters, seconds=0.0161 * 3))

    found = verdict(scraping)
    assert found.verdict == "unknown"
    assert "2.7 times as slowly as on average since the start" in found.headline.summary
    assert "are needed" in found.missing["past"]


def longer(counters: Counters, number: int) -> str:
    counters.work(prompts=4, prompt_tokens=1_600)
    return counters.page(16, 20 + 4 * number, 0.95)


def test_t6_traffic_is_the_cause_of_a_full_pool(scraping):
    counters = Counters()
    follow(scraping, 17, lambda _: at_work(counters, seconds=0.02))

    follow(scraping, 5, lambda number: longer(counters, number))

    found = verdict(scraping)
    assert found.verdict == "traffic_shift"
    assert [each.verdict for each in found.contributing] == ["pool_exhausted"]
    assert "4.0 times as long" in texts(found)


def test_t6_without_a_past_is_unknown(scraping):
    counters = Counters()

    follow(scraping, 5, lambda number: longer(counters, number))

    found = verdict(scraping)
    assert found.verdict == "unknown"
    assert not {"traffic_shift", "compute_slow"} & named(found)


def test_t7_blind(scraping):
    counters = Counters()
    follow(scraping, 5, lambda _: counters.page(0, 6, 0.0))  # would be a stall

    scraping.served.status = 504
    for _ in range(6):
        scraping.look()

    found = verdict(scraping)
    assert named(found) == {"telemetry_incomplete"}
    assert "no look at the metrics page has given anything for" in found.headline.summary


def test_a_look_that_is_only_due_is_not_taken_for_silence(scraping):
    counters = Counters()
    follow(scraping, 5, lambda _: at_work(counters, seconds=0.0161))

    assert verdict(scraping).verdict == "healthy"
