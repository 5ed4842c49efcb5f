"""What the parts of the scheduler work on together."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.block_pool import BlockPool
from engine.clock import Clock
from engine.config import EngineConfig
from engine.lineup import Lineup
from engine.policy.tenant_quotas import TenantQuotas
from engine.prefix_index.protocol import PrefixIndex
from engine.statements import Statements
from engine.table_span import TableSpan

if TYPE_CHECKING:
    from engine.swapping import Swapper


@dataclass(frozen=True, slots=True)
class SchedulingState:
    """One engine's pool, queue and batch, and who states what happens to them.

    Attributes:
        index: Finds kept content.
        span: Which part of a table holds blocks.
        swapper: None without host blocks.
    """

    config: EngineConfig
    pool: BlockPool
    index: PrefixIndex
    lineup: Lineup
    quotas: TenantQuotas
    say: Statements
    clock: Clock
    span: TableSpan
    swapper: "Swapper | None" = None
