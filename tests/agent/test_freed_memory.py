"""What is freed stays in the process, and goes back when that is asked for."""

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


THREADS = """
import sys, threading
import numpy as np
from agent.ledger.freed_memory import keep_freed_memory

if not keep_freed_memory():
    sys.exit(77)

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

def use(done, end):
    arrays = [np.ones(8_000) for _ in range(320)]  # 20 MB
    del arrays
    done.set()
    end.wait()

end, before = threading.Event(), resident_mb()
for _ in range(6):
    done = threading.Event()
    threading.Thread(target=use, args=(done, end)).start()
    done.wait()
print(resident_mb() - before)
end.set()
"""


def test_what_one_thread_frees_the_next_one_takes():
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("the C library cannot be told to keep memory")

    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60  # 20 MB, not 20 of each thread


HOLES = """
import sys
from agent.ledger.freed_memory import give_back_freed_memory, keep_freed_memory

if not keep_freed_memory():
    sys.exit(77)

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

kept = [[bytes(20_000), bytes(600)] for _ in range(2_000)]  # 40 MB, and something between
for pair in kept:
    pair[0] = None
before = resident_mb()
gave = give_back_freed_memory()
print(gave, before - resident_mb())
"""


def test_what_lies_freed_between_what_is_in_use_goes_back():
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("the C library cannot be told to keep memory")

    assert done.returncode == 0, done.stderr
    gave, freed_mb = done.stdout.split()
    assert gave == "True"
    assert float(freed_mb) > 20
