"""The torch runner's steps, and its attention and model against slow ones written out plainly."""

import pytest
import torch

from engine.model.attention import PagedAttention
from engine.model.kv_tensors import KvShape, KvTensors
from engine.model.projection import output_head
from engine.model.step_batch import pack_step
from engine.runner import NO_TOKEN, BlockMove, MoveKind, StepPlan
from engine.sampling_params import SamplingParams
from kernels import reference
from tests.engine.factories_beams import requests_of, run_requests, seeded_prompt
from tests.engine.factories_model import random_model, run_step, runner_of, sequence_of
from tests.engine.factories_plain_model import plain_logits


def test_the_model_computes_what_its_definition_says():
    token_ids = torch.randint(0, 512, (37,), generator=torch.Generator().manual_seed(3)).tolist()
    runner = runner_of(random_model(), block_size=8)
    sequence = sequence_of(token_ids, blocks=[5, 1, 9, 0, 3], block_size=8)

    def forward(num_new):
        batch = pack_step([sequence], [num_new], block_size=8, device=torch.device("cpu"))
        return runner._model.forward(batch)

    # A chunk, another one over it, then the last token alone as a decode.
    assert len(forward(20)) == 0
    sequence.num_computed_tokens = 20
    assert len(forward(16)) == 0
    sequence.num_computed_tokens = 36
    logits = forward(1)

    assert (logits[0].double() - plain_logits(token_ids)[-1]).abs().max() < 1e-4


def paged_attention_case(sequences, num_new, *, block_size):
    """Random queries over a random cache: what the engine's attention gives, and the reference."""
    generator = torch.Generator().manual_seed(len(sequences))
    kv = KvTensors(KvShape(1, 40, block_size, 3, 64))
    kv.keys[0].copy_(torch.randn(kv.keys[0].shape, generator=generator))
    kv.values[0].copy_(torch.randn(kv.values[0].shape, generator=generator))
    batch = pack_step(sequences, num_new, block_size=block_size, device=torch.device("cpu"))
    query = torch.randn(batch.num_tokens, 9, 64, generator=generator)
    key = kv.keys[0].view(-1, 3, 64)[batch.slots]
    value = kv.values[0].view(-1, 3, 64)[batch.slots]
    attention = PagedAttention(kv, num_heads=9)
    attention.prepare(batch)
    out = torch.empty(batch.num_tokens, 9 * 64)
    attention(0, batch, query=query, key=key, value=value, out=out)

    ordered = [sequence_at(sequences, num_new, batch.token_ids[row]) for row in first_rows(batch)]
    tables = torch.zeros(len(ordered), max(len(s.block_table) for s in ordered), dtype=torch.int64)
    for row, sequence in enumerate(ordered):
        tables[row, : len(sequence.block_table)] = torch.tensor(sequence.block_table.block_ids)
    counts = [num_new[sequences.index(sequence)] for sequence in ordered]
    expected = reference.paged_prefill(
        query=query,
        key_cache=kv.keys[0],
        value_cache=kv.values[0],
        block_tables=tables,
        query_starts=torch.tensor([0, *counts]).cumsum(0),
        context_lens=torch.tensor(
            [s.num_computed_tokens + n for s, n in zip(ordered, counts, strict=True)]
        ),
    )
    return out.view_as(expected), expected


def first_rows(batch):
    """The first row of each sequence of a batch, in row order."""
    rows = [row for group in batch.groups for row in range(group.start, group.end)]
    return rows + [chunk.start for chunk in batch.chunks]


def sequence_at(sequences, num_new, token_id):
    """Find the sequence that runs this token; the test's tokens are all different."""
    for sequence, num in zip(sequences, num_new, strict=True):
        first = sequence.num_computed_tokens
        if int(token_id) in sequence.token_ids[first : first + num]:
            return sequence
    raise AssertionError(token_id)


@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_a_mixed_batch_attends_as_the_reference_does(block_size):
    # Decodes of very different contexts, a first chunk, a later chunk, a one-token prompt.
    shapes = [(40, 1), (0, 19), (3, 1), (17, 9), (0, 1), (130, 1), (9, 1), (31, 2)]
    free = iter(torch.randperm(40, generator=torch.Generator().manual_seed(1)).tolist())
    sequences, num_new, next_token = [], [], 0
    for computed, new in shapes:
        token_ids = list(range(next_token, next_token + computed + new))
        next_token += computed + new
        blocks = [next(free) for _ in range(-(-(computed + new) // block_size))]
        sequences.append(sequence_of(token_ids, blocks=blocks, block_size=block_size))
        sequences[-1].num_computed_tokens = computed
        num_new.append(new)

    out, expected = paged_attention_case(sequences, num_new, block_size=block_size)

    assert (out - expected).abs().max() < 1e-5


def test_decodes_are_grouped_so_that_padding_at_most_doubles_the_work():
    sequences = [
        sequence_of(range(length), blocks=range(-(-length // 8)), block_size=8)
        for length in (100, 8, 16, 9, 17, 60, 1)
    ]
    for sequence in sequences:
        sequence.num_computed_tokens = sequence.num_tokens - 1

    batch = pack_step(sequences, [1] * 7, block_size=8, device=torch.device("cpu"))

    widths = [group.mask.shape[-1] // 8 for group in batch.groups]
    assert [(group.start, group.end) for group in batch.groups] == [(0, 4), (4, 5), (5, 7)]
    assert widths == [2, 3, 13]
    assert [sequences[index].num_tokens for index in batch.sampled] == [8, 1, 16, 9, 17, 60, 100]


def test_a_chunk_that_does_not_reach_the_end_samples_nothing():
    runner = runner_of(random_model())
    long = sequence_of(range(30), blocks=[0, 1])
    short = sequence_of(range(7), blocks=[2], seq_id=2)

    first = run_step(runner, [long, short], [16, 7])
    second = run_step(runner, [long, short], [14, 1])

    assert first[0] == NO_TOKEN
    assert first[1] != NO_TOKEN
    assert NO_TOKEN not in second


def test_an_empty_plan_gives_an_empty_result():
    result = runner_of(random_model()).execute(StepPlan(0))

    assert result.token_ids == []


def test_blocks_are_copied_before_the_step_writes():
    prompt = list(range(60, 76))
    runner = runner_of(random_model())
    parent = sequence_of(prompt, blocks=[4, 5])
    run_step(runner, [parent])
    child = sequence_of(prompt, blocks=[7, 6], seq_id=2)
    child.num_computed_tokens = 15

    # Block 4 is copied to 7, and then the child's last prompt token is written into 7.
    (token_id,) = run_step(runner, [child], block_moves=[BlockMove(MoveKind.COPY, 4, 7)])

    assert token_id == parent.token_ids[16]
    keys = runner.kv.keys[1]
    assert torch.equal(keys[7, :15], keys[4, :15])
    assert torch.allclose(keys[7, 15], keys[4, 15], atol=1e-5)


def test_a_seeded_draw_does_not_depend_on_the_company():
    how = SamplingParams(temperature=1.0, seed=5)

    def drawn(company):
        runner = runner_of(random_model())
        one = sequence_of(range(20), blocks=[0, 1, 2], sampling=how)
        others = [
            sequence_of(range(i, 9 + i), blocks=[9 + i], seq_id=9 + i) for i in range(company)
        ]
        for _ in range(6):
            run_step(runner, [*others, one])
        return one.token_ids[20:]

    assert drawn(0) == drawn(3)
    assert len(set(drawn(0))) > 1


def test_unseeded_draws_differ_between_sequences():
    runner = runner_of(random_model())
    how = SamplingParams(temperature=2.0)
    sequences = [
        sequence_of(range(9), blocks=[2 * i, 2 * i + 1], seq_id=i, sampling=how) for i in range(8)
    ]

    for _ in range(4):
        run_step(runner, sequences)

    assert len({tuple(sequence.token_ids[9:]) for sequence in sequences}) > 1


def test_a_step_tells_how_long_it_computed_and_sampled():
    runner = runner_of(random_model())

    result = runner.execute(StepPlan(0, [sequence_of(range(9), blocks=[0])], [9]))

    assert result.compute_ns > 0
    assert result.sample_ns > 0


def test_the_runner_describes_its_model_and_cache():
    description = runner_of(random_model(), eos_token_ids=(256,)).describe()

    assert description.runner == "torch"
    assert description.kv_format == "fp32"
    assert description.bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert (description.vocab_size, description.max_context) == (512, 2048)
    assert description.eos_token_ids == (256,)


@pytest.mark.parametrize("num_rows", [1, 3, 16, 65])
def test_the_packed_output_head_is_the_plain_product(num_rows):
    generator = torch.Generator().manual_seed(num_rows)
    weight = torch.randn(300, 64, generator=generator)
    rows = torch.randn(num_rows, 64, generator=generator)

    assert (output_head(weight)(rows) - rows @ weight.T).abs().max() < 1e-4


def test_the_same_seed_gives_the_same_random_model():
    first, second = (runner_of(random_model()) for _ in range(2))

    tokens = [run_step(runner, [sequence_of(range(9), blocks=[3])]) for runner in (first, second)]

    assert tokens[0] == tokens[1]


def test_a_device_without_memory_for_a_step_is_met_with_smaller_steps_and_the_same_answers():
    prompts = [seeded_prompt(seed, 12) for seed in range(3)]
    requests = requests_of(prompts, SamplingParams(max_tokens=5, ignore_eos=True))
    runner = runner_of(random_model(), block_size=4)
    forward, sizes = runner._model.forward, []

    def limited(batch):
        logits = forward(batch)
        sizes.append(len(batch.token_ids))
        if sizes[-1] > 10:
            raise torch.OutOfMemoryError("CUDA out of memory, a test says")
        return logits

    runner._model.forward = limited
    found, _ = run_requests(runner, requests)
    runner._model.forward = forward
    expected, _ = run_requests(runner, requests)

    assert found == expected
    assert sizes[:3] == [36, 18, 9]
