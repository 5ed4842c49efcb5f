"""`kvpulse bench pool`: what a block costs in the pool, with recording and without.

Fresh blocks keep no content and come from the free list. For the evicting figures the pool is full
of cached blocks, each of which is evicted before it is given out. CPU time of the engine's thread,
medians over rounds that alternate between a recording pool and one without; what the pool answers
is checked before anything is timed. The targets are for the recording pool, which records with the
emitter in force (KVPULSE_PURE_PYTHON=1 for Python's). What the two prefix indexes cost is measured
by `bench_prefix_index`.
"""

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from engine.block_pool import BlockPool
from engine.commands.bench_prefix_index import NUM_PROMPTS, SEED, TARGETS_US, measure_index
from engine.errors import PoolError
from engine.pool_results import AllocationRefusal
from kvpulse.emitter_choice import Emitter, emitter
from kvpulse.recorder import Recorder

NUM_BLOCKS: Final = 8_192
BLOCK_SIZE: Final = 16
SIZES: Final = (1, 64)
SEGMENT_BYTES: Final = 64 * 2**20
OWNER: Final = 1
TARGETS_NS: Final = {
    "fresh_allocate_1_ns": 1_500,
    "fresh_allocate_64_ns": 100,
    "evicting_allocate_1_ns": 2_800,
    "evicting_allocate_64_ns": 300,
    "free_1_ns": 1_700,
    "free_64_ns": 140,
}
TARGETS_WITH_C_NS: Final = TARGETS_NS | {
    "evicting_allocate_1_ns": 1_700,
    "evicting_allocate_64_ns": 240,
}


def main(argv: list[str]) -> int:
    """Measure and print; exit with 1 when events were lost on the way."""
    parser = argparse.ArgumentParser(
        prog="kvpulse bench pool", description="Cost per block of allocating and freeing."
    )
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each kind (default 15)")
    parser.add_argument("--seed", type=int, default=SEED, help="what prompts are drawn from")
    parser.add_argument(
        "--prompts", type=int, default=NUM_PROMPTS, help=f"prompts kept (default {NUM_PROMPTS})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; at least 1 is needed")
    if options.prompts < 1:
        parser.error(f"--prompts is {options.prompts}; at least 1 is needed")
    figures, num_lost = measure(rounds=options.rounds)
    index_figures = {
        name: value
        for kind in ("radix", "hash")
        for name, value in measure_index(
            kind, seed=options.seed, num_prompts=options.prompts
        ).items()
    }
    if options.json:
        values = {name: round(value, 1) for name, value in (figures | index_figures).items()}
        print(json.dumps(values | {"seed": options.seed, "emitter": emitter().value}))
    else:
        targets = TARGETS_WITH_C_NS if emitter() is Emitter.C else TARGETS_NS
        for name, target_ns in targets.items():
            print(
                f"{name:24} {figures[name]:8.1f} ns a block recorded (target {target_ns}), "
                f"{figures[name + '_unrecorded']:8.1f} unrecorded"
            )
        for name, value in index_figures.items():
            target = f" (target {TARGETS_US[name]})" if name in TARGETS_US else ""
            print(f"{name:26} {value:6.1f} us a prompt{target}")
        print(f"prompts drawn from seed {options.seed}; recorded by the {emitter()} emitter")
    return 1 if num_lost else 0


def measure(*, rounds: int) -> tuple[dict[str, float], int]:
    """Return each figure in ns per block, and how many events found no segment."""
    samples: dict[str, list[float]] = {}
    shared_memory = Path("/dev/shm")
    folder = shared_memory if shared_memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as journal:
        recorder = Recorder.open(
            Path(journal),
            "bench",
            total_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            segment_bytes=SEGMENT_BYTES,
        )
        try:
            pools = {"": BlockPool(NUM_BLOCKS, recorder=recorder), "_unrecorded": _pool()}
            for pool in pools.values():
                check_answers(pool)
            for _ in range(rounds):
                for size in SIZES:
                    for suffix, pool in pools.items():
                        _time_one_round(pool, size, suffix, samples)
                        recorder.heartbeat(0, 0, 0)  # where segments change
            num_lost = sum(recorder.not_written().values())
        finally:
            recorder.close()
    return {name: statistics.median(values) for name, values in sorted(samples.items())}, num_lost


def _pool() -> BlockPool:
    return BlockPool(NUM_BLOCKS)


def _time_one_round(
    pool: BlockPool, size: int, suffix: str, samples: dict[str, list[float]]
) -> None:
    gc.collect()
    started_ns = time.thread_time_ns()
    tables = _allocate_all(pool, size)
    allocated_ns = time.thread_time_ns()
    for table in tables:
        pool.free(OWNER, table)
    freed_ns = time.thread_time_ns()
    _fill_with_cached(pool)
    evicting_ns = time.thread_time_ns()
    tables = _allocate_all(pool, size)
    evicted_ns = time.thread_time_ns()
    for table in tables:
        pool.free(OWNER, table)
    for name, spent_ns in (
        (f"fresh_allocate_{size}_ns", allocated_ns - started_ns),
        (f"free_{size}_ns", freed_ns - allocated_ns),
        (f"evicting_allocate_{size}_ns", evicted_ns - evicting_ns),
    ):
        samples.setdefault(name + suffix, []).append(spent_ns / NUM_BLOCKS)


def _allocate_all(pool: BlockPool, size: int) -> list[list[int]]:
    tables = []
    for _ in range(NUM_BLOCKS // size):
        answer = pool.allocate(OWNER, size)
        assert not isinstance(answer, AllocationRefusal), "the pool holds them all"
        tables.append(answer)
    return tables


def _fill_with_cached(pool: BlockPool) -> None:
    """Leave every block cached, under hashes spread like real ones."""
    answer = pool.allocate(OWNER, NUM_BLOCKS)
    assert not isinstance(answer, AllocationRefusal), "the pool is empty"
    hashes = [(i + 1) * 0x9E37_79B9_7F4A_7C15 % 2**64 for i in range(NUM_BLOCKS)]
    pool.cache(OWNER, answer, hashes)
    pool.free(OWNER, answer)


def check_answers(pool: BlockPool) -> None:
    """Make sure that the pool does what is about to be timed.

    Raises:
        PoolError: It does not.
    """
    for size in SIZES:
        tables = _allocate_all(pool, size)
        if sorted(block_id for table in tables for block_id in table) != list(range(NUM_BLOCKS)):
            raise PoolError("the pool did not give out each block once")
        for table in tables:
            pool.free(OWNER, table)
        if pool.num_free != NUM_BLOCKS:
            raise PoolError("not every block was free again")
        _fill_with_cached(pool)
        if pool.num_cached != NUM_BLOCKS:
            raise PoolError("not every block was cached")
        for table in _allocate_all(pool, size):
            pool.free(OWNER, table)
        pool.check()
