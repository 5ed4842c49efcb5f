"""Faults on a command line: names, parameters, several at once; loud when on, free when off."""

import argparse
import logging

import pytest

from engine.clock import SystemClock, VirtualClock
from engine.errors import ConfigError
from engine.faults.fault import Fault, FaultParameters
from engine.faults.options import add_fault_options
from engine.faults.protocol import NoFaults
from engine.faults.registry import FAULT_NAMES, FAULTS, build_faults, read_fault
from engine.faults.setup import FaultSetup, TruthFile
from engine.faults.several_faults import SeveralFaults
from engine.faults.spec import FaultSpec, read_parameters
from engine.open_engine import JournalSettings, open_engine
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.events import FinishReason
from tests.engine.factories_engine import make_engine
from tests.engine.factories_faults import CONFIG, lines_of, run_with

SECOND = 1_000_000_000


def make_setup(**fields):
    return FaultSetup(VirtualClock(), CONFIG, **fields)


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_fault_options(parser)
    return parser.parse_args(arguments).fault


def test_every_promised_fault_is_there():
    assert set(FAULT_NAMES) == {
        "leak_on_cancel", "leak_slow", "double_free", "slow_step", "stall_admission",
        "pool_shrink", "hog_tenant", "drop_events", "clock_step", "slow_frontend", "engine_crash",
    }  # fmt: skip


@pytest.mark.parametrize("name", FAULT_NAMES)
def test_each_fault_has_sane_defaults_and_takes_a_time_and_a_seed(name):
    setup = make_setup()

    fault = build_faults([read_fault(f"{name}:after_seconds=60,for_seconds=30,seed=3")], setup)

    assert isinstance(fault, Fault)
    assert isinstance(build_faults([read_fault(name)], setup), Fault)
    assert fault.name == name
    assert not fault.acts_now
    setup.clock.advance(60 * SECOND)
    assert fault.acts_now
    setup.clock.advance(30 * SECOND)
    assert not fault.acts_now


@pytest.mark.parametrize("name", FAULT_NAMES)
def test_a_fault_that_has_not_begun_changes_nothing(name, tmp_path):
    clock = VirtualClock()
    journal = JournalSettings(tmp_path, wall_clock=lambda: 123)
    truth = TruthFile(tmp_path / "truth")
    setup = FaultSetup(clock, CONFIG, truth, wall_clock=lambda: 5)
    fault = build_faults([read_fault(f"{name}:after_seconds=60")], setup)
    engine, _ = open_engine(
        CONFIG, SimulatedRunner(clock), clock=clock, journal=journal, faults=fault
    )

    assert fault.kept_at_end(1, [1, 2], FinishReason.CANCELLED) == []
    assert fault.freed_twice(1, [1, 2], FinishReason.STOP) == []
    assert fault.admits()
    assert fault.blocks_to_withdraw(10, 256) == 0
    assert list(fault.requests()) == []
    assert fault.recording_allowed()
    assert fault.frontend_delay_seconds() == 0
    assert fault.wall_clock(lambda: 7)() == 7
    engine.tick()
    engine.close()
    assert not (tmp_path / "truth").exists()


def test_no_fault_is_the_default_and_costs_the_engine_no_look():
    assert isinstance(build_faults([], make_setup()), NoFaults)
    assert make_engine()._pass_faults is None


def test_several_faults_can_be_on_at_once():
    specs = parsed("--fault", "leak_slow:every=5", "--fault", "slow_step:factor=1.5")

    assert [str(spec) for spec in specs] == ["leak_slow:every=5", "slow_step:factor=1.5"]
    assert isinstance(build_faults(specs, make_setup()), SeveralFaults)
    assert parsed() == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nonsense", "leak_on_cancel, leak_slow"),
        ("leak_slow:evry=5", "every"),
        ("leak_slow:every=often", "a whole number"),
        ("leak_slow:every=0", "1 or more"),
        ("leak_slow:every", "NAME:key=value"),
        ("leak_slow:every=2,every=3", "every once"),
        ("slow_step:factor=1", "above 1"),
        ("slow_step:factor=nan", "a number"),
        ("pool_shrink:ratio=1", "below 1"),
        ("engine_crash:after_seconds=-1", "0 or more"),
        ("hog_tenant:every_seconds=0", "0.001 or more"),
        ("hog_tenant:tenant=", "NAME:key=value"),
    ],
)
def test_what_no_fault_takes_is_named_with_what_it_would_take(text, part, capsys):
    with pytest.raises(ConfigError, match=part):
        read_fault(text)
    with pytest.raises(SystemExit) as ended:
        parsed("--fault", text)
    assert ended.value.code == 2
    assert part in capsys.readouterr().err


def test_parameters_are_read_as_their_types():
    spec = FaultSpec.parse("hog_tenant:tenant=acme,every_seconds=0.25,prompt_tokens=64,seed=9")

    parameters = read_parameters(spec, FAULTS[spec.name].parameters)

    assert (parameters.tenant, parameters.every_seconds) == ("acme", 0.25)
    assert (parameters.prompt_tokens, parameters.max_tokens, parameters.seed) == (64, 0, 9)


def test_a_fault_says_that_it_is_on_and_then_ever_rarer_what_it_does(caplog):
    seconds = [100.0]
    fault = Fault("leak_slow", make_setup(), FaultParameters(), now_seconds=lambda: seconds[0])
    with caplog.at_level(logging.WARNING):
        for act in range(5):
            fault.state(f"act {act}")
        seconds[0] += 1.5
        fault.state("act 5")
        seconds[0] += 1.5
        fault.state("act 6")
        seconds[0] += 1.0
        fault.state("act 7")

    assert caplog.messages == [
        "FAULT leak_slow is on: after_seconds=0.0, for_seconds=0.0, seed=0",
        "FAULT leak_slow: act 0",
        "FAULT leak_slow: act 5 (and 4 acts before that were not said)",
        "FAULT leak_slow: act 7 (and 1 acts before that were not said)",
    ]


def test_every_act_is_in_the_truth_said_or_not(tmp_path):
    setup = make_setup(truth=TruthFile(tmp_path / "truth"), wall_clock=lambda: 42)
    fault = Fault("leak_slow", setup, FaultParameters())

    for block in range(3):
        setup.clock.advance(10)
        fault.state("said", blocks=[block])

    assert lines_of(tmp_path / "truth") == [
        {"fault": "leak_slow", "t_ns": 10 * block + 10, "wall_ns": 42, "blocks": [block]}
        for block in range(3)
    ]


def test_time_passes_by_waiting_on_the_machines_clock_and_by_word_on_a_virtual_one():
    setup = make_setup()
    setup.let_pass(3 * SECOND)
    assert setup.clock.now_ns() == 3 * SECOND

    real = FaultSetup(SystemClock(), CONFIG)
    before_ns = SystemClock.now_ns()
    real.let_pass(2_000_000)
    assert SystemClock.now_ns() - before_ns >= 2_000_000


def test_of_two_leaks_neither_takes_what_the_other_has(tmp_path):
    run = run_with(tmp_path, "leak_on_cancel", "leak_slow:every=1", seconds=30)

    pairs = [(line["owner"], block) for line in run.truth for block in line["blocks"]]
    assert len(pairs) == len(set(pairs))
    assert run.stored.failures == []
