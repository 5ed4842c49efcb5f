"""A runner without a model: tokens mean nothing, time comes from a cost model.

It drives the same pool and scheduler through hours of traffic in seconds.
"""

from engine.clock import VirtualClock
from engine.runner import NO_TOKEN, RunnerDescription, StepPlan, StepResult
from engine.simulation.cost_model import CostModel, CostNoise
from engine.simulation.simulated_draws import SIMULATED_EOS, SIMULATED_TOKEN, draw_more


class SimulatedRunner:
    """Advances a virtual clock by what each step would cost."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        cost: CostModel | None = None,
        max_context: int = 131_072,
        bytes_per_token: int = 131_072,
        sliding_window: int | None = None,
        group_windows: tuple[int | None, ...] = (),
        seed: int = 0,
    ) -> None:
        """Simulate a model with these limits; windows free blocks, but do not change costs."""
        self._clock = clock
        self._cost = cost or CostModel()
        self._noise = CostNoise(self._cost.noise_ratio, seed=seed)
        self._description = RunnerDescription(
            runner="simulated",
            model="simulated",
            kv_format="bf16",
            bytes_per_token=bytes_per_token,
            eos_token_ids=(SIMULATED_EOS,),
            vocab_size=0,
            max_context=max_context,
            sliding_window=sliding_window,
            group_windows=group_windows,
        )

    def execute(self, plan: StepPlan) -> StepResult:
        """Let the step's time pass and name a token for each complete sequence."""
        token_ids: list[int] = []
        add = token_ids.append
        prefill_tokens = context_tokens = num_decoding = 0
        all_plain = True
        for seq, n in zip(plan.sequences, plan.num_new_tokens, strict=True):
            num_tokens = seq.num_tokens
            if seq.prefilling:
                prefill_tokens += n
                context_tokens += seq.num_computed_tokens + n
                if seq.num_computed_tokens + n < num_tokens:
                    add(NO_TOKEN)
                    continue
            else:
                num_decoding += 1
                context_tokens += num_tokens
            if not seq.plain_sampling:
                all_plain = False
            add(SIMULATED_EOS if num_tokens + 1 >= seq.stop_at else SIMULATED_TOKEN)
        compute_ns = self._noise.apply(
            self._cost.step_ns(
                prefill_tokens=prefill_tokens,
                decode_sequences=num_decoding,
                context_tokens=context_tokens,
            )
        )
        sample_ns = self._cost.sample_ns
        self._clock.advance(compute_ns + sample_ns)
        result = StepResult(token_ids, compute_ns, sample_ns)
        if not all_plain:
            draw_more(plan, result)
        return result

    def describe(self) -> RunnerDescription:
        """Say what is simulated."""
        return self._description
