"""Drop references run by run, a run being neighbours with one fate."""

from operator import length_hint
from typing import Final

from kvpulse.events import FreeOutcome

HELD: Final = int(FreeOutcome.HELD)
TO_CACHE: Final = int(FreeOutcome.TO_CACHE)
TO_FREE: Final = int(FreeOutcome.TO_FREE)
REFUSED: Final = int(FreeOutcome.REFUSED)


def drop_run(counts: list[int], hash_of: list[int], blocks: list[int]) -> tuple[int, int, int]:
    """Drop a reference on the leading blocks with equal fate; return count, outcome, how many.

    Counts change as the loops go, so that a block named twice ends the run.
    """
    count, kept = counts[blocks[0]] - 1, bool(hash_of[blocks[0]])
    following = iter(blocks)
    if count > 0:
        outcome = HELD
        for block_id in following:
            if counts[block_id] - 1 != count:
                break
            counts[block_id] = count
        else:
            return count, outcome, len(blocks)
    elif count < 0:
        outcome, count = REFUSED, 0
        for block_id in following:
            if counts[block_id]:
                break
        else:
            return count, outcome, len(blocks)
    elif kept:
        outcome = TO_CACHE
        for block_id in following:
            if counts[block_id] != 1 or not hash_of[block_id]:
                break
            counts[block_id] = 0
        else:
            return count, outcome, len(blocks)
    else:
        outcome = TO_FREE
        for block_id in following:
            if counts[block_id] != 1 or hash_of[block_id]:
                break
            counts[block_id] = 0
        else:
            return count, outcome, len(blocks)
    return count, outcome, len(blocks) - length_hint(following) - 1
