"""What each series is painted with: the same entity has the same colour on every board and page."""

from typing import Final

ACTIVE: Final = "#2563eb"
CACHED: Final = "#d97706"
FREE: Final = "#94a3b8"
LEAKED: Final = "#dc2626"
PLAIN: Final = "text"  # Grafana's own: black on light, white on dark
WARN: Final = "#ea580c"
BAD: Final = "#dc2626"
GOOD: Final = "#059669"
QUIET: Final = "#0891b2"
IDLE: Final = "#64748b"  # a 0 that was measured: not to be taken for a hole, nor looked at

BLOCK_STATES: Final = {"active": ACTIVE, "cached": CACHED, "free": FREE}

WAIT_CLASSES: Final = {
    "pool": "#dc2626",
    "scheduler": "#7c3aed",
    "quota": "#0891b2",
    "transfer": "#65a30d",
}

# A cause is a shade of its class.
WAIT_CAUSES: Final = {
    "pool": "#dc2626",
    "pool_behind": "#f87171",
    "batch_slots": "#7c3aed",
    "token_budget": "#a78bfa",
    "engine_busy": "#c4b5fd",
    "tenant_quota": "#0891b2",
    "deferred": "#65a30d",
}

# Reds: the pool was short. Violet: the queue was. Greys: the request itself was at fault.
REJECT_REASONS: Final = {
    "exceeds_pool": "#991b1b",
    "above_watermark": "#ea580c",
    "pool_timeout": "#dc2626",
    "out_of_memory": "#f87171",
    "queue_full": "#7c3aed",
    "deadline": "#db2777",
    "exceeds_quota": "#0891b2",
    "context_too_long": "#64748b",
    "invalid_request": "#94a3b8",
    "shutting_down": "#a8a29e",
}

TARGETS: Final = {"ttft": "#2563eb", "inter_token": "#7c3aed", "pool_wait": "#dc2626"}

QUANTILES: Final = {"p50": "#93c5fd", "p95": "#2563eb", "p99": "#db2777"}

GPUS: Final = (
    "#2563eb",
    "#d97706",
    "#059669",
    "#db2777",
    "#7c3aed",
    "#0891b2",
    "#65a30d",
    "#64748b",
)
