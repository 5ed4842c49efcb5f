"""However the scheduler cuts the work, a greedy answer is that of a plain one-request run."""

import pytest

from tests.engine.factories_model import (
    SEED,
    Workload,
    random_model,
    run_engine,
    run_step,
    runner_of,
    seeded_prompts,
    sequence_of,
    smollm2,
    smollm2_tokenizer,
)

BLOCK_SIZE = 8
NEAR_TIE = 1e-3
# Enough for every prompt at once, so that nothing is ever evicted or preempted.
AMPLE_BLOCKS = 1200

# Settings of each way to run, and how many blocks its pool has.
WAYS = {
    "batched": (AMPLE_BLOCKS, {"max_batch": 64, "token_budget": 4096, "prefix_caching": False}),
    "chunked": (AMPLE_BLOCKS, {"max_batch": 20, "token_budget": 45, "prefix_caching": False}),
    "preempted": (56, {"max_batch": 32, "token_budget": 512, "prefix_caching": False}),
    "prefix_cached": (AMPLE_BLOCKS, {"max_batch": 24, "token_budget": 1024}),
    "prefix_cached_and_preempted": (56, {"max_batch": 32, "token_budget": 64}),
}


def plain_answers(model, workload):
    """One request at a time, its prompt in one piece, through the runner alone."""
    runner = runner_of(model, num_blocks=64, block_size=BLOCK_SIZE)
    answers = []
    for prompt in workload.prompts:
        sequence = sequence_of(prompt, blocks=range(64), block_size=BLOCK_SIZE)
        answers.append([run_step(runner, [sequence])[0] for _ in range(workload.num_outputs)])
    return answers


def lead_of_the_best(model, token_ids):
    """Return by how much the best logit beats the second after these tokens, in a plain run."""
    runner = runner_of(model, num_blocks=64, block_size=BLOCK_SIZE)
    logits = []
    forward = runner._model.forward
    runner._model.forward = lambda batch: logits.append(forward(batch)) or logits[-1]
    run_step(runner, [sequence_of(token_ids, blocks=range(64), block_size=BLOCK_SIZE)])
    best, second = logits[0][0].topk(2).values.tolist()
    return best - second


def check_answers(model, workload, plain, answers):
    """Equal to the end for at least 95 %, and a near tie wherever the first difference is."""
    num_equal = 0
    for prompt, expected, got in zip(workload.prompts, plain, answers, strict=True):
        assert len(got) == workload.num_outputs
        differing = [
            i for i, pair in enumerate(zip(expected, got, strict=True)) if len({*pair}) > 1
        ]
        if differing:
            assert lead_of_the_best(model, prompt + expected[: differing[0]]) < NEAR_TIE
        num_equal += not differing
    print(f"seed {SEED}: {num_equal} of {len(plain)} equal to the end")
    assert num_equal >= 0.95 * len(plain)


def run_way(model, workload, way):
    num_blocks, settings = WAYS[way]
    runner = runner_of(model, num_blocks=num_blocks, block_size=BLOCK_SIZE)
    answers = run_engine(runner, workload, **settings)
    assert (answers.preemptions > 0) == ("preempted" in way)
    assert (answers.prefix_hit_tokens > 0) == ("prefix" in way)
    return answers.token_ids


@pytest.fixture(scope="module")
def random_workload():
    print(f"seed {SEED}")
    prompts = seeded_prompts(lambda text: list(text.encode()), count=96, num_words=(1, 18))
    workload = Workload([prompt[:200] for prompt in prompts], num_outputs=24)
    return workload, plain_answers(random_model(), workload)


@pytest.mark.parametrize("way", WAYS)
def test_the_random_model_answers_as_in_a_plain_run(random_workload, way):
    workload, plain = random_workload

    answers = run_way(random_model(), workload, way)

    check_answers(random_model(), workload, plain, answers)


@pytest.mark.parametrize("block_size", [16, 32, 64, 128])
def test_the_block_size_does_not_change_an_answer(random_workload, block_size):
    workload, plain = random_workload
    runner = runner_of(random_model(), num_blocks=2048 // block_size, block_size=block_size)

    answers = run_engine(runner, workload, max_batch=8, token_budget=300)

    assert answers.prefix_hit_tokens > 0 or block_size == 128
    check_answers(random_model(), workload, plain, answers.token_ids)


@pytest.fixture(scope="module")
def smollm2_workload():
    print(f"seed {SEED}")
    encode = smollm2_tokenizer().encode
    workload = Workload(seeded_prompts(encode, count=64, num_words=(8, 24)), num_outputs=8)
    return workload, plain_answers(smollm2(), workload)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("way", ["batched", "chunked", "preempted", "prefix_cached"])
def test_smollm2_answers_as_in_a_plain_run(smollm2_workload, way):
    workload, plain = smollm2_workload

    answers = run_way(smollm2(), workload, way)

    check_answers(smollm2(), workload, plain, answers)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("block_size", [16, 64])
def test_smollm2s_answers_do_not_depend_on_the_block_size(smollm2_workload, block_size):
    workload, plain = smollm2_workload
    part = Workload(workload.prompts[:24], workload.num_outputs)
    runner = runner_of(smollm2(), num_blocks=3000 // block_size, block_size=block_size)

    answers = run_engine(runner, part, max_batch=24, token_budget=1024)

    check_answers(smollm2(), part, plain[:24], answers.token_ids)


@pytest.mark.model
def test_the_capital_of_france_is_paris():
    tokenizer = smollm2_tokenizer()
    workload = Workload([tokenizer.encode("The capital of France is")], num_outputs=2)

    answers = run_engine(runner_of(smollm2()), workload)

    assert tokenizer.decode(answers.token_ids[0]) == " Paris."
