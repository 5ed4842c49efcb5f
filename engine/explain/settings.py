"""The engine that a recording's fingerprint describes, as far as the simulator knows it."""

from dataclasses import dataclass
from typing import Final

from engine.config import PREFIX_INDEXES, EngineConfig
from engine.errors import ConfigError
from engine.explain.errors import CannotBeExplained
from engine.policy.scheduling_policy import PreemptionPolicy
from kvpulse.window_recording import Stated

NEEDED: Final = (
    "total_blocks",
    "block_size",
    "max_batch",
    "token_budget",
    "max_queue",
    "max_context",
)
MOST_BLOCKS: Final = 1 << 23  # a replay's pool takes memory for each
AUDIT_NS: Final = 3600 * 10**9  # nobody reads the audits of a replay


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Pool and scheduler.

    Attributes:
        not_replayed: What the engine states and the simulator cannot do; it may be why a replay
            comes to other figures.
    """

    config: EngineConfig
    sliding_window: int | None = None
    not_replayed: str = ""


def settings_of(fingerprint: dict[str, Stated]) -> EngineSettings:
    """Read a fingerprint.

    Raises:
        CannotBeExplained: It does not state what a replay needs.
    """
    missing = [name for name in NEEDED if not _is_number(fingerprint.get(name))]
    if missing:
        raise CannotBeExplained(
            f"the engine states no {', '.join(missing)}: without these it cannot be replayed"
        )
    if max(_number(fingerprint, name, 0) for name in ("total_blocks", "host_blocks")) > MOST_BLOCKS:
        raise CannotBeExplained(f"the engine states more than {MOST_BLOCKS:,} blocks")
    if _number(fingerprint, "kv_groups", 1) > 1:
        raise CannotBeExplained("the engine has several KV groups; only one can be replayed")
    window = fingerprint.get("sliding_window")
    policy = str(fingerprint.get("policy") or "")
    return EngineSettings(
        _config(fingerprint),
        int(window) if _is_number(window) and window else None,
        f"policy {policy}" if policy else "",
    )


def _config(fingerprint: dict[str, Stated]) -> EngineConfig:
    needed = {name: _number(fingerprint, name, 0) for name in NEEDED}
    total = max(needed["total_blocks"], 1)
    watermark = _number(fingerprint, "watermark_blocks", 0)
    index = str(fingerprint.get("prefix_index") or "hash")
    if fingerprint.get("prefix_caching") is False or index not in PREFIX_INDEXES:
        index = "off"
    host_blocks = _number(fingerprint, "host_blocks", 0)
    preemption = str(fingerprint.get("preemption") or "")
    known = host_blocks and preemption in tuple(PreemptionPolicy)
    try:
        return EngineConfig(
            engine="replay",
            total_blocks=needed["total_blocks"],
            block_size=needed["block_size"],
            max_batch=needed["max_batch"],
            token_budget=needed["token_budget"],
            max_queue=needed["max_queue"],
            max_context=needed["max_context"],
            watermark_ratio=(watermark + 0.5) / total if watermark else 0.0,
            prefix_index=index,
            host_blocks=host_blocks,
            preemption=PreemptionPolicy(preemption) if known else PreemptionPolicy.RECOMPUTE,
            audit_interval_ns=AUDIT_NS,
        )
    except ConfigError as error:
        raise CannotBeExplained(f"the engine states what cannot be: {error}") from error


def _is_number(value: Stated) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(fingerprint: dict[str, Stated], name: str, default: int) -> int:
    value = fingerprint.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
