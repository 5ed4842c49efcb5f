"""The soak runs a real engine and a real agent, measures both, and counts every event."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.commands.bench_soak import main
from agent.commands.soak_processes import running
from agent.commands.soak_watch import Delays, cpu_seconds, resident_mb
from agent.errors import SoakError
from tests.waiting import wait_until


def test_a_short_soak_stores_every_event_and_measures_the_agent(capsys):
    rate = ("--events-per-second", "8000", "--tenants", "3")

    # So long that both get to run within it, however busy the machine.
    code = main(["--seconds", "8", "--warm-up-seconds", "1", *rate, "--json"])

    said = capsys.readouterr()
    figures = json.loads(said.out)
    assert code == 0
    assert figures["events_stored"] == figures["events_emitted"] > 2_000
    assert figures["events_lost"] == 0
    assert figures["tenants"] == 3
    assert figures["events_per_second"] > 0
    assert 0 < figures["cpu_percent"] < 100
    assert 0 < figures["queryable_p50_ms"] <= figures["queryable_p99_ms"]
    assert figures["rss_start_mb"] > 20
    assert (
        figures["rss_growth_mb"] < 32
    )  # the start is in it; half a kB for each event would not be
    assert figures["rss_end_mb"] <= figures["rss_peak_mb"] + 0.1
    assert "soak: starting engine and agent" in said.err


def test_a_delay_is_from_the_look_that_saw_a_record_first_to_the_one_that_saw_it_stored():
    delays = Delays()

    delays.look(10.0, written=5, stored=0)
    delays.look(10.1, written=5, stored=4)  # nothing new to wait for
    delays.look(10.2, written=9, stored=5)
    delays.look(10.3, written=9, stored=9)

    assert [round(ms) for ms in delays.milliseconds] == [200, 100]
    assert (delays.quantile(0.0), delays.quantile(0.99)) == (100.0, 200.0)


def test_without_a_new_record_no_delay_is_invented():
    delays = Delays()

    delays.look(1.0, written=0, stored=0)

    assert delays.quantile(0.5) is None


def test_a_part_that_ends_by_itself_is_told_with_what_it_said_last(tmp_path: Path):
    failing = ["-c", "import sys; print('no room', file=sys.stderr); sys.exit(3)"]

    with running("engine", failing, tmp_path) as part:
        with pytest.raises(SoakError, match="engine of the soak ended with 3; it said: no room"):
            part.output(seconds=20)
        with pytest.raises(SoakError, match="ended with 3"):
            part.check()


def test_a_part_may_end_with_a_code_that_is_an_answer(tmp_path: Path):
    answering = ["-c", "import sys; print('3 events lost'); sys.exit(1)"]

    with running("engine", answering, tmp_path) as part:
        assert part.output(seconds=20, accepted=(0, 1)) == "3 events lost\n"


def test_a_part_that_goes_on_is_not_waited_for_without_end(tmp_path: Path):
    with running("agent", ["-c", "import time; time.sleep(60)"], tmp_path) as part:
        part.check()
        with pytest.raises(SoakError, match=r"the agent of the soak did not end within 0\.2 s"):
            part.output(seconds=0.2)

    assert part.process.returncode == -15


def test_a_process_is_seen_with_its_cpu_time_and_memory():
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) < before + 0.05:
        sum(range(10_000))

    assert resident_mb(os.getpid()) > 10


@pytest.mark.parametrize("option", ["--seconds", "--events-per-second", "--warm-up-seconds"])
def test_an_amount_that_is_none_is_refused(option, capsys):
    with pytest.raises(SystemExit) as ended:
        main([option, "0"])

    assert ended.value.code == 2
    assert "'0' is not a number above 0" in capsys.readouterr().err


def test_a_soak_that_is_told_to_end_leaves_no_process_and_no_folder(tmp_path: Path):
    """Its journal lies in memory, and an hour's requests are gigabytes of it."""
    command = [sys.executable, "-m", "kvpulse", "bench", "soak", "--seconds", "60"]
    folders = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=folders, stderr=subprocess.DEVNULL) as soak:
        try:
            wait_until(lambda: len(journals_of(soak.pid)) == 2, timeout=60)
            journals = journals_of(soak.pid)
        finally:
            soak.terminate()

    assert soak.returncode == 128 + signal.SIGTERM
    assert not [pid for pid in journals if Path(f"/proc/{pid}").exists()]
    assert len(set(journals.values())) == 1
    assert not any(journal.parent.exists() for journal in journals.values())
    assert not list(tmp_path.iterdir())


def journals_of(parent: int) -> dict[int, Path]:
    """Return the journal that each child of a process was started on; without those not yet on."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    said = {int(pid): Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in children}
    return {
        pid: Path(words[words.index("--journal") + 1])
        for pid, words in said.items()
        if "--journal" in words
    }
