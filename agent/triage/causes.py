"""Wait causes as the engine states them, in the classes that rules add up."""

from typing import Final

POOL: Final = ("pool", "pool_behind")
BATCH_SLOTS: Final = ("batch_slots",)
TOKEN_BUDGET: Final = ("token_budget",)
ENGINE_BUSY: Final = ("engine_busy",)
TENANT_QUOTA: Final = ("tenant_quota",)
DEFERRED: Final = ("deferred",)
# Of an engine that does not tell which: blocks, places of the batch or tokens of a step.
CAPACITY: Final = ("capacity",)
# Nothing that the engine would be short of; who waits for these waits for the scheduler itself.
NOTHING_LACKING: Final = (*ENGINE_BUSY, *TOKEN_BUDGET)
