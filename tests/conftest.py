"""What every test shares: the root on the path, and skips that CI turns into failures."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("TRITON_INTERPRET", "1")

REQUIRED = {name for name in os.environ.get("KVPULSE_REQUIRE", "").split(",") if name}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip into a failure where the environment promised what the test needs."""
    report = yield
    marks = {mark.name for mark in item.iter_markers()}
    promised = REQUIRED & marks or ("all" in REQUIRED and "gpu" not in marks)
    if report.skipped and promised and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although KVPULSE_REQUIRE promises it: {report.longrepr}"
    return report
