"""Load what `kvpulse serve` was asked for: a model in torch, or the simulation of one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.clock import Clock, SystemClock, VirtualClock
from engine.errors import EngineError
from engine.runner import ModelRunner
from engine.server.generation import TextCodec
from engine.server.serve_options import ServeOptions
from engine.simulation.cost_model import CostModel
from engine.simulation.simulated_runner import SimulatedRunner
from engine.simulation.simulated_text import SimulatedText

SIMULATED_CONTEXT = 8192


class TorchMissingError(EngineError):
    """A real model was asked for where torch is not installed."""

    def __init__(self, module: str) -> None:
        super().__init__(
            f"a real model needs the module {module!r}, which is not installed: run `make setup`, "
            "or serve with --simulated"
        )
        self.module = module


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A runner with the text side and the clock that belong to it.

    Attributes:
        names: What clients may call it; the first is the one it is shown under.
        keep_pace: Lets a virtual clock catch up with the wall; None on the machine's own clock.
        num_blocks: Blocks that were allocated; None where nothing was, as in a simulation.
        memory_lines: How that number came about.
    """

    runner: ModelRunner
    text: TextCodec
    clock: Clock
    names: tuple[str, ...]
    keep_pace: Callable[[], None] | None = None
    num_blocks: int | None = None
    memory_lines: tuple[str, ...] = ()


def load_model(options: ServeOptions, *, wall_ns: Callable[[], int]) -> LoadedModel:
    """Load or simulate.

    Raises:
        TorchMissingError: torch, or what else a real model needs, is not installed.
        EngineError: The model file is missing or cannot be read.
    """
    if options.simulated:
        return _simulate(options, wall_ns)
    try:
        from engine.server.torch_loading import load_torch

        loaded = load_torch(options)
    except ModuleNotFoundError as error:
        raise TorchMissingError(error.name or "torch") from error
    name = loaded.runner.describe().model
    return LoadedModel(
        runner=loaded.runner,
        text=loaded.model.text,
        clock=SystemClock(),
        names=_names(options.model, loaded.model.path, name),
        num_blocks=loaded.plan.num_blocks,
        memory_lines=loaded.plan.lines,
    )


def _simulate(options: ServeOptions, wall_ns: Callable[[], int]) -> LoadedModel:
    clock = VirtualClock(wall_ns(), speed=1.0, wall_ns=wall_ns)
    cost = CostModel(base_ns=int(options.step_ms * 1e6), noise_ratio=0.05)
    context = options.max_context or SIMULATED_CONTEXT
    return LoadedModel(
        runner=SimulatedRunner(clock, cost=cost, max_context=context),
        text=SimulatedText(),
        clock=clock,
        names=("simulated",),
        keep_pace=lambda: clock.advance_to(wall_ns()),
    )


def _names(asked: str, path: Path | None, model: str) -> tuple[str, ...]:
    """Return the names, without repeating one: that of a file or folder stands for its path."""
    short = asked
    if path is not None and Path(asked).expanduser() == path:
        short = path.name if path.is_dir() else path.stem
    return tuple(dict.fromkeys((short, model)))
