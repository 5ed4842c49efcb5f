"""The GPUs history: a row per GPU and minute; missing has its reason; bounded by a month."""

import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from agent.gpu_minutes import GpuMinutes
from agent.gpu_watch import GpuWatch
from agent.gpus import Gpu, GpuFigure, GpuReading
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.reads.reads import open_reads
from agent.sources.nvml import NvmlSource
from agent.store.connection import open_for_writing, parse_address
from agent.store.gpu_history import KEPT_NS, GpuHistory
from agent.store.store import Store
from tests.agent.factories_store import empty_store
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

MINUTE = 60_000_000_000
AT = 1_700_000_040_000_000_000 // MINUTE * MINUTE
GIB = 2**30
USED, TOTAL, BUSY, WATTS = GpuFigure


def look(seconds: float, *gpus: Gpu, problem: str | None = None) -> GpuReading:
    return GpuReading(AT + int(seconds * 1e9), gpus, problem)


def gpu(busy: float | None = 0.5, *, used: float = 4.0, watts: float = 300.0, name: str = "0"):
    figures = {USED: used * GIB, TOTAL: 80.0 * GIB, WATTS: watts}
    if busy is None:
        return Gpu(name, "H200", figures, {BUSY: "Not Supported"})
    return Gpu(name, "H200", {**figures, BUSY: busy})


@pytest.fixture
def where(tmp_path: Path) -> str:
    return empty_store(tmp_path)


def history_of(where: str) -> GpuHistory:
    return GpuHistory(parse_address(where), OncePerHour(lambda: 0.0), host="gpu-host")


def test_a_minute_has_memory_at_its_most_and_means_of_the_rest() -> None:
    minutes = GpuMinutes()
    assert minutes.add(look(1, gpu(0.2, used=6, watts=100))) == []
    assert minutes.add(look(59, gpu(0.4, used=2, watts=300))) == []

    (minute,) = minutes.add(look(61, gpu()))

    assert (minute.gpu, minute.name, minute.at_ns, minute.num_looks) == ("0", "H200", AT, 2)
    assert minute.figures == pytest.approx(
        {USED: 6 * GIB, TOTAL: 80 * GIB, BUSY: 0.3, WATTS: 200}, rel=1e-12
    )
    assert minute.missing == {}


def test_a_figure_that_one_look_had_is_not_missing() -> None:
    minutes = GpuMinutes()
    minutes.add(look(1, gpu(None)))
    minutes.add(look(2, gpu(0.4)))

    (minute,) = minutes.take()

    assert minute.figures[BUSY] == 0.4
    assert minute.missing == {}


def test_a_driver_that_cannot_be_asked_is_told_once_and_again_when_the_reason_changes() -> None:
    minutes = GpuMinutes()
    why = [None, "no library", "no library", None, "no library", "lost"]

    told = [
        [minute.missing["nvml"] for minute in minutes.add(look(61.0 * n, problem=problem))]
        for n, problem in enumerate(why)
    ]

    assert told == [[], ["no library"], [], [], ["no library"], ["lost"]]


def test_what_was_seen_is_read_back_with_holes_as_holes(where: str) -> None:
    history = history_of(where)
    for seconds, one in ((1, gpu(0.5)), (61, gpu(None)), (241, gpu(0.7))):
        history.note(look(seconds, one, gpu(0.1, name="1")))
    history.close()

    with_reads = open_reads(where)
    found = with_reads.gpus(AT, AT + 10 * MINUTE)
    later = with_reads.gpus(AT + 4 * MINUTE, AT + 10 * MINUTE)
    with_reads.close()

    first, second = found.series
    assert (first.host, first.gpu, first.name) == ("gpu-host", "0", "H200")
    assert ((first.t_ns - AT) // MINUTE).tolist() == [0, 1, 4]
    assert np.array_equal(first.values["utilization_ratio"], [0.5, np.nan, 0.7], equal_nan=True)
    assert first.values["memory_used_bytes"].tolist() == [4 * GIB] * 3
    assert first.missing == {}
    assert second.values["power_watts"].tolist() == [300.0] * 3
    assert [len(each.t_ns) for each in later.series] == [1, 1]
    assert found.problems == {}


def test_a_missing_figure_is_null_with_its_reason(where: str) -> None:
    history = history_of(where)
    history.note(look(1, gpu(None), Gpu("1", missing=dict.fromkeys(GpuFigure, "GPU is lost"))))
    history.close()

    query = text("SELECT gpu, utilization_ratio, power_watts, missing FROM gpu_samples")
    engine = open_for_writing(parse_address(where))
    with engine.connect() as connection:
        stored = [tuple(row) for row in connection.execute(query)]
    engine.dispose()

    assert [row[:3] for row in stored] == [("0", None, 300.0), ("1", None, None)]
    assert json.loads(str(stored[0][3])) == {"utilization_ratio": "Not Supported"}
    assert set(json.loads(str(stored[1][3])).values()) == {"GPU is lost"}


def test_a_driver_that_is_away_says_why_until_it_is_back(where: str) -> None:
    history = history_of(where)
    history.note(look(1, problem="NVML Shared Library Not Found"))
    reads = open_reads(where)
    away = reads.gpus(AT, AT + MINUTE)
    history.note(look(61, gpu()))
    history.close()

    assert away.series == []
    assert away.problems == {"gpu-host": "NVML Shared Library Not Found"}
    assert reads.gpus(AT, AT + 9 * MINUTE).problems == {}
    reads.close()


def test_a_month_is_kept(where: str) -> None:
    history = history_of(where)
    history.note(look(0, gpu()))
    history.note(look(KEPT_NS / 1e9 + 60, gpu()))
    history.note(look(KEPT_NS / 1e9 + 180, gpu()))
    reads = open_reads(where)
    (kept,) = reads.gpus(0, 1 << 62).series
    history.close()

    assert ((kept.t_ns - AT) // MINUTE).tolist() == [KEPT_NS // MINUTE + 1]
    reads.close()


def test_a_store_that_is_away_keeps_the_minutes_waiting_and_says_so_once(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(where.removeprefix("sqlite:///"))
    aside = path.with_name("aside.db")
    history = history_of(where)
    path.rename(aside)
    path.mkdir()
    with caplog.at_level(logging.WARNING):
        for seconds in (1, 61, 121):
            history.note(look(seconds, gpu()))
    path.rmdir()
    aside.rename(path)
    history.note(look(181, gpu()))

    reads = open_reads(where)
    (found,) = reads.gpus(AT, AT + 9 * MINUTE).series
    reads.close()
    assert ((found.t_ns - AT) // MINUTE).tolist() == [0, 1, 2]
    assert caplog.text.count("the GPUs' history waits") == 1


def test_a_look_at_the_fake_driver_ends_in_the_store(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "fake_nvml"))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    history = history_of(where)
    times = iter((AT, AT + MINUTE))
    watch = GpuWatch(
        NvmlSource(lambda: next(times)), LiveView(AT), OncePerHour(lambda: 0.0), history
    )
    watch.look()
    watch.look()
    sys.modules.pop("pynvml", None)

    reads = open_reads(where)
    found = reads.gpus(AT, AT + MINUTE)
    reads.close()
    assert [each.gpu for each in found.series] == ["0", "1"]
    assert all(each.values["memory_total_bytes"][0] > 0 for each in found.series)


@pytest.mark.postgres
def test_postgres_keeps_the_same_history(postgres_url: str) -> None:  # noqa: F811
    with Store.open(postgres_url):
        pass
    history = history_of(postgres_url)
    history.note(look(1, gpu(None)))
    history.note(look(61, gpu(0.5), problem=None))
    history.close()

    reads = open_reads(postgres_url)
    (found,) = reads.gpus(AT, AT + 9 * MINUTE).series
    reads.close()
    assert np.array_equal(found.values["utilization_ratio"], [np.nan, 0.5], equal_nan=True)
    assert found.values["memory_used_bytes"].tolist() == [4 * GIB] * 2
