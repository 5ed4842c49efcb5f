"""`scripts/gpu_check.sh`: what it says without a GPU, and the summary of what it ran."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load_gpu_check():
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "scripts" / "gpu_check.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module
    spec.loader.exec_module(module)
    return module


gpu_check = load_gpu_check()

REPORT = {
    "decode_bandwidth_ratio": 0.91,
    "decode_bandwidth_aim": 0.85,
    "paged_over_contiguous_ratio": 0.9,
    "paged_over_contiguous_aim": 0.95,
    "kernels": [{"name": "decode 64 x 8192", "seconds": 0.0005, "bandwidth_ratio": 0.91}],
}


def part(name, code=0):
    return gpu_check.Part(name, code, 12.5, "7 passed")


def test_without_a_gpu_nothing_is_run_and_the_exit_is_3(tmp_path):
    done = subprocess.run(
        [ROOT / "scripts" / "gpu_check.sh", tmp_path / "out"],
        # CUDA is hidden, so that the answer is the same where there is a GPU.
        env={"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 3, done.stderr
    assert "no GPU" in done.stdout
    assert list((tmp_path / "out").iterdir()) == []


def test_the_summary_shows_aims_met_and_missed():
    summary = gpu_check.summary_of("NVIDIA H200", [part("tests"), part("bench")], REPORT)

    text = gpu_check.as_text(summary)

    assert summary["is_good"]
    assert "gpu_check on NVIDIA H200: good" in text
    assert "0.91 (aim 0.85: met)" in text
    assert "0.9 (aim 0.95: missed)" in text
    assert "500.0 µs" in text


@pytest.mark.parametrize(
    ("codes", "report"), [((1, 0), REPORT), ((0, 124), REPORT), ((0, 0), None)]
)
def test_a_failed_part_or_missing_figures_are_not_good(codes, report):
    parts = [part("tests", codes[0]), part("bench", codes[1])]

    summary = gpu_check.summary_of("NVIDIA H200", parts, report)

    assert not summary["is_good"]
    assert "NOT GOOD" in gpu_check.as_text(summary)
    assert json.loads(json.dumps(summary)) == summary


def test_a_part_that_runs_out_of_time_is_ended_and_said_so(tmp_path):
    code = "import time; print('started', flush=True); time.sleep(60)"

    ended = gpu_check.run_part("tests", ["-c", code], tmp_path, limit=2)

    assert ended.code == 124
    assert ended.last_line == "started"
    assert ended.seconds < 30


def test_figures_that_were_cut_off_are_none(tmp_path):
    (tmp_path / "bench.out").write_text('{"kernels": [')

    assert gpu_check.read_report(tmp_path / "bench.out") is None
    assert gpu_check.read_report(tmp_path / "absent.out") is None
