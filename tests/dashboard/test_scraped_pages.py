"""Pages of an engine that is known by its metrics page: what is told, and what is not."""

from pathlib import Path

import pytest

from agent.reads.reads import open_reads
from tests.agent.page_server import serving
from tests.agent.scraping import Scraping
from tests.agent.vllm_pages import CAPACITY, RUNNING, STEPS, USAGE, WAITING, page
from tests.dashboard.test_pages import texts


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    where = str(tmp_path_factory.mktemp("scraped") / "kvpulse.db")
    queue = {RUNNING: 16, WAITING: 3, CAPACITY: 3, USAGE: 0.4}
    with serving() as served:
        scraping = Scraping(served, where, [1_795_999_980.0])
        for number in range(4):
            served.page = lambda number=number: page(queue, added={STEPS: 60.0 * number})
            scraping.look()
        scraping.watch.close()
    assert Path(where).exists()
    return where


@pytest.fixture
def reads(store):
    found = open_reads(store)
    yield found
    found.close()


NOT_TOLD = {
    "block-map": "which block is whose",
    "requests": "single requests",
    "sharing": "who shares which blocks",
    "tenants": "tenants",
}


@pytest.mark.parametrize(("path", "what"), NOT_TOLD.items())
def test_a_page_of_what_no_metrics_page_tells_says_so_and_names_the_page(app, reads, path, what):
    page = app(reads, path)

    assert not page.exception
    (said,) = [each.value for each in page.info]
    assert f"does not tell {what}" in said.replace("\\", "")
    assert "/metrics" in said


def test_the_overview_draws_what_is_told_and_says_where_it_is_from(app, reads):
    page = app(reads, "overview")

    assert not page.exception
    assert "Known by its metrics page http://127.0.0.1" in texts(page)
    assert "102 of 255 blocks active" in texts(page)


def test_telemetry_claims_no_leaks_and_no_laws(app, reads):
    page = app(reads, "telemetry")

    assert not page.exception
    assert "every law of the ledger held" not in texts(page)
    assert "outlived its owner" not in texts(page)
    assert "does not tell whose blocks are" in texts(page)
