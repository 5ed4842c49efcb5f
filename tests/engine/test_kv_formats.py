"""What each KV format weighs, how far it is from what was stored, and that moves keep every bit."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.kv_formats import KV_FORMATS, KvFormatError, format_of_dtype, kv_format
from engine.model.kv_tensors import KvShape, KvTensors
from engine.model.mla_cache import LatentShape
from engine.model.open_model import open_model
from engine.runner import StepPlan
from tests.engine.factories_model import random_model, run_step, runner_of, sequence_of

SMOLLM2 = KvShape(num_layers=30, num_blocks=3, block_size=4, num_kv_heads=3, head_dim=64)

# Largest error of one number, over the largest number of its vector.
ERROR = {"fp32": 0.0, "fp16": 2**-11, "bf16": 2**-8, "int8": 0.5 / 127 + 1e-6, "fp8": 2**-4}


SMALL = KvShape(num_layers=2, num_blocks=6, block_size=4, num_kv_heads=3, head_dim=16)


def kv_of(name, shape=SMALL, **settings):
    return KvTensors(shape, kv_format=kv_format(name), **settings)


def filled(kv, seed=1):
    """Store random keys and values in every slot of every layer; return them."""
    shape, generator = kv.shape, torch.Generator().manual_seed(seed)
    num_slots = shape.num_blocks * shape.block_size
    size = (2, shape.num_layers, num_slots, shape.num_kv_heads, shape.head_dim)
    drawn = torch.randn(size, generator=generator).mul_(3).to(kv.compute_dtype)
    for layer in range(shape.num_layers):
        kv.store(layer, key=drawn[0, layer], value=drawn[1, layer], slots=torch.arange(num_slots))
    return drawn


def gathered(kv, layer, block_ids):
    buffers = torch.empty(2, len(block_ids) * kv.elements_per_block, dtype=kv.compute_dtype)
    ids = torch.tensor(block_ids)
    return torch.stack(kv.gather(layer, ids, key_out=buffers[0], value_out=buffers[1]))


def allocated(kv):
    tensors = [*kv.keys, *kv.values, *kv.key_scales, *kv.value_scales]
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [("fp32", 46_080), ("fp16", 23_040), ("bf16", 23_040), ("int8", 12_240), ("fp8", 11_520)],
)
def test_a_token_of_smollm2_weighs_what_its_format_says(name, num_bytes):
    kv = kv_of(name, SMOLLM2)

    assert SMOLLM2.bytes_per_token(kv.format) == num_bytes
    assert allocated(kv) == kv.num_bytes == num_bytes * 3 * 4


def test_a_model_of_64_layers_and_8_key_heads_of_128_takes_262144_bytes_in_bf16():
    shape = KvShape(num_layers=64, num_blocks=1, block_size=1, num_kv_heads=8, head_dim=128)

    assert shape.bytes_per_token(kv_format("bf16")) == 262_144


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(KV_FORMATS)),
    sizes=st.tuples(*(st.integers(1, 5) for _ in range(4)), st.integers(1, 3).map(lambda n: 8 * n)),
    num_host_blocks=st.integers(0, 4),
)
def test_the_byte_formula_gives_the_bytes_allocated(name, sizes, num_host_blocks):
    kv = kv_of(name, KvShape(*sizes), num_host_blocks=num_host_blocks)

    per_block = kv.shape.bytes_per_token(kv.format) * kv.shape.block_size

    assert allocated(kv) == kv.num_bytes == per_block * kv.shape.num_blocks
    assert kv.num_host_bytes == per_block * num_host_blocks


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_what_is_gathered_is_what_was_stored_but_for_rounding(name, compute):
    kv = kv_of(name, dtype=compute)
    stored = filled(kv)

    got = gathered(kv, 1, [5, 0, 3])

    assert got.dtype == compute
    slots = torch.tensor([*range(20, 24), *range(4), *range(12, 16)])
    expected = stored[:, 1, slots]
    largest = expected.abs().amax(-1, keepdim=True).float()
    # The type that is computed in rounds once more.
    rounding = ERROR[name] + (0 if compute == torch.float32 else 2**-8)
    assert ((got - expected).abs() <= largest * rounding).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=8, max_size=8), st.integers(-40, 0))
def test_int8_is_off_by_at_most_half_a_step_of_its_scale(numbers, exponent):
    kv = kv_of("int8", KvShape(1, 1, 1, 1, 8))
    vector = (torch.tensor(numbers) * 2.0**exponent).view(1, 1, 8)

    kv.store(0, key=vector, value=-vector, slots=torch.tensor([0]))

    keys, values = gathered(kv, 0, [0])
    step = vector.abs().max() / 127
    assert torch.equal(keys, -values)
    assert ((keys - vector).abs() <= step * 0.5001).all()


def test_each_head_of_each_token_has_a_scale_of_its_own():
    kv = kv_of("int8", KvShape(1, 2, 2, 2, 8))
    key = torch.ones(2, 2, 8) * torch.tensor([[1.0, 100.0], [1e-3, 0.0]])[:, :, None]

    kv.store(0, key=key, value=key, slots=torch.tensor([1, 2]))

    keys, _ = gathered(kv, 0, [0, 1])
    assert torch.allclose(keys[1:3], key, rtol=1e-6)
    assert torch.allclose(kv.key_scales[0].view(4, 2)[1:3] * 127, key[:, :, 0], rtol=1e-6)


@pytest.mark.parametrize(("name", "largest"), [("fp8", 448.0), ("fp16", 65_504.0)])
def test_too_large_a_number_saturates_and_never_turns_into_nan(name, largest):
    kv = kv_of(name, KvShape(1, 1, 1, 1, 8))
    vector = torch.tensor([1e9, -1e9, 470.0, 1.0, 0.0, -0.5, float("inf"), 2.0]).view(1, 1, 8)

    kv.store(0, key=vector, value=vector, slots=torch.tensor([0]))

    keys, _ = gathered(kv, 0, [0])
    assert keys.flatten()[[0, 1, 6]].tolist() == [largest, -largest, largest]
    assert keys.isfinite().all()


def bits_of(kv, blocks):
    """The bytes of some blocks in every tensor, scales too."""
    tensors = [*kv.keys, *kv.values, *kv.key_scales, *kv.value_scales]
    return [t[list(blocks)].flatten(1).view(torch.uint8).clone() for t in tensors]


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_blocks_come_back_from_the_host_bit_for_bit(name):
    kv = kv_of(name, num_host_blocks=4)
    filled(kv)
    before = bits_of(kv, [2, 5, 0])

    kv.swap_out([(2, 3), (5, 0), (0, 1)])
    filled(kv, seed=2)
    kv.swap_in([(3, 4), (0, 1), (1, 2)])

    assert equal(bits_of(kv, [4, 1, 2]), before)


@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_block_copies_run_as_if_all_at_once(name):
    kv = kv_of(name)
    filled(kv)
    before = bits_of(kv, [1, 2, 0, 5])

    # A cycle, and one block copied twice.
    kv.copy_blocks([(1, 2), (2, 0), (0, 1), (5, 3), (5, 4)])

    assert equal(bits_of(kv, [2, 0, 1, 3]), before)
    assert equal(bits_of(kv, [4]), bits_of(kv, [5]))


def test_a_format_that_keeps_the_models_own_type_changes_nothing():
    assert [format_of_dtype(kv_format(name).dtype).name for name in ("fp32", "fp16", "bf16")] == [
        "fp32",
        "fp16",
        "bf16",
    ]


def test_an_unknown_format_is_refused_with_the_names_of_those_known():
    with pytest.raises(KvFormatError, match=r"'int4'; known here: fp32, fp16, bf16, int8, fp8"):
        kv_format("int4")


@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_a_runner_answers_over_any_format_and_says_what_a_token_weighs(name):
    runner = runner_of(random_model(), block_size=8, kv_format=name)
    sequence = sequence_of(range(40, 70), blocks=[7, 2, 0, 4, 1], block_size=8)
    exact = sequence_of(range(40, 70), blocks=[7, 2, 0, 4, 1], block_size=8)
    exact_runner = runner_of(random_model(), block_size=8)

    for _ in range(6):
        run_step(runner, [sequence])
        run_step(exact_runner, [exact])

    description = runner.describe()
    assert description.kv_format == name
    assert description.bytes_per_token == runner.kv.num_bytes / (64 * 8)
    # A random model's best logit leads by little; the first token needs no cache at all.
    assert sequence.token_ids[30] == exact.token_ids[30]
    if name != "fp8":
        assert sequence.token_ids == exact.token_ids


@pytest.mark.parametrize("model", ["random", "random-mla"])
@pytest.mark.parametrize("name", ["fp16", "bf16", "int8", "fp8"])
def test_logits_do_not_depend_on_where_a_prompt_is_cut_though_the_cache_rounds(model, name):
    opened = open_model(model)

    def logits(steps, kv_format):
        runner = runner_of((opened.config, opened.weights), block_size=8, kv_format=kv_format)
        sequence = sequence_of(range(60, 101), blocks=[7, 2, 0, 4, 1, 9], block_size=8)
        for num_new in steps:
            last = runner._model.forward(runner._pack(StepPlan(0, [sequence], [num_new])))
            sequence.num_computed_tokens += num_new
        return last[0]

    rounding = (logits([41], name) - logits([41], "fp32")).abs().max()
    for steps in ([20, 21], [1] * 41):
        cut = (logits(steps, name) - logits([41], name)).abs().max()
        assert cut < rounding / 4


def test_the_page_states_the_bytes_that_the_code_allocates():
    page = (Path(__file__).parents[2] / "docs" / "kv-formats.md").read_text("utf-8")
    latents = LatentShape(num_layers=61, num_blocks=1, block_size=1, latent_rank=512, rope_dim=64)

    for name, each in KV_FORMATS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        *_, smollm2, latent = row.strip("| ").split(" | ")
        assert int(smollm2.replace(",", "")) == SMOLLM2.bytes_per_token(each)
        assert int(latent.replace(",", "")) == latents.bytes_per_token(each)
