"""What every test shares: the root on the path, and skips that CI turns into failures."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("TRITON_INTERPRET", "1")

# What a machine may lack without our being able to install it.
NEVER_PROMISED = {"gpu", "mount"}
REQUIRED = {name for name in os.environ.get("KVPULSE_REQUIRE", "").split(",") if name}

# Where a run decides about a landing, each test draws the same examples every time; everywhere else
# every run looks at new ones.
settings.register_profile(
    "landing",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
if REQUIRED:
    settings.load_profile("landing")

NEED_TORCH = (
    "kernels/*",
    "engine/test_attention_kinds.py",
    "engine/test_attention_backends.py",
    "engine/test_attention_choice.py",
    "engine/test_attention_on_gpu.py",
    "engine/test_gguf_file.py",
    "engine/test_kernel_block_memory.py",
    "engine/test_hf_folder*.py",
    "engine/test_kv_formats.py",
    "engine/test_kv_quality.py",
    "engine/test_llama_gguf.py",
    "engine/test_mla*.py",
    "engine/test_engine_same_tokens.py",
    "engine/test_model_bench.py",
    "engine/test_model_same_answers.py",
    "engine/test_sampling_draws.py",
    "engine/test_server_torch.py",
    "engine/test_tokenizer_text.py",
    "engine/test_torch_loading.py",
    "engine/test_torch_runner_steps.py",
)
LEAVE_OUT_TORCH = not REQUIRED and find_spec("torch") is None
collect_ignore_glob = list(NEED_TORCH) if LEAVE_OUT_TORCH else []


def pytest_terminal_summary(terminalreporter):
    """Name the tests that were not even collected, and how to get them."""
    if LEAVE_OUT_TORCH:
        terminalreporter.write_line(
            f"left out, because torch is not installed: {', '.join(NEED_TORCH)}; to run them, "
            "TORCH_INDEX=<address of PyTorch's CPU wheel index> make test"
        )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Turn the skip of a whole file into an error where the environment promised everything."""
    report = yield
    if report.skipped and "all" in REQUIRED:
        report.outcome = "failed"
        report.longrepr = f"skipped although KVPULSE_REQUIRE promises it: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip into a failure where the environment promised what the test needs."""
    report = yield
    marks = {mark.name for mark in item.iter_markers()}
    promised = REQUIRED & marks or ("all" in REQUIRED and not marks & NEVER_PROMISED)
    if report.skipped and promised and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although KVPULSE_REQUIRE promises it: {report.longrepr}"
    return report
