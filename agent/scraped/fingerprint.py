"""What the store keeps of a scraped engine's configuration, and how it is told from others."""

from typing import Final

from agent.reads.models import Fingerprint, RunRow
from agent.scraped.reading import Reading, Stated
from agent.scraped.window import since_start

SOURCE: Final = "source"
SCRAPED: Final = "metrics page"
SECONDS: Final = "scrape_seconds"


def is_scraped(fingerprint: Fingerprint) -> bool:
    """Say whether a run is known by its engine's metrics page alone."""
    return fingerprint.get(SOURCE) == SCRAPED


def scrape_seconds(fingerprint: Fingerprint) -> float:
    """Return the time between two looks."""
    return _float(fingerprint.get(SECONDS)) or 0.0


def page_of(fingerprint: Fingerprint) -> str:
    """Return the address of a scraped engine's page, without credentials; "" of any other."""
    return str(fingerprint.get("page") or "") if is_scraped(fingerprint) else ""


def fingerprint_of(reading: Reading, *, page: str, seconds: float) -> Fingerprint:
    """Return what is stored of a run's beginning.

    Args:
        page: Its address without credentials.
    """
    stated, before = reading.stated, since_start(reading)
    return {
        SOURCE: SCRAPED,
        "page": page,
        SECONDS: seconds,
        "model": stated.model,
        "block_size": stated.block_size,
        "num_gpu_blocks": stated.num_blocks,
        "max_model_len": stated.max_model_len,
        "max_num_seqs": stated.max_num_seqs,
        "no_bound": stated.no_bound,
        "engine_started_at": stated.started_at_seconds,
        "inter_token_seconds_before": before.get("inter_token_seconds"),
        "prompt_tokens_before": before.get("prompt_tokens"),
    }


def stated_of(run: RunRow) -> Stated:
    """Return what a run's engine states."""
    told = run.fingerprint
    model = told.get("model")
    return Stated(
        model=model if isinstance(model, str) else None,
        block_size=_int(told.get("block_size")),
        num_blocks=_int(told.get("num_gpu_blocks")),
        max_model_len=_int(told.get("max_model_len")),
        max_num_seqs=_int(told.get("max_num_seqs")),
        started_at_seconds=_float(told.get("engine_started_at")),
        no_bound=str(told.get("no_bound") or ""),
    )


def before_of(run: RunRow) -> dict[str, float]:
    """Return the means since the engine's start, as of the first look."""
    names = ("inter_token_seconds", "prompt_tokens")
    found = {name: _float(run.fingerprint.get(f"{name}_before")) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
