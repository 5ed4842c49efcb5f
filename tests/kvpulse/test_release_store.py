"""On aarch64 the C emitter commits with a store-release: its machine code says so, unrun."""

import runpy
import shutil
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "release_store.py"
CODE = """
0000000000000130 <write_record>:
 130:\tldr\tx5, [x0, #40]
 134:\tstp\tx29, x30, [sp, #-32]!
 13c:\tstp\tq0, q1, [x4]
{commit}
 170:\tret

0000000000000180 <other>:
 180:\tstr\tx1, [x0]
"""


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-gcc") is None,
    reason="no cross compiler: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
)
def test_the_commit_is_a_store_release_on_aarch64(script):
    assert script["fault"](script["disassemble"]()) == ""


@pytest.mark.parametrize(
    ("commit", "fault"),
    [
        (" 16c:\tstlr\tx1, [x6]", ""),
        (" 16c:\tstr\tx1, [x6]", "0 store-releases"),
        (" 168:\tstlr\tx1, [x6]\n 16c:\tstr\tx1, [x0, #392]", "stores after the commit word"),
    ],
)
def test_the_check_tells_a_plain_store_from_a_release(script, commit, fault):
    found = script["fault"](CODE.format(commit=commit))

    assert bool(found) == bool(fault)
    assert fault in found


def test_code_without_the_function_is_no_proof(script):
    assert "no function" in script["fault"]("0000 <other>:\n 0:\tret\n")
