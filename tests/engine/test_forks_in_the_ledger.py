"""What the agent makes of forks, from what the engine records of them."""

from dataclasses import dataclass

from agent.ledger.delta import RunShape
from agent.ledger.ledger import Ledger
from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.reader import StreamReader
from tests.engine.factories_engine import COST, make_request, run_until_done

AUDITS = {"audit_interval_ns": 1_000_000}  # after each step


def recorded_engine(folder, **settings):
    clock = VirtualClock()
    return open_engine(
        EngineConfig(**{"total_blocks": 40, "block_size": 4, "max_batch": 8, **AUDITS, **settings}),
        SimulatedRunner(clock, cost=COST),
        clock=clock,
        journal=JournalSettings(folder, wall_clock=clock.now_ns),
    )


@dataclass(frozen=True)
class Seen:
    """Each sequence's row, and how many audits the ledger has passed."""

    rows: dict
    audits: int


def seen(recorder):
    """Let a new ledger follow the stream, which is still written, as far as it goes."""
    reader = StreamReader(recorder.directory, is_alive=lambda: True)
    ledger = Ledger(RunShape(40, 0, 4))
    while (batch := reader.read()) is not None:
        ledger.apply(batch)
    delta = ledger.take()
    assert delta.audits.failed == 0
    return Seen({row.owner: row for row in delta.requests}, delta.audits.passed)


def sharing(row):
    return row.logical_blocks, row.physical_blocks, row.shared_within


def test_the_ledger_knows_what_samples_share(tmp_path):
    engine, recorder = recorded_engine(tmp_path)

    engine.submit(make_request(prompt_tokens=10, max_tokens=30, n=4))
    engine.step()
    forked = seen(recorder).rows

    assert [sharing(forked[owner]) for owner in (1, 2, 3, 4)] == [(3, 3, 3)] * 4
    assert [forked[owner].parent for owner in (1, 2, 3, 4)] == [0, 1, 1, 1]

    for _ in range(3):
        engine.step()
    written = seen(recorder)

    assert [sharing(written.rows[owner]) for owner in (1, 2, 3, 4)] == [(4, 4, 2)] * 4
    assert written.audits > 3


def test_the_laws_hold_through_samples_and_beams_under_pressure(tmp_path):
    engine, recorder = recorded_engine(tmp_path, total_blocks=40, watermark_ratio=0.0)

    for fields in ({"n": 4}, {"beam_width": 4, "n": 2}, {}, {"n": 2, "best_of": 3}):
        engine.submit(make_request(prompt_tokens=10, max_tokens=25, **fields))
    events = run_until_done(engine)
    engine.close()
    last = seen(recorder)

    assert engine.accounts().preemptions > 0
    assert {row.state for row in last.rows.values()} == {"finished"}
    assert len(last.rows) == 4 + 3 + 3 + 2
    assert last.audits > 20
    beams = [event for event in events if event.root == 2]
    assert last.rows[2].output_tokens == sum(event.index == 0 for event in beams)
