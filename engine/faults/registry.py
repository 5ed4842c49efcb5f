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
    """How one kind of fault is built."""

    parameters: type[FaultParameters]
    build: Callable[[FaultSetup, Any], Fault]


FAULTS: Final = {
    "leak_on_cancel": FaultKind(LeakOnCancelParameters, LeakOnCancel),
    "leak_slow": FaultKind(LeakSlowParameters, LeakSlow),
    "double_free": FaultKind(DoubleFreeParameters, DoubleFree),
    "slow_step": FaultKind(SlowStepParameters, SlowStep),
    "stall_admission": FaultKind(StallAdmissionParameters, StallAdmission),
    "pool_shrink": FaultKind(PoolShrinkParameters, PoolShrink),
    "hog_tenant": FaultKind(HogTenantParameters, HogTenant),
    "drop_events": FaultKind(DropEventsParameters, DropEvents),
    "clock_step": FaultKind(ClockStepParameters, ClockStep),
    "slow_frontend": FaultKind(SlowFrontendParameters, SlowFrontend),
    "engine_crash": FaultKind(EngineCrashParameters, EngineCrash),
}
FAULT_NAMES: Final = tuple(FAULTS)


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
