"""Every fault by its name, and the injector of those that were asked for."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from engine.errors import ConfigError
from engine.faults.clock_step import ClockStep, ClockStepParameters
from engine.faults.double_free import DoubleFree, DoubleFreeParameters
from engine.faults.drop_events import DropEvents, DropEventsParameters
from engine.faults.engine_crash import EngineCrash, EngineCrashParameters
from engine.faults.fault import Fault, FaultParameters
from engine.faults.hog_tenant import HogTenant, HogTenantParameters
from engine.faults.leaks import LeakOnCancel, LeakOnCancelParameters, LeakSlow, LeakSlowParameters
from engine.faults.pool_shrink import PoolShrink, PoolShrinkParameters
from engine.faults.protocol import FaultInjector, NoFaults
from engine.faults.setup import FaultSetup
from engine.faults.several_faults import SeveralFaults
from engine.faults.slow_frontend import SlowFrontend, SlowFrontendParameters
from engine.faults.slow_step import SlowStep, SlowStepParameters
from engine.faults.spec import FaultSpec, read_parameters
from engine.faults.stall_admission import StallAdmission, StallAdmissionParameters


class FaultKind(NamedTuple):
    """How one kind of fault is built, and what it does, in words."""

    parameters: type[FaultParameters]
    build: Callable[[FaultSetup, Any], Fault]
    does: str


FAULTS: Final = {
    "leak_on_cancel": FaultKind(
        LeakOnCancelParameters, LeakOnCancel, "cancelled sequences keep their blocks"
    ),
    "leak_slow": FaultKind(
        LeakSlowParameters, LeakSlow, "now and then an ended sequence keeps a block or two"
    ),
    "double_free": FaultKind(
        DoubleFreeParameters, DoubleFree, "some ended sequences free blocks twice"
    ),
    "slow_step": FaultKind(SlowStepParameters, SlowStep, "steps take several times as long"),
    "stall_admission": FaultKind(
        StallAdmissionParameters, StallAdmission, "nobody is admitted any more"
    ),
    "pool_shrink": FaultKind(
        PoolShrinkParameters, PoolShrink, "part of the pool goes out of service"
    ),
    "hog_tenant": FaultKind(
        HogTenantParameters, HogTenant, "one tenant sends long requests without end"
    ),
    "drop_events": FaultKind(
        DropEventsParameters, DropEvents, "stretches of the recording are missing"
    ),
    "clock_step": FaultKind(
        ClockStepParameters, ClockStep, "the wall clock is set forwards and back"
    ),
    "slow_frontend": FaultKind(
        SlowFrontendParameters, SlowFrontend, "requests are held before the engine has them"
    ),
    "engine_crash": FaultKind(EngineCrashParameters, EngineCrash, "the engine's process is killed"),
}
FAULT_NAMES: Final = tuple(FAULTS)


def in_words(spec: FaultSpec) -> str:
    """Say what a fault does."""
    return f"{spec} ({FAULTS[spec.name].does})"


def read_fault(text: str) -> FaultSpec:
    """Read `NAME[:key=value,…]`; raises ConfigError for what no fault is called or takes."""
    spec = FaultSpec.parse(text)
    if spec.name not in FAULTS:
        raise ConfigError("fault", found=spec.name, accepted=", ".join(FAULT_NAMES))
    read_parameters(spec, FAULTS[spec.name].parameters)
    return spec


def build_faults(specs: Sequence[FaultSpec], setup: FaultSetup) -> FaultInjector:
    """Return the injector of the faults that were asked for; `NoFaults` for none.

    Raises:
        ConfigError: A fault is unknown, or its parameters do not fit it or the engine.
    """
    faults = [_build(spec, setup) for spec in specs]
    if not faults:
        return NoFaults()
    return faults[0] if len(faults) == 1 else SeveralFaults(faults)


def _build(spec: FaultSpec, setup: FaultSetup) -> Fault:
    if spec.name not in FAULTS:
        raise ConfigError("fault", found=spec.name, accepted=", ".join(FAULT_NAMES))
    kind = FAULTS[spec.name]
    return kind.build(setup, read_parameters(spec, kind.parameters))
