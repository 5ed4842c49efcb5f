"""A model that has become slow: another process on the GPU, a throttled clock, a bad kernel."""

from dataclasses import dataclass, replace

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup
from engine.runner import ModelRunner, RunnerDescription, StepPlan, StepResult


@dataclass(frozen=True, slots=True)
class SlowStepParameters(FaultParameters):
    """How slow.

    Attributes:
        factor: A step takes so many times as long.
    """

    factor: float = 3.0

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("factor", 1 < self.factor <= 1000, "above 1, at most 1000")


class SlowStep(Fault):
    """Steps take a factor longer in the model, and say so as a slow model would."""

    def __init__(self, setup: FaultSetup, parameters: SlowStepParameters) -> None:
        super().__init__("slow_step", setup, parameters)
        self._factor = parameters.factor
        self._is_slow = False

    def wrap_runner(self, runner: ModelRunner) -> ModelRunner:
        """Return a runner that takes its time."""
        return _SlowRunner(runner, self)

    def slow(self, result: StepResult) -> StepResult:
        """Let the extra time pass."""
        if not self.acts_now:
            self._say_over()
            return result
        extra_ns = int((self._factor - 1) * result.compute_ns)
        if not self._is_slow:
            self._is_slow = True
            self.state(
                f"steps take {self._factor:g} times as long from now on", factor=self._factor
            )
        self.setup.let_pass(extra_ns)
        return replace(result, compute_ns=result.compute_ns + extra_ns)

    def _say_over(self) -> None:
        if self._is_slow:
            self._is_slow = False
            self.state("steps are as fast as before", factor=1.0)


class _SlowRunner:
    """Another runner, slowed down."""

    def __init__(self, runner: ModelRunner, fault: SlowStep) -> None:
        self._runner = runner
        self._fault = fault

    def execute(self, plan: StepPlan) -> StepResult:
        """Run the step, and wait."""
        return self._fault.slow(self._runner.execute(plan))

    def describe(self) -> RunnerDescription:
        """Say what the other one is."""
        return self._runner.describe()
