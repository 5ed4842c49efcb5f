#!/bin/sh
# Run the GPU tests and the kernel bench on this machine and print one summary.
#
#   scripts/gpu_check.sh [FOLDER]     JSON and logs go to FOLDER (default: out/gpu_check)
#
# Works from a checkout, with its .venv or else with PYTHON or python3. Takes at most 8 minutes:
# 300 s for the tests, 160 s for the bench. Exit 0: all good; 1: a test failed, a kernel is wrong
# or a part ran out of time; 3: no GPU here, nothing was run.
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-out/gpu_check}
mkdir -p "$folder" || exit 2
folder=$(cd "$folder" && pwd)
cd "$root" || exit 2

if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
elif [ -x .venv/bin/python ]; then
    python=.venv/bin/python
else
    python=python3
fi
# The kernels themselves, not Triton's interpreter, which the tests take unless told otherwise.
export TRITON_INTERPRET=0
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

exec "$python" scripts/gpu_check.py "$folder"
