"""Headless Chromium for tests that look at what a person sees; skips with a reason where absent."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Sandboxing needs rights that a container's root has not; the rest keeps the browser from asking
# the network for updates and hosts of its own, which a test of "no outside request" would see.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium and yield Playwright's browser, or skip the test that asked for it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: install the package `chromium`")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install playwright"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
