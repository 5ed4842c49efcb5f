"""SGLang's page as a second shape: what its numbers mean, and where they must not be summed."""

from pathlib import Path

from agent.scraped.exposition import parse_page
from agent.scraped.pool import held_blocks, usable_blocks
from agent.scraped.sglang import readings

CAPTURES = Path(__file__).parent / "captures"


def read(name: str):
    samples = parse_page((CAPTURES / name).read_bytes(), name)
    return readings(samples, t_ns=0, label=name)


def test_pages_are_blocks_and_used_tokens_are_those_with_references():
    (reading,) = read("sglang_after_retractions.txt")

    usable = usable_blocks(reading.stated, [reading.usage_ratio])
    assert (reading.running, reading.waiting, usable) == (65, 9, 8_192)
    assert held_blocks(reading.usage_ratio, usable) == 66_560 // 16
    assert reading.counters["preempted"] == 6
    assert reading.counters["decode_tokens"] == 5_453
    assert reading.stated.max_model_len == 131_072


def test_a_counter_that_is_absent_until_it_moves_is_0():
    (reading,) = read("sglang_loaded.txt")

    assert reading.counters["preempted"] == 0


def test_the_total_of_a_queue_is_not_added_to_its_priorities():
    first, second = read("sglang_two_ranks.txt")

    assert (first.engine, first.running, second.running) == ("0", 7, 8)


def test_what_no_rank_is_named_for_is_told_of_no_rank():
    first, _ = read("sglang_two_ranks.txt")

    assert "admitted" not in first.counters
    assert first.histograms == {}
