"""One call to allocate is timed between two accounts of the pool; all others run as they are."""

from itertools import count

from engine.allocate_timer import AllocateTimer
from engine.block_pool import BlockPool
from engine.clock import SystemClock, VirtualClock
from engine.pool_results import AllocationRefusal
from kvpulse.events import Kind
from kvpulse.recorder import Recorder
from tests.engine.factories_engine import make_engine, make_request, run_until_done
from tests.engine.factories_faults import records_of


class MachineClock(SystemClock):
    """The machine's clock, which a simulated runner cannot hurry."""

    def advance(self, ns: int) -> None:
        """Let time pass as it does."""


def timer_of(pool: BlockPool) -> AllocateTimer:
    ticks = count(0, 70)
    return AllocateTimer(pool, lambda: next(ticks))


def test_the_next_call_is_timed_and_then_the_pool_is_as_before():
    pool = BlockPool(8)
    timer = timer_of(pool)

    assert timer.take() is None
    assert pool.allocate == timer._timed
    first, second = pool.allocate(1, 3), pool.allocate(1, 2)

    assert pool.allocate.__func__ is BlockPool.allocate
    assert (len(first), len(second), pool.num_active) == (3, 2, 5)
    assert timer.take() == 70
    assert timer.take() is None


def test_a_refused_call_is_no_sample_and_the_next_one_is_timed():
    pool = BlockPool(4)
    timer = timer_of(pool)
    timer.take()

    assert isinstance(pool.allocate(1, 5), AllocationRefusal)
    assert len(pool.allocate(1, 4)) == 4

    assert timer.take() == 70


def aux_of_accounts(tmp_path, clock):
    recorder = Recorder.open(tmp_path, "timed", total_blocks=64, block_size=16)
    engine = make_engine(clock=clock, recorder=recorder)
    engine.submit(make_request(8, 8))
    run_until_done(engine)
    engine._report()
    engine.close()
    return [int(record["aux"]) for record, _ in records_of(recorder.directory, Kind.POOL)]


def test_an_engine_on_the_machines_clock_states_the_sample_with_its_account(tmp_path):
    stated = aux_of_accounts(tmp_path, MachineClock())

    assert stated[0] == 0, "nothing was allocated before the first"
    assert any(1 < aux < 1_000_000_000 for aux in stated)


def test_a_simulated_engine_measures_nothing_and_says_nothing(tmp_path):
    assert set(aux_of_accounts(tmp_path, VirtualClock(5))) == {0}
