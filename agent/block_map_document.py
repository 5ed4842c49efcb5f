"""A block map as JSON. Pure."""

from agent.block_map import BlockMap
from agent.block_map_text import list_holders


def map_document(blocks: BlockMap) -> dict[str, object]:
    """Return every block's state, count and owners, and every owner's blocks; keys are API."""
    return {
        "at_ns": blocks.at_ns,
        "age_ns": blocks.age_ns,
        "exact": blocks.exact,
        "total_blocks": blocks.total_blocks,
        "out_of_service": blocks.num_out_of_service,
        "block_size": blocks.block_size,
        "state": blocks.state.tolist(),
        "count": blocks.count.tolist(),
        "owners": blocks.owners,
        "since_ns": blocks.since_ns.tolist(),
        "holders": [
            {
                "owner": holder.owner,
                "blocks": blocks.blocks_of(holder.owner),
                "num_shared": holder.num_shared,
                "tenant": holder.tenant or None,
            }
            for holder in list_holders(blocks)
        ],
    }
