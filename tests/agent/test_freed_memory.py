"""What is freed stays in the process, so that following a stream does not fault it in again."""

import subprocess
import sys

import pytest

PROBE = """
import resource, sys
import numpy as np
from agent.ledger.freed_memory import keep_freed_memory

if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(77)

def work():
    for _ in range(20):
        arrays = [np.ones(200_000) for _ in range(12)]
        del arrays

work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(mode):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, mode], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("the C library cannot be told to keep memory")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_arrays_made_again_and_again_are_not_faulted_in_again():
    assert page_faults("keep") < page_faults("give back") / 4
