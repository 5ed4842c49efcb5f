"""Every attention backend over the same batch gives what the torch path gives."""

import dataclasses

import pytest
import torch

from engine.model.attention import PagedAttention
from engine.model.attention.flash_attn import FlashAttention
from engine.model.attention.flashinfer import FlashInferAttention, compressed
from engine.model.attention.step_tables import step_tables
from engine.model.attention.triton_attention import TritonAttention
from engine.model.kv_formats import KV_FORMATS
from engine.model.kv_tensors import KvShape, KvTensors
from engine.model.step_batch import pack_step
from tests.engine.factories_attention_packages import FakeFlashAttn, FakeFlashInfer
from tests.engine.factories_model import Workload, random_model, run_engine, runner_of, sequence_of

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 4, 2, 16
# (computed tokens, new tokens): decodes of unlike contexts, a first chunk, later ones, a one-token
# prompt, and a first chunk longer than any window here.
ROWS = [(40, 1), (0, 7), (3, 1), (17, 5), (0, 1), (130, 1), (31, 2), (0, 21)]


@dataclasses.dataclass(frozen=True)
class Step:
    """A batch over a cache of noise, with random projections for its rows."""

    kv: KvTensors
    batch: object
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor

    def run(self, backend):
        """Store and attend with one backend, as the model does; [num_tokens, heads * dim]."""
        out = torch.empty(self.batch.num_tokens, NUM_HEADS * HEAD_DIM, dtype=self.query.dtype)
        backend.prepare(self.batch)
        backend.store(0, key=self.key, value=self.value, slots=self.batch.slots)
        backend(0, self.batch, query=self.query, key=self.key, value=self.value, out=out)
        return out.float()


def step_of(rows=ROWS, *, block_size=16, window=None, dtype=torch.float32, kv_format=None):
    """Lay out a step; the same arguments give the same numbers."""
    generator = torch.Generator().manual_seed(5)
    blocks = [-(-(computed + new) // block_size) for computed, new in rows]
    free = iter(torch.randperm(sum(blocks), generator=generator).tolist())
    sequences = []
    for (computed, new), count in zip(rows, blocks, strict=True):
        table = [next(free) for _ in range(count)]
        sequence = sequence_of([1] * (computed + new), blocks=table, block_size=block_size)
        sequence.num_computed_tokens = computed
        sequences.append(sequence)
    kv = KvTensors(
        KvShape(1, sum(blocks), block_size, NUM_KV_HEADS, HEAD_DIM),
        dtype=dtype,
        kv_format=kv_format,
    )
    shape = (sum(blocks) * block_size, NUM_KV_HEADS, HEAD_DIM)
    noise = [torch.randn(shape, generator=generator).to(dtype) for _ in range(2)]
    kv.store(0, key=noise[0], value=noise[1], slots=torch.arange(shape[0]))
    batch = pack_step(
        sequences,
        [new for _, new in rows],
        block_size=block_size,
        device=torch.device("cpu"),
        window=window,
        cache_rounds=kv.rounds,
    )
    heads = NUM_HEADS + 2 * NUM_KV_HEADS
    projected = torch.randn(batch.num_tokens, heads, HEAD_DIM, generator=generator).to(dtype)
    query, key, value = projected.split((NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS), dim=1)
    return Step(kv, batch, query, key, value)


def by_torch(step):
    return step.run(PagedAttention(step.kv, num_heads=NUM_HEADS))


@pytest.mark.parametrize("window", [None, 1, 10, 16])
@pytest.mark.parametrize("block_size", [4, 16])
def test_triton_attends_as_torch_does(block_size, window):
    step = step_of(block_size=block_size, window=window)

    out = step.run(TritonAttention(step.kv, num_heads=NUM_HEADS))

    assert (out - by_torch(step)).abs().max() < 1e-5


@pytest.mark.parametrize("name", KV_FORMATS)
def test_triton_reads_and_writes_every_kv_format_as_it_is_stored(name):
    step, other = (step_of(kv_format=KV_FORMATS[name]) for _ in range(2))

    out = step.run(TritonAttention(step.kv, num_heads=NUM_HEADS))

    assert (out - by_torch(other)).abs().max() < 1e-5
    assert torch.equal(step.kv.keys[0].view(torch.uint8), other.kv.keys[0].view(torch.uint8))
    for mine, theirs in zip(step.kv.key_scales, other.kv.key_scales, strict=True):
        assert torch.equal(mine, theirs)


def test_triton_splits_long_contexts_of_small_batches():
    step = step_of([(1050, 1)])
    backend = TritonAttention(step.kv, num_heads=NUM_HEADS, num_cores=8)

    out = step.run(backend)

    assert backend.num_splits == 2
    assert (out - by_torch(step)).abs().max() < 1e-5


@pytest.mark.parametrize("window", [None, 10, 300])
def test_flash_attn_is_called_as_documented_and_attends_as_torch_does(window):
    rows = [*ROWS, (700, 1), (500, 30)]
    step = step_of(rows, block_size=256, window=window, dtype=torch.float16)
    package = FakeFlashAttn()

    out = step.run(FlashAttention(step.kv, num_heads=NUM_HEADS, package=package))

    assert package.calls == ["decode", "prefill"]
    assert (out - by_torch(step)).abs().max() < 4e-3


@pytest.mark.parametrize("window", [None, 10])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_flashinfer_is_called_as_documented_and_attends_as_torch_does(dtype, window):
    step = step_of(window=window, dtype=dtype)

    out = step.run(FlashInferAttention(step.kv, num_heads=NUM_HEADS, package=FakeFlashInfer()))

    assert (out - by_torch(step)).abs().max() < (4e-3 if dtype == torch.float16 else 4e-2)


def test_flashinfer_reads_an_fp8_cache():
    step = step_of(dtype=torch.float16, kv_format=KV_FORMATS["fp8"])

    out = step.run(FlashInferAttention(step.kv, num_heads=NUM_HEADS, package=FakeFlashInfer()))

    assert (out - by_torch(step)).abs().max() < 4e-3


@pytest.mark.parametrize("rows", [[(5, 1)], [(0, 3)]])
def test_a_step_of_decodes_alone_and_one_of_prompts_alone_work(rows):
    step = step_of(rows, dtype=torch.float16)
    expected = by_torch(step)

    for backend in (
        TritonAttention(step.kv, num_heads=NUM_HEADS),
        FlashInferAttention(step.kv, num_heads=NUM_HEADS, package=FakeFlashInfer()),
    ):
        assert (step.run(backend) - expected).abs().max() < 4e-3


def test_a_backend_serves_step_after_step():
    step, later = step_of(), step_of([(9, 1), (4, 6)])
    backend = TritonAttention(step.kv, num_heads=NUM_HEADS)
    step.run(backend)
    moved = dataclasses.replace(later, kv=step.kv)

    out = moved.run(backend)

    assert (out - moved.run(PagedAttention(step.kv, num_heads=NUM_HEADS))).abs().max() < 1e-5


def test_compressed_tables_leave_out_what_a_context_does_not_reach():
    tables = torch.tensor([[7, 8, 9], [3, 0, 0], [5, 6, 0]], dtype=torch.int32)

    rows = compressed(tables, torch.tensor([9, 4, 5], dtype=torch.int32), 4)

    assert rows.starts.tolist() == [0, 3, 4, 6]
    assert rows.indices.tolist() == [7, 8, 9, 3, 5, 6]
    assert rows.last_lens.tolist() == [1, 4, 1]
    assert {one.dtype for one in rows} == {torch.int32}


def test_tables_of_a_step_cover_every_row_once():
    step = step_of()

    tables = step_tables(step.batch, block_size=16)

    # Sorted by blocks, the first two of one each, then the chunks.
    assert tables.decodes.context_lens.tolist() == [4, 1, 41, 131]
    assert tables.decodes.max_context == 144
    assert tables.chunks.context_lens.tolist() == [7, 22, 21, 33]
    assert tables.chunks.query_starts.tolist() == [0, 7, 12, 33, 35]
    assert (tables.chunks.start, tables.chunks.end) == (4, step.batch.num_tokens)
    assert (tables.chunks.max_chunk, tables.chunks.max_context) == (21, 33)


@pytest.mark.parametrize("kv_format", [None, "int8"])
def test_the_engine_gives_the_same_tokens_with_triton_as_with_torch(kv_format):
    workload = Workload([[5, 9, 200, 31, 7], [5, 9, 200, 31, 8, 2, 77], [1]], num_outputs=3)
    settings = {"block_size": 4, "kv_format": kv_format}

    answers = {
        name: run_engine(
            runner_of(random_model(), attention=name, **settings),
            workload,
            max_batch=4,
            token_budget=8,
        ).token_ids
        for name in ("torch", "triton")
    }

    assert answers["triton"] == answers["torch"]
