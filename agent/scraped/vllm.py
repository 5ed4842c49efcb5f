"""Read a vLLM-shaped page: names as of vLLM 0.32 (`vllm/v1/metrics/loggers.py`).

Traps, each met in a real engine: usage counts blocks with a reference only, so cached ones read as
free; one block of `num_gpu_blocks` is the null block; no metric counts requests that clients
aborted; time in the queue is told when a request *ends*; gauges move only when a step is made.
"""

from collections.abc import Mapping
from typing import Final

from agent.scraped.errors import PageUnreadable
from agent.scraped.exposition import Samples
from agent.scraped.numbers import LARGEST, buckets_of, by_label_of, count_of, mean_of, total_of
from agent.scraped.reading import Buckets, Reading, Stated

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
BY_REASON: Final = "vllm:num_requests_waiting_by_reason"
USAGE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
CACHE_CONFIG: Final = "vllm:cache_config_info"
PROCESS_START: Final = "process_start_time_seconds"
COUNTERS: Final = {
    "preempted": "vllm:num_preemptions_total",
    "admitted": "vllm:time_to_first_token_seconds_count",  # nothing earlier is counted
    "finished": "vllm:request_success_total",
    "rejected": "vllm:admission_rejections_total",
    "decode_tokens": "vllm:generation_tokens_total",
    "steps": "vllm:iteration_tokens_total_count",
    "prefix_hit_tokens": "vllm:prefix_cache_hits_total",
    "prefix_queried_tokens": "vllm:prefix_cache_queries_total",
    "recomputed_tokens": "vllm:prompt_tokens_recomputed_total",
}
PROMPT: Final = "vllm:prompt_tokens_total"
PROMPT_BY_SOURCE: Final = "vllm:prompt_tokens_by_source_total"
LABELLED: Final = {
    "finished": ("vllm:request_success_total", "finished_reason"),
    "rejected": ("vllm:admission_rejections_total", "reason"),
}
HISTOGRAMS: Final = {
    "ttft": "vllm:time_to_first_token_seconds",
    "inter_token": "vllm:inter_token_latency_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
}
OLD_INTER_TOKEN: Final = "vllm:time_per_output_token_seconds"  # until 0.11
PROMPT_LENGTHS: Final = "vllm:request_prompt_tokens"
TRANSFERS: Final = ("vllm:external_prefix_cache_queries_total", "vllm:nixl_", "vllm:kv_offload_")
MOST_ENGINES: Final = 64


def readings(samples: Samples, *, t_ns: int, label: str) -> tuple[Reading, ...]:
    """Return one reading for each engine of a page (data-parallel ones share a page).

    Raises:
        PageUnreadable: No engine's queue is on the page.
    """
    ids = sorted({each.labels.get("engine", "0") for each in samples.get(RUNNING, ())})
    if not ids:
        raise PageUnreadable(label, f"it has no {RUNNING} (a vLLM with --disable-log-stats?)")
    if len(ids) > MOST_ENGINES:
        raise PageUnreadable(label, f"{len(ids)} engines on one page, at most {MOST_ENGINES}")
    return tuple(_reading(_of_engine(samples, engine), engine, t_ns) for engine in ids)


def _of_engine(samples: Samples, engine: str) -> Samples:
    """Return an engine's own samples, and those of the whole server."""
    return {
        name: tuple(each for each in rows if each.labels.get("engine", engine) == engine)
        for name, rows in samples.items()
    }


def _reading(samples: Samples, engine: str, t_ns: int) -> Reading:
    usage = next((value for name in USAGE if (value := total_of(samples, name)) is not None), None)
    deferred = [
        each.value for each in samples.get(BY_REASON, ()) if each.labels.get("reason") != "capacity"
    ]
    return Reading(
        t_ns=t_ns,
        engine=engine,
        stated=_stated(samples),
        running=count_of(total_of(samples, RUNNING)),
        waiting=count_of(total_of(samples, WAITING)),
        deferred=count_of(sum(deferred)) if samples.get(BY_REASON) else None,
        usage_ratio=usage if usage is not None and 0 <= usage <= 1 else None,
        counters=_counters(samples),
        labelled={
            family: by_label
            for family, (name, key) in LABELLED.items()
            if (by_label := by_label_of(samples.get(name, ()), key))
        },
        histograms=_histograms(samples),
        mean_prompt_tokens=mean_of(samples, PROMPT_LENGTHS),
    )


def _counters(samples: Samples) -> dict[str, float]:
    found = {column: total_of(samples, name) for column, name in COUNTERS.items()}
    computed = [
        each.value
        for each in samples.get(PROMPT_BY_SOURCE, ())
        if each.labels.get("source") == "local_compute"
    ]
    found["prefill_tokens"] = sum(computed) if computed else total_of(samples, PROMPT)
    return {
        column: value
        for column, value in found.items()
        if value is not None and 0 <= value < LARGEST
    }


def _histograms(samples: Samples) -> dict[str, Buckets]:
    found = {name: buckets_of(samples, metric) for name, metric in HISTOGRAMS.items()}
    if found["inter_token"] is None:
        found["inter_token"] = buckets_of(samples, OLD_INTER_TOKEN)
    return {name: buckets for name, buckets in found.items() if buckets is not None}


def _stated(samples: Samples) -> Stated:
    config = next((each.labels for each in samples.get(CACHE_CONFIG, ())), {})
    block_size, num_blocks = _whole(config, "block_size"), _whole(config, "num_gpu_blocks")
    size_tokens = _whole(config, "kv_cache_size_tokens")
    max_len = _whole(config, "max_model_len")
    concurrency = _number(config, "kv_cache_max_concurrency")
    if max_len is None and size_tokens and concurrency:
        max_len = round(size_tokens / concurrency)
    models = samples.get(RUNNING, ())
    return Stated(
        model=models[0].labels.get("model_name") if models else None,
        block_size=block_size,
        num_blocks=num_blocks,
        max_model_len=max_len,
        max_num_seqs=_whole(config, "max_num_seqs"),
        started_at_seconds=total_of(samples, PROCESS_START),
        no_bound=_no_bound(samples, config),
    )


def _no_bound(samples: Samples, config: Mapping[str, str]) -> str:
    block_size, num_blocks = _whole(config, "block_size"), _whole(config, "num_gpu_blocks")
    size_tokens = _whole(config, "kv_cache_size_tokens")
    if block_size is None or num_blocks is None:
        return "the page does not state the pool's blocks and their size"
    if size_tokens is not None and size_tokens != block_size * num_blocks:
        return "the pool has more than one KV group"
    if _whole(config, "mamba_block_size") is not None:
        return "the pool holds state of other layers than attention"
    moves = any(
        name.startswith(TRANSFERS) and any(each.value for each in rows)
        for name, rows in samples.items()
        if not name.endswith("_created")
    )
    return "blocks are transferred to or from elsewhere" if moves else ""


def _whole(config: Mapping[str, str], name: str) -> int | None:
    number = _number(config, name)
    return int(number) if number is not None and number == int(number) else None


def _number(config: Mapping[str, str], name: str) -> float | None:
    try:
        number = float(config.get(name, ""))
    except ValueError:
        return None
    return number if 0 < number < LARGEST else None
