"""Charts: gaps are not bridged, marks are on every time chart, and no million points are sent."""

import json

import numpy as np
import pytest

from agent.gpus import GpuFigure
from agent.reads.gpus import GpuHistory, GpuSeries
from agent.reads.models import GapRow, Mark, MarkKind
from dashboard.charts.event_rates import event_rate_chart
from dashboard.charts.gpus import gpu_chart
from dashboard.charts.latencies import latency_chart
from dashboard.charts.pool import pool_chart
from dashboard.charts.rates import rejections_chart, waits_chart
from dashboard.charts.sharing import tenant_colours, tenants_chart
from dashboard.frames.gpus import gpu_curves
from dashboard.frames.marks import Marks, marks_of
from dashboard.frames.series import Curves, Window, gauges
from tests.dashboard.fake_reads import FakeReads

SECOND = 1_000_000_000
WINDOW = Window(0, 900 * SECOND)
NO_MARKS = Marks([], [])
POOL = ("active_blocks", "cached_blocks", "free_blocks", "total_blocks")
CHARTS = {
    "pool": (pool_chart, POOL),
    "waits": (waits_chart, ("pool", "scheduler")),
    "rejections": (rejections_chart, ("queue_full",)),
    "latency": (latency_chart, ("p50", "p95", "p99")),
    "events": (event_rate_chart, ("events_stored", "events_lost")),
}


def curves(names, *, hole=False):
    values = np.linspace(1, 9, 90)
    if hole:
        values[40:50] = np.nan
    times = (np.arange(90) * 10_000).astype("datetime64[ms]")
    return Curves(times, {name: values.copy() for name in names}, 10)


@pytest.mark.parametrize("name", CHARTS)
def test_every_time_chart_draws_marks_and_gaps(name):
    draw, names = CHARTS[name]
    marks = marks_of(
        [Mark(300 * SECOND, MarkKind.RESTART, "run <b>2</b> started")],
        [GapRow(5, 9, 400 * SECOND, 500 * SECOND, "deleted", {"step": 4})],
        WINDOW,
    )

    figure = draw(curves(names), window=WINDOW, marks=marks, revision="1")

    kinds = [shape.type for shape in figure.layout.shapes]
    assert kinds == ["rect", "line"]
    assert figure.layout.annotations[0].text == "run start"
    assert figure.layout.annotations[0].hovertext == "run &lt;b&gt;2&lt;/b&gt; started"


@pytest.mark.parametrize("name", CHARTS)
def test_every_time_chart_keeps_a_reader_s_zoom_over_a_refresh(name):
    draw, names = CHARTS[name]

    figure = draw(curves(names), window=WINDOW, marks=NO_MARKS, revision="1/15 min")

    assert figure.layout.uirevision == "1/15 min"


def test_the_pool_s_filled_layers_do_not_cross_a_gap():
    figure = pool_chart(curves(POOL, hole=True), window=WINDOW, marks=NO_MARKS, revision="1")

    filled = [trace for trace in figure.data if trace.fill == "tozeroy"]
    assert [len(trace.x) for trace in filled] == [40, 40, 40, 40, 40, 40]
    assert sum(bool(trace.showlegend) for trace in filled) == 3


def test_the_pool_s_top_layer_is_the_sum_of_its_three_states():
    figure = pool_chart(curves(POOL), window=WINDOW, marks=NO_MARKS, revision="1")

    tops = {trace.name: trace.y[-1] for trace in figure.data if trace.fill}
    assert tops == {"free": 27.0, "cached": 18.0, "active": 9.0}


def test_a_lone_sample_between_two_holes_gets_a_dot():
    drawn = curves(("p50", "p95", "p99"))
    drawn.values["p95"][:] = np.nan
    drawn.values["p95"][7] = 2.0

    figure = latency_chart(drawn, window=WINDOW, marks=NO_MARKS, revision="1")

    assert np.flatnonzero(np.asarray(figure.data[1].marker.size)).tolist() == [7]


def test_latencies_under_a_second_are_drawn_in_milliseconds():
    drawn = curves(("p50", "p95", "p99"))
    fast = Curves(drawn.times, {name: v / 1000 for name, v in drawn.values.items()}, 10)

    figure = latency_chart(fast, window=WINDOW, marks=NO_MARKS, revision="1")

    assert figure.layout.yaxis.title.text == "ms"
    assert figure.data[0].y[-1] == pytest.approx(9.0)


def test_a_mark_outside_the_window_is_not_drawn():
    marks = [Mark(at * SECOND, MarkKind.CONFIG, "") for at in (-5, 100, 901)]

    assert [moment.t_ns for moment in marks_of(marks, [], WINDOW).moments] == [100 * SECOND]


def test_marks_of_a_kind_that_would_overlap_are_one_with_their_number():
    leaks = [Mark(at * SECOND, MarkKind.LEAK, f"block {at}") for at in (100, 105, 110, 600)]
    other = [Mark(106 * SECOND, MarkKind.CONFIG, "max_batch")]

    moments = marks_of([*leaks, *other], [], WINDOW).moments

    assert [moment.label for moment in moments] == ["leak \u00d73", "config", "leak"]
    assert moments[0].text == "block 100\nblock 105\nblock 110"


def test_thirty_days_of_a_pool_are_at_most_two_thousand_points_and_a_megabyte():
    month = FakeReads().series(1, POOL, 0, 30 * 86_400 * SECOND)

    figure = pool_chart(gauges(month), window=WINDOW, marks=NO_MARKS, revision="1")

    assert max(len(trace.x) for trace in figure.data) <= 2000
    assert len(json.dumps(figure.to_dict(), default=lambda a: a.astype(str).tolist())) < 1_000_000


@pytest.mark.parametrize("name", CHARTS)
def test_no_time_chart_asks_for_a_transition(name):
    draw, names = CHARTS[name]

    figure = draw(curves(names), window=WINDOW, marks=NO_MARKS, revision="1")

    # With one, even of no length, the library draws the new data on an axis of the year 2000 first.
    assert figure.layout.transition.duration is None


def test_a_tenant_has_one_colour_whatever_its_place_in_a_chart():
    held, tokens = curves(["reports", "chat", "others"]), curves(["chat", "search", "reports"])
    colours = tenant_colours(held, tokens)
    options = {"window": WINDOW, "marks": NO_MARKS, "revision": "r", "colours": colours}
    figures = [tenants_chart(each, unit="blocks", **options) for each in (held, tokens)]
    drawn = [{bar.name: bar.marker.color for bar in figure.data} for figure in figures]
    assert drawn[0]["reports"] == drawn[1]["reports"]
    assert drawn[0]["chat"] == drawn[1]["chat"]
    assert len({colours[name] for name in ("reports", "chat", "search", "others")}) == 4


def gpu(host, *, utilization):
    minutes = np.array([60, 120]) * SECOND
    values = {
        GpuFigure.MEMORY_USED_BYTES.value: np.array([3.0, 3.0]),
        GpuFigure.MEMORY_TOTAL_BYTES.value: np.array([4.0, 4.0]),
        GpuFigure.UTILIZATION_RATIO.value: np.array(utilization),
        GpuFigure.POWER_WATTS.value: np.array([400.0, 400.0]),
    }
    return GpuSeries(host, "0", None, minutes, values, {})


def gpu_lines(*series):
    curves = gpu_curves(GpuHistory(list(series), {}))
    return gpu_chart(curves, window=WINDOW, marks=NO_MARKS, revision="1").data


def test_each_gpu_is_in_the_legend_once_even_without_its_utilisation():
    lines = gpu_lines(
        gpu("node-1", utilization=[0.5, 0.7]), gpu("node-2", utilization=[np.nan, np.nan])
    )

    assert [(line.name, line.line.dash, line.showlegend) for line in lines] == [
        ("node-1 GPU 0", "solid", True),
        ("node-1 GPU 0", "dot", False),
        ("node-2 GPU 0", "dot", True),
    ]
    assert list(lines[2].y) == [0.75, 0.75]


def test_a_machine_is_named_only_beside_another():
    assert {line.name for line in gpu_lines(gpu("node-1", utilization=[0.5, 0.7]))} == {"GPU 0"}
