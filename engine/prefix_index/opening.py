"""Make the index that an engine is configured with."""

from engine.block_hashers import block_hasher
from engine.block_pool import BlockPool
from engine.errors import ConfigError
from engine.prefix_index.chained_hashes import ChainedHashes
from engine.prefix_index.grouped_hashes import GroupedHashes
from engine.prefix_index.no_index import NoIndex
from engine.prefix_index.protocol import PrefixIndex
from engine.prefix_index.radix_index import RadixIndex
from engine.runner import RunnerDescription
from engine.table_span import TableSpan
from kvpulse.identity import KeyedHashes


def open_prefix_index(
    kind: str,
    pool: BlockPool,
    *,
    block_size: int,
    runner: RunnerDescription | None = None,
    hashes: KeyedHashes | None = None,
) -> PrefixIndex:
    """Return the index of a pool.

    Args:
        kind: "hash", "radix" or "off".
        runner: Whose mask, windows and KV groups decide what content is the same, and of how many
            blocks it consists; None for causal attention.
        hashes: Names contents; without it they are keyed for this engine alone.

    Raises:
        ConfigError: The tree cannot keep several blocks for the same tokens.
    """
    if kind == "off":
        return NoIndex()
    hasher = block_hasher(
        block_size,
        hashes,
        mask=runner.mask if runner else "causal",
        sliding_window=runner.sliding_window if runner else None,
    )
    windows = runner.windows if runner else (None,)
    if len(windows) > 1:
        if kind == "radix":
            accepted = "hash or off, for a model in which only some layers have a sliding window"
            raise ConfigError("prefix_index", found=kind, accepted=accepted)
        return GroupedHashes(pool, span=TableSpan(block_size, windows), hasher=hasher)
    if kind == "radix":
        return RadixIndex(pool, block_size=block_size, hasher=hasher)
    return ChainedHashes(pool, block_size=block_size, hasher=hasher)
