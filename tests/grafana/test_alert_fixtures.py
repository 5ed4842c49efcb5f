"""The alerts on series of real runs: each fires for its fault, ends after it, and is quiet else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.metrics.incidents import CONDITIONS
from grafana.alert_table import OF_VERDICTS
from scripts.export_alert_fixtures import FIXTURES, FOLDER, compact

ROOT = Path(__file__).parents[2]
# No fault of the drill and no traffic makes a simulated engine do these; their rules differ from
# the others in the name of the verdict alone, which `test_alerts.py` holds.
NOT_PROVOKED = {
    *("KvpulseLivelock", "KvpulseHeadOfLine", "KvpulseTenantQuota", "KvpulsePreemptionThrash"),
}


def read(path):
    (test,) = yaml.safe_load(path.read_text("utf-8"))["tests"]
    return test


def spelled_out(values):
    """Return promtool's shorthand as one word for each scrape."""
    words = []
    for word in values.split():
        value, _, more = word.partition("x")
        words += [value] * (int(more or 0) + (value != "_" or not more))
    return words


@pytest.mark.prometheus
def test_promtool_finds_every_alert_where_it_is_expected_and_nowhere_else():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")

    files = sorted(FOLDER.glob("*.yml"))
    done = subprocess.run(
        [promtool, "test", "rules", *map(str, files)], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(files) == len(FIXTURES)


def test_every_alert_of_a_verdict_fires_in_a_fixture_but_those_that_nothing_provokes():
    fired = {
        each["alertname"]
        for path in FOLDER.glob("*.yml")
        for each in read(path).get("alert_rule_test", [])
    }
    of_verdicts = {alert.name for alert in OF_VERDICTS}

    assert of_verdicts - fired == NOT_PROVOKED


@pytest.mark.parametrize("fixture", sorted(FIXTURES))
def test_every_series_of_every_verdict_is_there_from_the_first_diagnosis_to_the_end(fixture):
    test = read(FOLDER / f"{fixture}.yml")

    gone = {"stale", "_"} if FIXTURES[fixture].is_away else set()
    series = {each["series"]: spelled_out(each["values"]) for each in test["input_series"]}
    for verdict in CONDITIONS:
        name = f'kvpulse_incidents_open{{engine="{fixture}",verdict="{verdict}"}}'
        assert series[name][0] == "_"
        assert set(series[name][2:]) <= {"0", "1"} | gone
    assert len({len(words) for words in series.values()}) == 1


@pytest.mark.parametrize("fixture", [case.name for case in FIXTURES.values() if not case.alerts])
def test_a_healthy_fixture_expects_silence_for_all_of_its_time(fixture):
    test = read(FOLDER / f"{fixture}.yml")
    scrapes = len(spelled_out(test["input_series"][0]["values"])) - 1

    assert "alert_rule_test" not in test
    assert test["promql_expr_test"][0] == {
        "expr": f'count_over_time(ALERTS{{alertstate="firing"}}[{scrapes * 15}s])',
        "eval_time": f"{scrapes * 15}s",
        "exp_samples": [],
    }
    assert scrapes * 15 >= 1_200


def test_values_are_written_in_promtool_s_shorthand():
    values = {1: 0.0, 2: 0.0, 3: 0.0, 4: 1.0, 6: 0.25, 7: 0.25}

    assert compact(values, 8) == "_ 0x2 1 stale 0.25x1 stale"
    assert compact({3: 1.0}, 3) == "_x3 1"
    assert compact({1: 1.0}, 4) == "_ 1 stale _x2"
    assert spelled_out("_x3 1 0x2 _") == ["_", "_", "_", "1", "0", "0", "0", "_"]


def test_a_fixture_is_what_the_script_exports(tmp_path):
    script = [sys.executable, "scripts/export_alert_fixtures.py"]
    done = subprocess.run(
        [*script, "--only", "engine_crash", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

    exported = read(tmp_path / "engine_crash.yml")
    committed = read(FOLDER / "engine_crash.yml")
    for key in ("interval", "promql_expr_test", "alert_rule_test"):
        assert exported[key] == committed[key]
    again = {each["series"]: spelled_out(each["values"]) for each in exported["input_series"]}
    for each in committed["input_series"]:
        if "incidents_open" in each["series"]:
            pairs = zip(spelled_out(each["values"]), again[each["series"]], strict=True)
            # An engine begins at any part of a second, so a change may fall to the next scrape.
            assert sum(ours != theirs for ours, theirs in pairs) <= 2
