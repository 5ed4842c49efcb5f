"""Pages of a real vLLM 0.32, as captured, with a case's values in their place.

`tests/agent/captures/vllm_under_load.txt` is a scrape of vLLM 0.32 on a CPU with two layers of
random weights, 256 blocks of 32 slots; only the lines that our reader looks at are kept.
"""

import re
from collections.abc import Mapping
from pathlib import Path

CAPTURE = Path(__file__).parent / "captures" / "vllm_under_load.txt"
LINE = re.compile(r"^(?P<name>[\w:]+)(?P<labels>\{.*\})? (?P<value>\S+)$")
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
CAPACITY = ("vllm:num_requests_waiting_by_reason", 'reason="capacity"')
USAGE = "vllm:kv_cache_usage_perc"
STEPS = "vllm:iteration_tokens_total_count"
DECODED = "vllm:generation_tokens_total"
PREEMPTED = "vllm:num_preemptions_total"
TTFT_BUCKETS = "vllm:time_to_first_token_seconds_bucket"
FIRST_TOKENS = "vllm:time_to_first_token_seconds_count"
STARTED = "process_start_time_seconds"
PROMPTS = "vllm:prompt_tokens_total"
PROMPTS_BY_SOURCE = "vllm:prompt_tokens_by_source_total"


def page(
    values: Mapping[str | tuple[str, str], float],
    *,
    added: Mapping[str, float] | None = None,
    config: Mapping[str, object] | None = None,
) -> str:
    """Return the captured page, changed.

    Args:
        values: What a line is to say, by metric, or by metric and a label within its labels.
        added: What is to be added to a counter.
        config: Labels of `vllm:cache_config_info` to be set.
    """
    said: dict[str | tuple[str, str], bool] = dict.fromkeys([*values, *(added or {})], False)
    lines = []
    for line in CAPTURE.read_text(encoding="utf-8").splitlines():
        found = LINE.match(line)
        if found is None:
            lines.append(line)
            continue
        name, labels, value = found["name"], found["labels"] or "", found["value"]
        for key, wanted in values.items():
            metric, label = (key, "") if isinstance(key, str) else key
            if metric == name and label in labels:
                value, said[key] = str(wanted), True
        if added and name in added:
            value, said[name] = str(float(value) + added[name]), True
        if config and name == "vllm:cache_config_info":
            for key, wanted in config.items():
                labels = re.sub(rf'(?<=[{{,]){key}="[^"]*"', f'{key}="{wanted}"', labels)
        lines.append(f"{name}{labels} {value}")
    assert all(said.values()), f"not on the captured page: {said}"
    return "\n".join(lines) + "\n"
