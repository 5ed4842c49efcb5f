"""The boards as files: up to date, complete, honest, and of metrics that exist."""

import json
import re

import pytest

from agent.metrics.gpu import GPU_TABLE
from agent.metrics.incidents import CONDITIONS, INCIDENT_TABLE, VERDICTS
from agent.metrics.table import TABLE
from agent.metrics.targets import TARGET_TABLE
from agent.targets.target import LATENCIES
from dashboard import theme
from grafana import colours
from grafana.alert_table import OF_VERDICTS
from grafana.generate import BOARDS, BOARDS_FOLDER, encode, main, stale_boards, write_boards
from grafana.verdict_panels import VERDICTS as VERDICT_COLOURS
from kvpulse.events import WAIT_CLASSES, BlockState, RejectReason, WaitCause, WaitClass

KNOWN_SERIES = {
    metric.name + suffix
    for metric in (*TABLE, *INCIDENT_TABLE, *TARGET_TABLE, *GPU_TABLE)
    for suffix in (("_bucket", "_sum", "_count") if metric.edges else ("",))
}


@pytest.fixture(params=sorted(BOARDS))
def board(request):
    return json.loads((BOARDS_FOLDER / request.param).read_text("utf-8"))


@pytest.fixture
def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


@pytest.fixture
def expressions(board, panels):
    drawn = [target["expr"] for panel in panels for target in panel["targets"]]
    return drawn + [mark["target"]["expr"] for mark in board["annotations"]["list"]]


def test_the_committed_json_is_what_the_code_builds():
    assert stale_boards(BOARDS_FOLDER) == []


def test_check_fails_on_a_board_edited_by_hand(tmp_path, capsys):
    [path] = write_boards(tmp_path)
    assert main(["--check", "--out", str(tmp_path)]) == 0
    path.write_text(path.read_text("utf-8").replace("Oldest wait", "Longest wait"), "utf-8")

    assert main(["--check", "--out", str(tmp_path)]) == 1
    assert "python -m grafana.generate" in capsys.readouterr().err


def test_building_twice_gives_the_same_bytes():
    for build in BOARDS.values():
        assert encode(build()) == encode(build())


def test_every_metric_of_every_query_is_in_the_table(expressions):
    used = {name for expr in expressions for name in re.findall(r"kvpulse_\w+", expr)}

    assert used
    assert used <= KNOWN_SERIES


def test_no_query_fills_a_hole_with_zero(expressions):
    for expr in expressions:
        assert "vector(" not in expr
        assert " or " not in expr


def test_every_query_is_narrowed_to_the_chosen_engines_but_those_of_gpus(expressions):
    of_no_engine = {metric.name for metric in GPU_TABLE}
    for expr in expressions:
        used = re.findall(r"kvpulse_\w+", expr)
        of_engines = [name for name in used if name not in of_no_engine]
        assert expr.count('engine=~"$engine"') == len(of_engines)


def test_every_counter_is_read_through_a_rate(expressions):
    counters = {metric.name for metric in TABLE if metric.name.endswith("_total")}
    for expr in expressions:
        for name in counters & set(re.findall(r"kvpulse_\w+", expr)):
            assert re.search(rf"(rate|increase)\({name}\{{", expr)


def test_every_panel_says_what_a_bad_shape_means_in_one_sentence(panels):
    for panel in panels:
        description = panel["description"]
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert description.endswith(".")
        assert description.count(". ") == 0
        assert len(description.split()) >= 12


def test_every_chart_has_its_legend_on(panels):
    charts = [panel for panel in panels if panel["type"] == "timeseries"]

    assert charts
    assert all(panel["options"]["legend"]["showLegend"] for panel in charts)


def test_a_number_of_now_is_never_the_last_point_of_a_range(panels):
    for panel in panels:
        if panel["type"] == "stat":
            assert all(target["instant"] for target in panel["targets"])


def test_titles_and_places_on_the_board_are_not_taken_twice(panels):
    titles = [panel["title"] for panel in panels]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len(set(titles)) == len(titles)
    assert len(set(places)) == len(places)


def test_every_state_class_cause_and_reason_has_a_colour():
    assert set(colours.BLOCK_STATES) == {state.name.lower() for state in BlockState}
    assert set(colours.WAIT_CLASSES) == {wait_class.value for wait_class in WaitClass}
    assert set(colours.WAIT_CAUSES) == {cause.name.lower() for cause in WaitCause}
    assert set(colours.REJECT_REASONS) == {reason.name.lower() for reason in RejectReason}
    assert len(set(colours.WAIT_CAUSES.values())) == len(WAIT_CLASSES)


def test_the_board_can_be_narrowed_by_datasource_and_engine(board):
    names = [variable["name"] for variable in board["templating"]["list"]]

    assert names[:2] == ["datasource", "engine"]


def test_a_colour_means_the_same_on_the_board_and_on_the_pages():
    assert (colours.ACTIVE, colours.CACHED, colours.FREE, colours.LEAKED) == (
        theme.ACTIVE,
        theme.CACHED,
        theme.FREE,
        theme.LEAKED,
    )
    assert colours.WAIT_CLASSES == theme.WAIT_CLASS_COLOURS
    assert colours.WAIT_CAUSES == theme.WAIT_CAUSE_COLOURS
    assert colours.QUANTILES == theme.QUANTILE_COLOURS


def test_a_quantile_above_the_last_edge_is_shown_as_above_it(panels):
    edges = {f"{metric.name}_bucket": metric.edges[-1] for metric in TABLE if metric.edges}
    checked = 0
    for panel in panels:
        for target in panel["targets"]:
            if "histogram_quantile" not in target["expr"]:
                continue
            [series] = set(re.findall(r"kvpulse_\w+_bucket", target["expr"]))
            edge = f"{edges[series]:g}"
            [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
            assert mapping["options"][edge]["text"] == f"> {edge} s"
            checked += 1

    assert checked >= 9


def test_verdict_and_incidents_come_first_and_gpus_after_all_that_is_of_an_engine(board):
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]

    assert rows[:3] == ["Verdict and incidents", "Now", "Targets"]
    assert rows[-2:] == ["GPUs of the machines", "Telemetry health"]


def test_every_verdict_is_painted_as_loudly_as_its_alert():
    of_severity = {
        severity: {VERDICT_COLOURS[a.runbook] for a in OF_VERDICTS if a.severity is severity}
        for severity in {alert.severity for alert in OF_VERDICTS}
    }

    assert set(VERDICT_COLOURS) == set(VERDICTS)
    assert all(len(shades) == 1 for shades in of_severity.values())
    assert len(set.union(*of_severity.values(), {VERDICT_COLOURS["healthy"]})) == 4


def test_a_timeline_tells_a_measured_no_from_a_hole(panels):
    timelines = [panel for panel in panels if panel["type"] == "state-timeline"]

    for panel in timelines:
        shown = {
            override["matcher"]["options"]: override["properties"][0]["value"][0]["options"]
            for override in panel["fieldConfig"]["overrides"]
        }
        assert {f"/: {verdict}$/" for verdict in CONDITIONS} <= set(shown)
        for states in shown.values():
            assert set(states) == {"0", "1"}
            assert states["0"]["text"].startswith("not ")
            assert states["0"]["color"] == colours.IDLE
    assert len(timelines) == 2


def test_what_may_be_missing_for_good_says_so_in_its_own_words(panels):
    empty = {panel["title"]: panel["fieldConfig"]["defaults"].get("noValue") for panel in panels}

    assert "status says why" in empty["GPU power"]
    assert "No targets" in empty["Error budget, burn rate"]
    assert empty["Open incidents"] == "not reported"
    assert "No allocation" in empty["Time of an allocation"]


def test_every_target_has_one_colour_over_all_its_lines():
    assert set(colours.TARGETS) == set(LATENCIES)
    assert len(set(colours.TARGETS.values())) == len(LATENCIES)
