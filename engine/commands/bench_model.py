"""The torch half of `kvpulse bench engine`: tokens per second of the engine on a real model.

`measure` starts a fresh process for each thread count, since torch and OpenMP settle theirs once;
that process runs this module: it checks an answer, warms up, then times whole runs of 16 distinct
prompts of 256 tokens with 64 outputs each, greedy, prefix caching off.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.errors import EngineError
from engine.request import Request
from engine.runner import ModelRunner
from engine.sampling_params import SamplingParams

NUM_PROMPTS: Final = 16
PROMPT_TOKENS: Final = 256
OUTPUT_TOKENS: Final = 64
BLOCK_SIZE: Final = 16
TOKEN_BUDGET: Final = 1024
SPIN_COUNT: Final = 50_000  # iterations: some 0.1 ms
# The first ids of a vocabulary are special tokens.
FIRST_PLAIN_TOKEN: Final = 32


class BenchError(EngineError):
    """A run that was to be timed gave a wrong answer, or could not be started."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Medians over the timed runs."""

    tokens_per_second: float
    tokens_per_cpu_second: float


def measure(*, model: str, num_threads: int, repeats: int, seed: int) -> Throughput:
    """Measure in a fresh process with `num_threads` torch threads.

    Raises:
        BenchError: The process failed; the message is its own.
    """
    command = [sys.executable, "-m", "engine.commands.bench_model", "--model", model]
    command += ["--threads", str(num_threads), "--repeat", str(repeats), "--seed", str(seed)]
    # A thread that spins for long takes the core away from one that is not scheduled; one that
    # never spins sleeps between the hundreds of short products of a decode step. So: briefly.
    environment = os.environ | {
        "OMP_NUM_THREADS": str(num_threads),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", str(SPIN_COUNT)),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise BenchError(f"the run with {num_threads} threads failed: {lines[-1]}")
    return Throughput(**json.loads(done.stdout))


def run(*, model: str, num_threads: int, repeats: int, seed: int) -> Throughput:
    """Check, warm up and time in this process.

    Raises:
        EngineError: The model is missing or answers wrongly.
    """
    import torch

    torch.set_num_threads(num_threads)
    runner = _load(model)
    draw = random.Random(seed)
    vocabulary = range(FIRST_PLAIN_TOKEN, runner.describe().vocab_size)
    prompts = [
        tuple(draw.choice(vocabulary) for _ in range(PROMPT_TOKENS)) for _ in range(NUM_PROMPTS)
    ]
    if len(set(prompts)) != NUM_PROMPTS:
        raise BenchError(f"seed {seed} draws the same prompt twice")
    _check_answers(runner, prompts)
    samples = [_time_one_run(runner, prompts) for _ in range(repeats)]
    return Throughput(
        statistics.median(sample.tokens_per_second for sample in samples),
        statistics.median(sample.tokens_per_cpu_second for sample in samples),
    )


def _load(model: str) -> ModelRunner:
    from engine.model.open_model import open_model
    from engine.model.torch_runner import TorchRunner

    opened = open_model(model)
    num_blocks = NUM_PROMPTS * (PROMPT_TOKENS + OUTPUT_TOKENS) // BLOCK_SIZE
    return TorchRunner(opened.config, opened.weights, num_blocks=num_blocks, block_size=BLOCK_SIZE)


def _check_answers(runner: ModelRunner, prompts: list[tuple[int, ...]]) -> None:
    """Run two prompts together and alone; the first tokens must agree. Warms up as well."""
    together = _answers(runner, prompts[:2], num_outputs=4)
    alone = [answer for prompt in prompts[:2] for answer in _answers(runner, [prompt], 4)]
    if together != alone:
        raise BenchError(f"batched, the model answers {together}; one by one {alone}")


def _time_one_run(runner: ModelRunner, prompts: list[tuple[int, ...]]) -> Throughput:
    started, cpu_started = time.perf_counter(), time.process_time()
    answers = _answers(runner, prompts, OUTPUT_TOKENS)
    spent, cpu_spent = time.perf_counter() - started, time.process_time() - cpu_started
    if [len(answer) for answer in answers] != [OUTPUT_TOKENS] * NUM_PROMPTS:
        raise BenchError(f"{NUM_PROMPTS} requests for {OUTPUT_TOKENS} tokens gave other counts")
    num_tokens = NUM_PROMPTS * OUTPUT_TOKENS
    return Throughput(num_tokens / spent, num_tokens / cpu_spent)


def _answers(
    runner: ModelRunner, prompts: list[tuple[int, ...]], num_outputs: int
) -> list[list[int]]:
    """Run prompts through an engine over this runner to their end."""
    config = EngineConfig(
        total_blocks=NUM_PROMPTS * (PROMPT_TOKENS + OUTPUT_TOKENS) // BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        max_batch=NUM_PROMPTS,
        token_budget=TOKEN_BUDGET,
        watermark_ratio=0.0,
        prefix_caching=False,
    )
    engine = Engine(config, runner, clock=SystemClock())
    sampling = SamplingParams(max_tokens=num_outputs, ignore_eos=True)
    answers: dict[int, list[int]] = {}
    for prompt in prompts:
        admission = engine.submit(Request(prompt_token_ids=prompt, sampling=sampling))
        if admission.rejection is not None:
            raise BenchError(f"a prompt was refused: {admission.rejection}")
        answers[admission.seq_id] = []
    while engine.has_work:
        for event in engine.step():
            answers[event.seq_id].append(event.token_id)
    engine.close()
    return list(answers.values())


def main(argv: list[str]) -> int:
    """Measure in this process and print one JSON object: what `measure` starts."""
    parser = argparse.ArgumentParser(prog="python -m engine.commands.bench_model")
    parser.add_argument("--model", required=True)
    for name in ("--threads", "--repeat", "--seed"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args(argv)
    try:
        measured = run(
            model=options.model,
            num_threads=options.threads,
            repeats=options.repeat,
            seed=options.seed,
        )
    except (EngineError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 3
    print(json.dumps(asdict(measured)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
