"""Markup and escapes that an engine stated are drawn as text on every page, or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.reads.reads import Reads, open_reads
from dashboard.pages import PAGES
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import empty_store
from tests.agent.hostile_texts import PLAIN, write_hostile_journal
from tests.dashboard.conftest import page_script


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reads]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    journal, store = write_hostile_journal(folder / "journal"), empty_store(folder)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0
    opened = open_reads(store)
    yield opened
    opened.close()


@pytest.mark.parametrize("path", [entry.path for entry in PAGES])
def test_no_markup_of_an_engine_is_markup_of_a_page(
    monkeypatch: pytest.MonkeyPatch, reads: Reads, path: str
) -> None:
    from streamlit.testing.v1 import AppTest

    import dashboard.connection

    monkeypatch.setattr(dashboard.connection, "cached_reads", lambda store, made: reads)
    page = AppTest.from_function(page_script, kwargs={"page_path": path}, default_timeout=20).run()

    drawn = [element.proto.body for element in page.get("html")]
    drawn += [element.value for element in page.markdown if element.allow_html]
    assert not page.exception
    assert drawn
    assert not any(mark in body for body in drawn for mark in ('<img src="x"', "<script>alert"))


def test_the_store_that_the_pages_show_holds_that_markup(reads: Reads) -> None:
    (engine,) = reads.engines()
    (request,) = reads.requests(engine.run_key, 0, 2**62)

    assert request.tenant == PLAIN
    assert "<script>" in str(engine.fingerprint["model"])
