"""Runners and engines for tests of the model: the tiny random one, and SmolLM2 where it is."""

import os
import random
from dataclasses import dataclass
from functools import cache

import pytest
import torch

from engine.block_table import blocks_for
from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.model.gguf_file import GgufFile
from engine.model.llama_gguf import read_config, read_weights
from engine.model.model_files import ModelNotFoundError, find_model
from engine.model.random_model import RANDOM_CONFIG, random_weights
from engine.model.tokenizer import GgufTokenizer
from engine.model.torch_runner import TorchRunner
from engine.request import Request
from engine.runner import NO_TOKEN, StepPlan
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence

# More threads than free cores make torch's OpenMP spin for seconds.
torch.set_num_threads(1)

SEED = int(os.environ.get("KVPULSE_SEED", "20261130"))
MODEL_SEED = 11


def smollm2_path():
    """Return the path of the SmolLM2 file, or skip with how to get it."""
    try:
        return find_model("smollm2")
    except ModelNotFoundError as error:
        pytest.skip(str(error))


@cache
def smollm2():
    """Return SmolLM2's sizes and weights, read once for all tests of a process."""
    with GgufFile(smollm2_path()) as file:
        config = read_config(file)
        return config, read_weights(file, config)


@cache
def smollm2_tokenizer():
    with GgufFile(smollm2_path()) as file:
        return GgufTokenizer(file)


@cache
def random_model():
    return RANDOM_CONFIG, random_weights(MODEL_SEED)


def runner_of(model, *, num_blocks=64, block_size=16, eos_token_ids=(), **settings):
    """Return a runner over a fresh cache; `settings` are the runner's."""
    config, weights = model
    return TorchRunner(
        config,
        weights,
        num_blocks=num_blocks,
        block_size=block_size,
        eos_token_ids=eos_token_ids,
        **settings,
    )


def sequence_of(token_ids, *, blocks, block_size=16, seq_id=1, sampling=None):
    """Return a sequence that the scheduler would have given these blocks."""
    request = Request(prompt_token_ids=token_ids, sampling=sampling or SamplingParams())
    sequence = Sequence(seq_id, request, block_size=block_size)
    sequence.block_table.block_ids = list(blocks)
    assert len(blocks) >= blocks_for(len(token_ids), block_size)
    return sequence


def run_step(runner, sequences, num_new=None, *, block_moves=()):
    """Execute one step and move the sequences on, as the engine would; return the tokens."""
    num_new = num_new or [one.num_tokens - one.num_computed_tokens for one in sequences]
    result = runner.execute(StepPlan(0, list(sequences), num_new, list(block_moves)))
    for sequence, ran, token_id in zip(sequences, num_new, result.token_ids, strict=True):
        sequence.num_computed_tokens += ran
        if token_id != NO_TOKEN:
            sequence.token_ids.append(token_id)
            sequence.num_tokens += 1
    return result.token_ids


@dataclass(frozen=True)
class Workload:
    """Prompts, and how many tokens each shall give."""

    prompts: list[list[int]]
    num_outputs: int

    def requests(self):
        sampling = SamplingParams(max_tokens=self.num_outputs, ignore_eos=True)
        return [Request(prompt_token_ids=prompt, sampling=sampling) for prompt in self.prompts]


@dataclass(frozen=True)
class Answers:
    """Generated tokens per prompt, and what the engine counted on the way."""

    token_ids: list[list[int]]
    preemptions: int
    prefix_hit_tokens: int


def run_engine(runner, workload, **settings):
    """Run a workload to its end; `settings` are the engine's."""
    kv = runner.kv.shape
    config = EngineConfig(
        **({"total_blocks": kv.num_blocks, "block_size": kv.block_size} | settings)
    )
    engine = Engine(config, runner, clock=SystemClock())
    answers = {}
    for request in workload.requests():
        admission = engine.submit(request)
        assert admission.rejection is None, admission
        answers[admission.seq_id] = []
    while engine.has_work:
        for event in engine.step():
            answers[event.seq_id].append(event.token_id)
        engine.check()
    accounts = engine.accounts()
    engine.close()
    assert accounts.active_blocks == 0
    return Answers(list(answers.values()), accounts.preemptions, accounts.prefix_hit_tokens)


def seeded_prompts(encode, *, count, num_words):
    """Draw prompts of common words from SEED; half of them open with the same sentence."""
    draw = random.Random(SEED)
    words = WORDS.split()
    opening = " ".join(draw.choice(words) for _ in range(24))
    prompts = []
    for index in range(count):
        text = " ".join(draw.choice(words) for _ in range(draw.randint(*num_words)))
        prompts.append(encode(f"{opening}. {text}" if index % 2 else text))
    return prompts


WORDS = """
the a of and to in is was for on that with as it at by from his her they we river mountain city
paper water light engine small large quick slow red green seven twelve winter summer music bread
write read carry open close build answer question morning evening train ship garden stone glass
""".strip()
