"""The same looks at a metrics page into Postgres and into SQLite give the same rows."""

from pathlib import Path

import pytest

from agent.store.schema import metadata
from tests.agent import vllm_pages as vllm
from tests.agent.page_server import serving
from tests.agent.scraping import START, Scraping
from tests.agent.stored_rows import all_rows
from tests.agent.vllm_pages import page
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

pytestmark = pytest.mark.postgres


def test_every_table_is_equal(tmp_path: Path, postgres_url: str) -> None:  # noqa: F811
    queue = {vllm.RUNNING: 16, vllm.WAITING: 3, vllm.CAPACITY: 3, vllm.USAGE: 102 / 255}
    stores = (str(tmp_path / "kvpulse.db"), postgres_url)

    with serving() as served:
        for store in stores:
            # Two agents, one after the other, with a gap between them.
            for number in range(6):
                if number in (0, 3):
                    scraping = Scraping(served, store, [START + 100.0 * number])
                added = {vllm.STEPS: 60.0 * number, vllm.TTFT_BUCKETS: 2.0 * number}
                served.page = lambda added=added: page(queue, added=added)
                scraping.look()
                if number in (2, 5):
                    scraping.watch.close()

    in_sqlite, in_postgres = (all_rows(store) for store in stores)
    for name in metadata.tables:
        assert in_postgres[name] == in_sqlite[name], name
    filled = {name for name, rows in in_sqlite.items() if rows}
    assert filled >= {"rollups", "latencies", "labelled", "gaps", "configs"}
