"""Every kernel compiles for GPUs that this machine need not have.

The interpreter runs what the compiler refuses (an annotation that it cannot resolve is enough), so
the tests of the kernels' numbers say nothing about this.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a program may have on the smallest GPU that is aimed at (capability 8.0: 163 KiB).
MOST_SHARED_BYTES = 163 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_and_keep_loads_on_their_way(capability, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_kernels", str(capability)],
        cwd=ROOT,
        env={"TRITON_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    kernels = json.loads(done.stdout)
    assert len(kernels) == (13 if capability >= 89 else 10)
    for name, facts in kernels.items():
        assert facts["binary_bytes"] > 1000, name
        assert facts["shared_bytes"] < MOST_SHARED_BYTES, name
        if name.startswith(("decode", "split", "prefill")):
            # Keys and values of the next round are read while this one is multiplied.
            assert facts["async_copies"] > 0, name
