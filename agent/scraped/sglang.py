"""Read an SGLang page: names as of its `metrics_collector.py` (`--enable-metrics`).

Traps: a counter is absent until it first moves, so absent is 0. With priorities on, `priority=""`
is the total beside the single ones. Each tensor-parallel rank repeats the scheduler's numbers. What
the tokenizer process counts names no data-parallel rank. `token_usage` is rounded, so used tokens
are taken over all. Blocks are pages; a lost page reads as used, and so do those held for sessions.
"""

from collections.abc import Mapping
from typing import Final

from agent.scraped.errors import PageUnreadable
from agent.scraped.exposition import Sample, Samples
from agent.scraped.numbers import LARGEST, buckets_of, count_of, mean_of, total_of
from agent.scraped.reading import Reading, Stated

RUNNING: Final = "sglang:num_running_reqs"
WAITING: Final = "sglang:num_queue_reqs"
USED: Final = "sglang:kv_used_tokens"
TOTAL: Final = "sglang:max_total_num_tokens"
RETRACTED: Final = "sglang:num_retracted_requests_total"
PASSES: Final = "sglang:cuda_graph_passes_total"
TOKENS: Final = "sglang:realtime_tokens_total"
PREFILL, CACHED, DECODE = "prefill_compute", "prefill_cache", "decode"
OF_THE_SERVER: Final = {
    "admitted": "sglang:time_to_first_token_seconds_count",
    "finished": "sglang:num_requests_total",
}
HISTOGRAMS: Final = {
    "ttft": "sglang:time_to_first_token_seconds",
    "inter_token": "sglang:inter_token_latency_seconds",
    "tpot": "sglang:request_time_per_output_token_seconds",
    "e2e": "sglang:e2e_request_latency_seconds",
}
NO_BOUND: Final = "SGLang may hold pages for sessions"
MOST_RANKS: Final = 64


def is_sglang(samples: Samples) -> bool:
    """Say whether a page is one of SGLang's."""
    return RUNNING in samples


def readings(samples: Samples, *, t_ns: int, label: str) -> tuple[Reading, ...]:
    """Return one reading for each data-parallel rank of a page.

    Raises:
        PageUnreadable: No scheduler's queue is on the page.
    """
    ranks = sorted({each.labels.get("dp_rank", "0") for each in samples.get(RUNNING, ())})
    if not 0 < len(ranks) <= MOST_RANKS:
        raise PageUnreadable(label, f"it has the queues of {len(ranks)} schedulers")
    return tuple(
        _reading(_of_rank(samples, rank), rank, t_ns, is_alone=len(ranks) == 1) for rank in ranks
    )


def _of_rank(samples: Samples, rank: str) -> Samples:
    return {
        name: tuple(each for each in rows if _is_of(each.labels, rank))
        for name, rows in samples.items()
    }


def _is_of(labels: Mapping[str, str], rank: str) -> bool:
    return (
        labels.get("dp_rank", rank) == rank
        and labels.get("tp_rank", "0") == "0"
        and labels.get("pp_rank", "0") == "0"
        and labels.get("priority", "") == ""
    )


def _reading(samples: Samples, rank: str, t_ns: int, *, is_alone: bool) -> Reading:
    used, total = total_of(samples, USED), total_of(samples, TOTAL)
    usage = used / total if used is not None and total else None
    histograms = {name: buckets_of(samples, metric) for name, metric in HISTOGRAMS.items()}
    return Reading(
        t_ns=t_ns,
        engine=rank,
        stated=_stated(samples),
        running=count_of(total_of(samples, RUNNING)),
        waiting=count_of(total_of(samples, WAITING)),
        deferred=None,
        usage_ratio=usage if usage is not None and 0 <= usage <= 1 else None,
        counters=_counters(samples, is_alone=is_alone),
        histograms={
            name: each for name, each in histograms.items() if each is not None and is_alone
        },
        mean_prompt_tokens=mean_of(samples, "sglang:prompt_tokens_histogram"),
    )


def _counters(samples: Samples, *, is_alone: bool) -> dict[str, float]:
    tokens = samples.get(TOKENS, ())
    found: dict[str, float | None] = {
        "prefill_tokens": _of_mode(tokens, PREFILL),
        "prefix_hit_tokens": _of_mode(tokens, CACHED),
        "prefix_queried_tokens": _of_mode(tokens, PREFILL) + _of_mode(tokens, CACHED),
        "decode_tokens": _of_mode(tokens, DECODE),
        "preempted": total_of(samples, RETRACTED) or 0.0,
        "steps": total_of(samples, PASSES) or 0.0,
    }
    if is_alone:
        found |= {name: total_of(samples, metric) for name, metric in OF_THE_SERVER.items()}
    return {
        name: value for name, value in found.items() if value is not None and 0 <= value < LARGEST
    }


def _of_mode(rows: tuple[Sample, ...], mode: str) -> float:
    return sum(each.value for each in rows if each.labels.get("mode") == mode)


def _stated(samples: Samples) -> Stated:
    models = samples.get(RUNNING, ())
    return Stated(
        model=models[0].labels.get("model_name") if models else None,
        block_size=count_of(total_of(samples, "sglang:page_size")) or None,
        num_blocks=count_of(total_of(samples, "sglang:num_pages")) or None,
        has_null_block=False,
        max_model_len=count_of(total_of(samples, "sglang:context_len")) or None,
        started_at_seconds=total_of(samples, "process_start_time_seconds"),
        no_bound=NO_BOUND,
    )
