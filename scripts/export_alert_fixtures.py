"""Write the fixtures of the alert rules: what a Prometheus would have scraped, and what must fire.

Simulated engines with and without a fault are recorded, followed and judged as by an agent while
they run, on the engine's own time. Each 15 s of it the agent's real metrics are rendered; these
values are the input of `promtool test rules`. What is expected comes from the fault alone, never
from the values: nothing fires before it begins, its alert fires when it ends, and in the end
nothing does.

    python scripts/export_alert_fixtures.py                  # all, into tests/grafana/alerts/
    python scripts/export_alert_fixtures.py --only slow_step --out DIR
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from agent.drill.engine_process import ENGINE_OPTIONS, record
from agent.drill.follow import FollowedRun, streams_of
from agent.drill.scenario import CASES, Scenario, Traffic
from agent.incidents.board import IncidentBoard
from agent.incidents.watch import IncidentWatch
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.metrics.exporter import exporter_registry
from agent.metrics.incidents import INCIDENTS_OPEN
from agent.metrics.targets import TARGET_BURN_RATE
from agent.reads.reads import open_reads
from agent.sources.journal import JournalFolder
from agent.store.store import Store
from agent.targets.target import Target
from agent.targets.watch import TargetWatch
from grafana.alert_table import ALERTS, Alert
from grafana.alerts import RULES, annotations

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "tests" / "grafana" / "alerts"
NS: Final = 1_000_000_000
SCRAPE_SECONDS: Final = 15
LOOK_SECONDS: Final = 10  # of the agent, between two of its diagnoses
STEP_SECONDS: Final = 5
HEALTHY_SECONDS: Final = 240  # before a fault: enough past to compare with
AGAIN_SECONDS: Final = 180  # of an engine that is started again
EXPORTED: Final = (INCIDENTS_OPEN.name, TARGET_BURN_RATE.name)
TARGETS: Final = (Target("inter_token", 0.99, 0.2),)
AGENT: Final = {"instance": "agent:9464", "job": "kvpulse"}
UP: Final = 'up{instance="agent:9464",job="kvpulse"}'
TRAFFIC: Final = Traffic(0.6, 0.0, 5)
Samples = dict[str, dict[int, float]]  # by series: value by number of the scrape


@dataclass(frozen=True, slots=True)
class Case:
    """One fixture.

    Attributes:
        name: Of a fault of the drill, if it is one of these.
        alerts: Those that must fire when the fault ends; none: a healthy run, in which none may.
        fault_seconds: How long it lasts.
        settles_seconds: From then until everything has been resolved for a while.
        is_away: The agent is not there in that time; the engine is well.
        surges: More is asked for in that time, and nothing after it.
        is_restarted: What it did stays, so the engine is started again, without it.
        options: Of the engine, over those of the drill. They make it too small or too slow,
            from the beginning on until nobody comes any more.
    """

    name: str
    alerts: tuple[str, ...] = ()
    fault_seconds: int = 150
    settles_seconds: int = 300
    is_restarted: bool = False
    is_away: bool = False
    surges: bool = False
    traffic: Traffic = TRAFFIC
    options: tuple[str, ...] = ()

    @property
    def fault_begins(self) -> int:
        """Return when the fault begins, in seconds since the first scrape."""
        is_later = self.name in CASES or self.surges or self.is_away
        return HEALTHY_SECONDS if is_later else 0

    def is_agent_there(self, at_seconds: int) -> bool:
        """Say whether there is an agent at a moment."""
        return not self.is_away or not self.fault_begins < at_seconds <= self.fault_ends

    @property
    def fault_ends(self) -> int:
        """Return when the fault ends."""
        return self.fault_begins + self.fault_seconds

    @property
    def scenarios(self) -> list[Scenario]:
        """Return the engine's runs, one after the other."""
        seconds = self.fault_ends + (0 if self.is_restarted else self.settles_seconds)
        fault = CASES.get(self.name)
        faults = (replace(fault, parameters=f"for_seconds={self.fault_seconds}"),) if fault else ()
        traffic = replace(
            self.traffic,
            seconds=float(seconds),
            surge_after=self.fault_begins / seconds if self.surges else 1.0,
            idle_after=self.settles_seconds / seconds if self.surges or self.options else 0.0,
        )
        first = Scenario(self.name, traffic, faults, HEALTHY_SECONDS)
        again = Scenario(self.name, Traffic(0.6, float(AGAIN_SECONDS), 6))
        return [first, again] if self.is_restarted else [first]


FIXTURES: Final = {
    case.name: case
    for case in (
        Case("leak_on_cancel", ("KvpulsePoolLeak",), is_restarted=True),
        Case("double_free", ("KvpulseLedgerBroken",), settles_seconds=540),
        Case("slow_step", ("KvpulseComputeSlow", "KvpulseBudgetBurning"), settles_seconds=480),
        Case("stall_admission", ("KvpulseStalled",)),
        Case("pool_shrink", ("KvpulsePoolExhausted",)),
        Case("hog_tenant", ("KvpulseTenantHog",), settles_seconds=900),
        Case("drop_events", ("KvpulseTelemetryIncomplete",)),
        Case("slow_frontend", ("KvpulseFrontendSlow",)),
        Case("engine_crash", ("KvpulseEngineDown",), is_restarted=True),
        Case(
            "batch_slots",
            ("KvpulseBatchSlots",),
            options=("--max-batch", "8"),
            fault_seconds=420,
            settles_seconds=420,
        ),
        Case(
            "token_budget",
            ("KvpulseTokenBudget",),
            options=("--token-budget", "64"),
            fault_seconds=420,
            settles_seconds=420,
        ),
        Case(
            "never_fits",
            ("KvpulseNeverFits",),
            options=("--total-blocks", "64"),
            fault_seconds=180,
        ),
        Case("agent_away", ("KvpulseAgentDown",), is_away=True),
        Case("surge", ("KvpulseTrafficShift",), fault_seconds=300, surges=True),
        Case(
            "slow_engine",
            ("KvpulseUnknown", "KvpulseBudgetBurning"),
            options=("--step-ms", "300"),
            fault_seconds=540,
            settles_seconds=480,
            traffic=Traffic(0.1, 0.0, 5),
        ),
        Case("healthy", settles_seconds=1_200),
        Case("healthy_bursts", settles_seconds=1_200, traffic=Traffic(0.5, 0.0, 12, bursts=True)),
    )
}


class Scraper:
    """An agent's watch over recorded runs, and a Prometheus that scrapes it."""

    def __init__(self, store: str, journal: Path) -> None:
        self.samples: Samples = {}
        self.num_scrapes = 0
        self._now_ns: Callable[[], int] = lambda: 0
        self._view, board = LiveView(0), IncidentBoard()
        limit = OncePerHour(lambda: self._now_ns() / NS)
        self._watch = IncidentWatch(
            store,
            self._view,
            board,
            limit,
            journal=journal,
            targets=TARGETS,
            wall_clock=lambda: self._now_ns(),
        )
        self._targets = TargetWatch(store, self._view, TARGETS, limit)
        self._registry = exporter_registry(self._view, lambda: self._now_ns(), None, board)

    def follow(self, followed: FollowedRun, seconds: int, case: Case) -> None:
        """Let so much of the engine's time pass; it goes on where the engine's journal ends."""
        for at in range(STEP_SECONDS, seconds + 1, STEP_SECONDS):
            followed.advance(at)
            after_end_ns = max(0, int((at - followed.seconds) * NS)) if followed.has_ended else 0
            self._now_ns = lambda after=after_end_ns: followed.clock.wall_ns() + after
            live = followed.live()
            if not case.is_agent_there(at):
                self._scrape_nothing(at)
                continue
            if live is not None:
                self._view.publish(live)
            if at % LOOK_SECONDS == 0:
                self._watch.look()
            if at % SCRAPE_SECONDS == 0:
                self._targets.look()
                self._scrape()

    def _scrape_nothing(self, at: int) -> None:
        if at % SCRAPE_SECONDS == 0:
            self.num_scrapes += 1
            self._keep(UP, 0.0)

    def close(self) -> None:
        """Close every connection."""
        self._watch.close()
        self._targets.close()

    def _scrape(self) -> None:
        self.num_scrapes += 1
        self._keep(UP, 1.0)
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.name in EXPORTED:
                    labels = ",".join(f'{name}="{v}"' for name, v in sample.labels.items())
                    self._keep(f"{sample.name}{{{labels}}}", sample.value)

    def _keep(self, series: str, value: float) -> None:
        self.samples.setdefault(series, {})[self.num_scrapes] = round(value, 2)


def scraped(case: Case) -> Scraper:
    """Record a case's runs, follow them, and return what was scraped."""
    with tempfile.TemporaryDirectory(prefix="kvpulse-fixture-") as name, ExitStack() as stack:
        folder, store = Path(name), str(Path(name) / "fixture.db")
        journals = {
            record(scenario, folder, (*ENGINE_OPTIONS, *case.options)).journal
            for scenario in case.scenarios
        }
        (journal,) = journals
        opened = stack.enter_context(Store.open(store))
        reads = open_reads(store)
        stack.callback(reads.close)
        scraper = Scraper(store, journal)
        stack.callback(scraper.close)
        found = streams_of(JournalFolder(journal))
        for scenario, stream in zip(case.scenarios, found, strict=True):
            followed = FollowedRun(stream, opened, reads)
            stack.callback(followed.close)
            scraper.follow(followed, int(scenario.traffic.seconds), case)
        return scraper


def compact(values: Mapping[int, float], num_scrapes: int) -> str:
    """Return values in promtool's notation, from time 0 on: `_` is none, `1x4` is 1 five times.

    Where a series is gone from a scrape, Prometheus marks it as stale.
    """
    words = [
        f"{values[at]:g}" if at in values else "stale" if at - 1 in values else "_"
        for at in range(num_scrapes + 1)
    ]
    runs = [(word, len(list(group))) for word, group in groupby(words)]
    return " ".join(
        word if number == 1 else f"_x{number}" if word == "_" else f"{word}x{number - 1}"
        for word, number in runs
    )


def fixture(case: Case, scraper: Scraper) -> Iterator[str]:
    """Yield the lines of a fixture: YAML, each text in JSON's quotes."""
    ends = scraper.num_scrapes * SCRAPE_SECONDS
    up = Path(*[".."] * len(FOLDER.relative_to(ROOT).parts)) / RULES.relative_to(ROOT)
    yield f"# Exported by scripts/export_alert_fixtures.py --only {case.name}. Do not edit it."
    yield f"rule_files: [{up.as_posix()}]"
    yield f"evaluation_interval: {SCRAPE_SECONDS}s"
    yield "tests:"
    yield f"  - name: {case.name}"
    yield f"    interval: {SCRAPE_SECONDS}s"
    yield "    input_series:"
    for series, values in sorted(scraper.samples.items()):
        yield f"      - series: {json.dumps(series)}"
        yield f"        values: {json.dumps(compact(values, scraper.num_scrapes))}"
    yield "    promql_expr_test:"
    quiet = case.fault_begins if case.alerts else ends
    if quiet:
        yield from _nothing(f'count_over_time(ALERTS{{alertstate="firing"}}[{quiet}s])', quiet)
    yield from _nothing('ALERTS{alertstate="firing"}', ends)
    if case.alerts:
        yield "    alert_rule_test:"
        for name in case.alerts:
            yield from _firing(name, case.fault_ends, case.name)


def _nothing(expression: str, at_seconds: int) -> Iterator[str]:
    yield f"      - expr: {json.dumps(expression)}"
    yield f"        eval_time: {at_seconds}s"
    yield "        exp_samples: []"


def _firing(name: str, at_seconds: int, engine: str) -> Iterator[str]:
    alert = next(each for each in ALERTS if each.name == name)
    yield f"      - alertname: {name}"
    yield f"        eval_time: {at_seconds}s"
    yield "        exp_alerts:"
    yield f"          - exp_labels: {json.dumps(_labels(alert, engine))}"
    about = engine if alert.subject == "engine" else AGENT["instance"]
    told = {
        key: text.replace(f"{{{{ $labels.{alert.subject} }}}}", about)
        for key, text in annotations(alert).items()
    }
    yield f"            exp_annotations: {json.dumps(told)}"


def _labels(alert: Alert, engine: str) -> dict[str, str]:
    own: dict[str, str] = AGENT
    if TARGET_BURN_RATE.name in alert.expression:
        own = {"engine": engine, "target": TARGETS[0].latency, "window": "1h"}
    elif INCIDENTS_OPEN.name in alert.expression:
        own = {"engine": engine, "verdict": alert.runbook}
    return {"severity": alert.severity.value, **own}


def main(argv: Sequence[str]) -> int:
    """Write the fixtures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(FIXTURES), help="this fixture alone")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the fixtures")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, case in FIXTURES.items():
        if arguments.only in (None, name):
            path = arguments.out / f"{name}.yml"
            path.write_text("\n".join(fixture(case, scraped(case))) + "\n", "utf-8")
            print(f"wrote {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
