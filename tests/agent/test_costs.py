"""Block-seconds priced by tenant and request; what nobody measured or priced is not 0."""

import json
import math
from pathlib import Path

import pytest

from agent.http.live_status import status_document
from agent.price import Price
from kvpulse.command import main as kvpulse
from kvpulse.events import FinishReason, FreeOutcome
from kvpulse.recorder import Recorder
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, live_state, view_of
from tests.agent.factories_store import empty_store
from tests.agent.factories_stream import Clock

BLOCKS = 10


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Tenant a holds 2 blocks for 30 s, b 4 for 10 s in two samples; the pool has 10 for 40 s."""
    clock = Clock(now_ns=100 * SECOND)
    recorder = Recorder.open(
        tmp_path / "journal",
        "priced",
        total_blocks=BLOCKS,
        block_size=4,
        clock=clock,
        wall_clock=clock.wall,
    )
    a, b = recorder.tenant("a"), recorder.tenant("b")
    recorder.arrive(1, 8, 4, a)
    recorder.admit(1, a)
    recorder.allocate(1, [0, 1], a)
    recorder.arrive(2, 8, 4, b)
    recorder.admit(2, b)
    recorder.allocate(2, [2, 3, 4], b)
    recorder.fork(3, 2, b)
    recorder.allocate(3, [5], b)
    clock.now_ns += 10 * SECOND
    for owner, blocks in ((2, [2, 3, 4]), (3, [5])):
        recorder.free(owner, blocks, 0, FreeOutcome.TO_FREE, b)
        recorder.finish(owner, FinishReason.STOP, 8, 1, 8, 0, b)
    clock.now_ns += 20 * SECOND
    recorder.free(1, [0, 1], 0, FreeOutcome.TO_FREE, a)
    recorder.finish(1, FinishReason.STOP, 8, 1, 8, 0, a)
    clock.now_ns += 10 * SECOND
    recorder.heartbeat(1, 0, 0)
    recorder.close()
    where = empty_store(tmp_path)
    assert (
        kvpulse(["agent", "--once", "--journal", str(tmp_path / "journal"), "--store", where]) == 0
    )
    return where


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert kvpulse(["costs", *arguments]) == 0
    return capsys.readouterr().out


def test_tenants_pay_for_what_they_held_and_the_rest_is_idle(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    price = ("--price-per-gpu-hour", "1.80", "--gpus-per-engine", "2", "--currency", "eur")

    said = json.loads(told(capsys, "--store", store, "--json", *price))

    each = 1.80 * 2 / 3600 / BLOCKS
    rows = {row["name"]: row for row in said["rows"]}
    assert math.isclose(said["block_second"], each)
    assert {name: row["block_seconds"] for name, row in rows.items()} == {"a": 60.0, "b": 40.0}
    assert math.isclose(rows["a"]["cost"], 60 * each)
    assert said["active_block_seconds"] == 100.0
    assert math.isclose(said["pool_block_seconds"], 40 * BLOCKS, rel_tol=0.06)  # whole seconds
    assert math.isclose(said["idle_cost"], (said["pool_block_seconds"] - 100) * each)
    assert said["currency"] == "EUR"


def test_a_request_pays_for_all_its_samples(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(told(capsys, "--store", store, "--by", "request", "--json"))

    assert [(row["name"], row["block_seconds"]) for row in said["rows"]] == [("1", 60), ("2", 40)]


def test_without_a_price_there_is_no_cost(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, "--store", store, "--limit", "1")
    said = json.loads(told(capsys, "--store", store, "--json"))

    assert "no price: set price_per_gpu_hour" in page
    assert page.endswith("and 1 more: --limit, --json\n")
    assert said["rows"][0]["cost"] is said["idle_cost"] is said["block_second"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "colour"], "--by: found 'colour'; accepted is one of tenant, request"),
        (["--price-per-gpu-hour", "-1"], "--price-per-gpu-hour: found '-1'; accepted is a number"),
        (["--price-per-gpu-hour", "nan"], "--price-per-gpu-hour: found 'nan'"),
        (["--gpus-per-engine", "0"], "--gpus-per-engine: found '0'; accepted is a whole number"),
        (["--currency", "<b>"], "--currency: found '<b>'; accepted is a currency's code"),
    ],
)
def test_a_bad_option_is_named_with_what_would_be_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert kvpulse(["costs", "--store", empty_store(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_status_prices_each_tenant() -> None:
    live = live_state(labelled={"tenant_block_ns": {"chat": 360 * SECOND}})
    snapshot = view_of(live_engine(live)).snapshot()

    priced = status_document(snapshot, NOW_NS, Price(6.4))["engines"][0]["costs"]  # type: ignore[index]
    unpriced = status_document(snapshot, NOW_NS)["engines"][0]["costs"]  # type: ignore[index]

    assert math.isclose(priced["tenants"]["chat"], 360 * 6.4 / 3600 / 64)
    assert unpriced == {"known": False, "reason": "no price: set price_per_gpu_hour"}


def test_what_was_not_measured_has_no_price() -> None:
    assert Price(2.0).of(None, 10) is None
    assert Price(2.0).of(1.0, 0) is None
