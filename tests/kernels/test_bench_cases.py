"""The kernel bench: its arithmetic with a clock of the test's own, its cases interpreted."""

import dataclasses
import json
import types
from functools import partial

import pytest
import torch

from engine.commands import bench_kernels
from kernels.bench import cuda_timer
from kernels.bench import suite as suite_module
from kernels.bench.attention_cases import decode_case
from kernels.bench.kernel_case import KernelCase, WrongResultError, measure_all, measure_case
from kernels.bench.paged_inputs import HeadSizes
from kernels.bench.suite import SuiteSizes, suite, sweep
from kernels.tiles import DecodeTiles

TINY = SuiteSizes(
    heads=HeadSizes(num_heads=4, num_kv_heads=2, head_dim=16, block_size=4),
    batch=2,
    contexts=(12, 24),
    long_context=32,
    window=8,
    chunk=8,
    num_tokens=6,
    num_moved=3,
    num_layers=2,
)
CPU = torch.device("cpu")


def case_of(**changes):
    """A case that moves 800 bytes, right, with nothing to compare with."""
    case = KernelCase("decode", lambda: "run", lambda: 0.0, 1e-3, num_bytes=800)
    return dataclasses.replace(case, **changes)


def timer_of(**seconds):
    """A timer that knows each call by what it returns."""
    return lambda call: seconds[call()]


def test_figures_are_shares_of_the_copy_and_ratios_of_times():
    case = case_of(
        in_order=lambda: "in_order", torch_run=lambda: "torch", num_flops=4000, has_aim=True
    )

    got = measure_case(
        case, timer_of(run=2.0, in_order=1.9, torch=5.0), copy_bytes_per_second=500.0
    )

    assert got.bytes_per_second == 400.0
    assert got.bandwidth_ratio == 0.8
    assert got.flops_per_second == 2000.0
    assert got.contiguous_ratio == 0.95
    assert got.torch_ratio == 2.5


def test_what_there_is_nothing_to_compare_with_is_unknown_not_zero():
    got = measure_case(case_of(), timer_of(run=2.0), copy_bytes_per_second=500.0)

    assert (got.flops_per_second, got.contiguous_ratio, got.torch_ratio) == (None, None, None)


@pytest.mark.parametrize("difference", [0.002, float("nan"), float("inf")])
def test_a_wrong_result_is_not_timed(difference):
    def timer(call):
        raise AssertionError("timed")

    with pytest.raises(WrongResultError, match="decode differs"):
        measure_case(case_of(difference=lambda: difference), timer, copy_bytes_per_second=1.0)


def test_the_report_names_the_worst_of_the_cases_that_have_an_aim():
    timer = timer_of(run=2.0, in_order=1.8)
    cases = [
        case_of(name="a", num_bytes=900, has_aim=True, in_order=lambda: "in_order"),
        case_of(name="b", num_bytes=800, has_aim=True),
        case_of(name="c", num_bytes=10),
    ]
    figures = measure_all(
        [lambda case=case: case for case in cases], timer, copy_bytes_per_second=500.0
    )

    report = bench_kernels.report_of(figures)

    assert report["decode_bandwidth_ratio"] == 0.8
    assert report["paged_over_contiguous_ratio"] == 0.9
    assert [one["name"] for one in report["kernels"]] == ["a", "b", "c"]
    assert "decode_bandwidth: 0.80, aim 0.85" in bench_kernels.as_table(report)


def test_without_a_gpu_the_bench_says_what_it_needs_and_exits_3(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert bench_kernels.main(["--json"]) == 3

    said = capsys.readouterr()
    assert "needs an NVIDIA GPU" in said.err
    assert said.out == ""


def test_interpreted_kernels_are_not_timed(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    assert bench_kernels.main([]) == 3
    assert "unset it" in capsys.readouterr().err


def test_too_little_memory_is_answered_with_a_smaller_batch(monkeypatch, capsys):
    monkeypatch.setattr(bench_kernels, "missing_gpu", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (4 << 30, 8 << 30))

    assert bench_kernels.main([]) == 3
    assert "a smaller --batch (now 64)" in capsys.readouterr().err


def test_a_wrong_kernel_ends_the_bench_with_1(monkeypatch, capsys):
    def wrong(*args, **settings):
        raise WrongResultError("decode", 0.5, 0.03)

    monkeypatch.setattr(bench_kernels, "missing_gpu", lambda: None)
    monkeypatch.setattr(bench_kernels, "missing_memory", lambda sizes: None)
    monkeypatch.setattr(bench_kernels, "first_gpu", lambda repeats: None)
    monkeypatch.setattr(bench_kernels, "measure", wrong)

    assert bench_kernels.main([]) == 1
    assert "decode differs from its reference by 0.5" in capsys.readouterr().err


class FakeEvent:
    """An event of a GPU whose clock moves by what calls say they take."""

    now = 0.0

    def record(self):
        self.at = FakeEvent.now

    def elapsed_time(self, other):
        return other.at - self.at


def test_the_timer_takes_the_median_after_warming_up_and_flushes_before_each(monkeypatch):
    properties = types.SimpleNamespace(L2_cache_size=60 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: FakeEvent())
    monkeypatch.setattr(cuda_timer, "LEAST_FLUSH_BYTES", 1)
    timer = cuda_timer.CudaTimer(repeats=3, device=CPU)
    flushed = []
    monkeypatch.setattr(timer, "_flush", types.SimpleNamespace(zero_=lambda: flushed.append(1)))
    milliseconds = iter([900, 900, 900, 5, 7, 600])

    def call():
        FakeEvent.now += next(milliseconds)

    assert timer(call) == pytest.approx(0.007)
    assert len(flushed) == 3


def test_a_whole_run_reports_the_gpu_every_kernel_and_the_sweep(monkeypatch):
    gpu = bench_kernels.Gpu(CPU, "a fake", 4, False, lambda call: 1e-3, 1e9)
    some = list(sweep(TINY, device=CPU))[:1]
    monkeypatch.setattr(suite_module, "sweep", lambda sizes, device: some)
    monkeypatch.setattr(suite_module, "suite", lambda sizes, **gpu: [some[0][1]])

    report = bench_kernels.measure(TINY, gpu, with_sweep=True)

    assert report["device"] == "a fake"
    assert report["copy_bytes_per_second"] == 1e9
    assert [one["name"] for one in report["sweep"]] == ["decode tokens=32 warps=2 stages=3"]
    assert len(report["kernels"]) == 1
    assert json.loads(json.dumps(report)) == report
    assert "a fake: copies 1 GB/s" in bench_kernels.as_table(report)


def test_every_case_is_right_and_what_it_is_compared_with_computes_the_same():
    builders = suite(TINY, device=CPU, num_cores=4, has_fp8=True)
    # Contexts as short as these are not split by themselves.
    whole = {"batch": 1, "context": 32, "stored": torch.float32, "device": CPU}
    builders.append(partial(decode_case, TINY.heads, num_splits=2, **whole))
    names = set()

    for build in builders:
        case = build()
        names.add(case.name)
        assert case.difference() <= case.tolerance, case.name
        assert case.num_bytes > 0
        if case.torch_run is not None and case.in_order is not None:
            in_order = case.in_order()
            theirs = case.torch_run()
            assert (theirs.reshape(-1) - reordered(in_order, theirs)).abs().max() < 1e-4, case.name

    assert len(names) == len(builders) == 16
    assert {"decode 1 x 32 float32 in 2 parts", "copy 3 blocks x 2 layers"} <= names


def reordered(ours, theirs):
    """Our [tokens, heads, dim] in the order of torch's [batch, heads, tokens, dim], flat."""
    batch, heads, tokens, dim = theirs.shape
    return ours.view(batch, tokens, heads, dim).transpose(1, 2).reshape(-1)


def test_a_long_context_is_measured_whole_and_in_as_many_parts_as_the_gpu_wants():
    long = dataclasses.replace(TINY, long_context=2048)

    splits = [
        build.keywords.get("num_splits")
        for build in suite(long, device=CPU, num_cores=9, has_fp8=False)
    ]

    assert [one for one in splits if one is not None] == [1, 4]


def test_the_sweep_covers_the_tiles_chosen_for_a_gpu():
    names = [name for name, _ in sweep(TINY, device=CPU)]

    chosen = DecodeTiles(64)
    wanted = f"decode tokens=64 warps={chosen.num_warps} stages={chosen.num_stages}"
    assert wanted in names
    assert "prefill rows=64 tokens=64 warps=4 stages=2" in names
    assert len(set(names)) == len(names)


def test_the_defaults_pass_any_l2_and_fit_a_gpu_of_24_gib():
    sizes = SuiteSizes()
    token_bytes = 2 * sizes.heads.num_kv_heads * sizes.heads.head_dim * 2

    assert sizes.batch * min(sizes.contexts) * token_bytes > 4 * (50 << 20)
    assert sizes.long_context * token_bytes > 4 * (50 << 20)
    assert sizes.needed_bytes < 24 << 30
