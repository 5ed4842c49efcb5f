"""The alert rules as a file: up to date, one for each verdict, each with its runbook section."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from agent.metrics.incidents import INCIDENTS_OPEN
from agent.metrics.targets import TARGET_BURN_RATE
from agent.metrics.webhook import WEBHOOK_DELIVERIES
from agent.triage.verdicts import Verdict
from grafana.alert_table import OF_VERDICTS, alert_name
from grafana.alerts import PAGE, RULES, main, page, rules

ROOT = Path(__file__).parents[2]
CONDITIONS = [verdict for verdict in Verdict if verdict is not Verdict.HEALTHY]


@pytest.fixture(scope="module")
def written():
    """Return every rule of the committed file by name."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_file_and_page_are_what_the_table_says():
    assert RULES.read_text("utf-8") == rules()
    assert PAGE.read_text("utf-8") == page()
    assert main(["--check"]) == 0


def test_check_fails_on_a_file_edited_by_hand(tmp_path, monkeypatch, capsys):
    edited = tmp_path / "kvpulse.yml"
    edited.write_text(rules().replace("critical", "info"), "utf-8")
    monkeypatch.setattr("grafana.alerts.RULES", edited)

    assert main(["--check"]) == 1
    assert "python -m grafana.alerts" in capsys.readouterr().err


def test_no_verdict_is_without_its_alert_and_no_alert_without_its_verdict(written):
    of_incidents = {
        name: re.search(r'verdict="(\w+)"', rule["expr"]).group(1)
        for name, rule in written.items()
        if INCIDENTS_OPEN.name in rule["expr"]
    }

    assert of_incidents == {alert_name(verdict): verdict.value for verdict in CONDITIONS}
    assert [alert.runbook for alert in OF_VERDICTS] == [verdict.value for verdict in CONDITIONS]


def test_every_alert_says_for_how_long_how_bad_and_what_to_do(written):
    for rule in written.values():
        assert rule["for"] in {"0s", "30s", "1m"}
        assert rule["keep_firing_for"] == "1m"
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"].startswith("{{ $labels.")
        assert rule["annotations"]["description"].endswith(".")


def test_every_runbook_link_leads_to_a_section(written):
    for rule in written.values():
        page, section = rule["annotations"]["runbook_url"].split("#")
        assert f"\n## {section}\n" in (ROOT / page).read_text("utf-8")


def test_only_metrics_that_exist_are_asked_for(written):
    names = {name for rule in written.values() for name in re.findall(r"kvpulse_\w+", rule["expr"])}

    assert names == {INCIDENTS_OPEN.name, TARGET_BURN_RATE.name, WEBHOOK_DELIVERIES.name}


def test_the_compose_file_s_prometheus_reads_them():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    mounts = [volume.split(":") for volume in services["prometheus"]["volumes"]]
    sources = {target: source for source, target, *_ in mounts}
    config = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yml").read_text())

    (read,) = config["rule_files"]
    folder = read.removesuffix("/*.yml")
    assert (ROOT / sources[folder]).resolve() == RULES.parent
    assert {job["job_name"] for job in config["scrape_configs"]} == {"kvpulse"}


@pytest.mark.prometheus
def test_prometheus_accepts_them():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")

    done = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert f"{len(CONDITIONS) + 3} rules found" in done.stdout
