"""A runner whose memory can be read back: each slot holds the beginning that its token stands for.

So whatever is shared, copied, swapped, slid or found again, in every KV group, a sequence reads its
own beginning wherever its windows reach, or the step fails.
"""

from engine.block_moves import apply_moves
from engine.clock import VirtualClock
from engine.runner import NO_TOKEN
from engine.simulation.simulated_runner import SimulatedRunner
from tests.engine.factories_engine import COST

NUM_TOKENS = 5  # that a continuation is drawn from


class ReadableMemory:
    """What each block of the device and of the host holds."""

    def __init__(self):
        self.gpu, self.host = {}, {}

    def copy_blocks(self, pairs):
        self._move(self.gpu, self.gpu, pairs)

    def swap_out(self, pairs):
        self._move(self.gpu, self.host, pairs)

    def swap_in(self, pairs):
        self._move(self.host, self.gpu, pairs)

    @staticmethod
    def _move(sources, targets, pairs):
        held = [dict(sources.get(source, {})) for source, _ in pairs]
        targets.update(zip((target for _, target in pairs), held, strict=True))


class ReadableRunner(SimulatedRunner):
    """Writes and reads as a model would, and says what follows from the tokens alone."""

    def __init__(self, *, window=None, groups=()):
        super().__init__(
            VirtualClock(), cost=COST, sliding_window=window, group_windows=groups, max_context=400
        )
        self.memory = ReadableMemory()
        self.num_read = 0

    def execute(self, plan):
        apply_moves(self.memory, plan.block_moves)
        for seq, n in zip(plan.sequences, plan.num_new_tokens, strict=True):
            for position in range(seq.num_computed_tokens, seq.num_computed_tokens + n):
                self._write(seq, position)
            self._read(seq, n)
        result = super().execute(plan)
        for index, (seq, token) in enumerate(zip(plan.sequences, result.token_ids, strict=True)):
            if token != NO_TOKEN:
                result.token_ids[index] = follower(seq, seq.sample_index)
            if index in result.more_tokens:
                others = range(1, len(result.more_tokens[index]) + 1)
                result.more_tokens[index] = [follower(seq, other) for other in others]
        return result

    def _write(self, seq, position):
        for group in range(len(self.describe().windows)):
            block, slot = divmod(
                seq.block_table.slot_of(position, group), seq.block_table.block_size
            )
            assert block >= 0, "nothing is written to a block that was given back"
            self.memory.gpu.setdefault(block, {})[slot] = (group, *seq.token_ids[: position + 1])

    def _read(self, seq, n):
        end = seq.num_computed_tokens + n
        for group, window in enumerate(self.describe().windows):
            start = 0 if window is None else max(0, seq.num_computed_tokens + 1 - window)
            for position in range(start, end):
                where = seq.block_table.slot_of(position, group)
                block, slot = divmod(where, seq.block_table.block_size)
                found = self.memory.gpu[block].get(slot) if block >= 0 else None
                assert found == (group, *seq.token_ids[: position + 1])
                self.num_read += 1


def follower(seq, sample_index):
    """Return the token that a sample goes on with."""
    return hash((*seq.token_ids[-6:], sample_index)) % NUM_TOKENS
