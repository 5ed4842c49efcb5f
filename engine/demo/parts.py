"""The processes of a demonstration: how each is started, and how it says that it is ready."""

import json
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.demo.end_signals import end_signals_held_back, ignore_end_signals
from engine.demo.load import TENANTS
from engine.demo.options import ENGINE_NAME, DemoOptions
from engine.demo.places import Places
from engine.demo.processes import Child, ChildFailedError, command_line, read_log, wait_for
from engine.errors import EngineError

ENGINE_STOP_SECONDS: Final = 15.0
STOP_SECONDS: Final = 8.0
STORED_SECONDS: Final = 30.0
READY_SECONDS: Final = 120.0
_DASHBOARD_URL: Final = re.compile(r"^dashboard: (http://\S+)", re.MULTILINE)


class NotReadyError(EngineError):
    """A child process did not say in time that it is ready."""

    def __init__(self, child: Child) -> None:
        super().__init__(f"{child.name} is not ready after {READY_SECONDS:.0f} s; see {child.log}")


class NotStoredError(EngineError):
    """The agent has not stored the whole run in time."""

    def __init__(self, said: str) -> None:
        super().__init__(f"the run is not stored after {STORED_SECONDS:.0f} s: {said}")


@dataclass(frozen=True, slots=True)
class Urls:
    """Where the parts answer."""

    engine: str
    agent: str
    dashboard: str | None


class Parts:
    """Engine, agent and dashboard as child processes."""

    def __init__(self, options: DemoOptions, places: Places) -> None:
        self._places = places
        self._expects_crash = options.expects_crash
        self.engine_crashed = False  # as it was told to
        self.run_id = ""
        self._children: list[Child] = []
        try:
            self._engine = self._start("engine", _engine_arguments(options, places))
            self._agent = self._start("agent", _agent_arguments(places))
            self._dashboard = None
            if options.dashboard:
                self._dashboard = self._start("dashboard", ["dashboard", "--store", places.store])
        except BaseException:
            ignore_end_signals()
            self.stop()
            raise

    def _start(self, name: str, arguments: Sequence[str]) -> Child:
        with end_signals_held_back():
            child = Child(name, arguments, log=self._places.log(name))
            self._children.append(child)
        return child

    def wait_until_ready(self) -> Urls:
        """Wait until each part answers, and return where."""
        engine = self._first_json(self._engine)
        self.run_id = str(engine["run_id"])
        dashboard = self._dashboard_url() if self._dashboard is not None else None
        return Urls(str(engine["url"]), str(self._first_json(self._agent)["url"]), dashboard)

    def check(self) -> None:
        """Raise ChildFailedError if a part has ended by itself, but for a crash on purpose."""
        for child in list(self._children):
            try:
                child.check()
            except ChildFailedError as error:
                if child is not self._engine or not self._is_crash(error.returncode):
                    raise
                self._children.remove(child)

    def stop_engine(self) -> None:
        """End the engine, which writes its accounts, while the agent reads on."""
        if self.engine_crashed:
            return
        returncode = self._engine.stop(patience_seconds=ENGINE_STOP_SECONDS)
        self._children.remove(self._engine)
        if returncode != 0 and not self._is_crash(returncode):
            raise ChildFailedError("engine", returncode=returncode, log=self._engine.log)

    def _is_crash(self, returncode: int) -> bool:
        """Note a crash that was asked for."""
        self.engine_crashed = self._expects_crash and returncode == -signal.SIGKILL
        return self.engine_crashed

    def wait_until_stored(self) -> dict[str, Any]:
        """Wait until the agent has read the engine's last word; return what it stored."""
        said: dict[str, Any] = {}

        def stored() -> bool:
            said.clear()
            said.update(self._ask_store())
            return said.get("state") == ("dead" if self.engine_crashed else "finished")

        if not wait_for(stored, children=self._children, timeout_seconds=STORED_SECONDS):
            raise NotStoredError(str(said.get("state", said)))
        return said

    def stop(self) -> None:
        """End every part that still runs."""
        for child in self._children:
            child.ask_to_stop()
        while self._children:
            self._children.pop().stop(patience_seconds=STOP_SECONDS)

    def _ask_store(self) -> dict[str, Any]:
        arguments = ["summary", "--json", "--engine", ENGINE_NAME]
        arguments += ["--run", self.run_id, "--store", self._places.store]
        answer = subprocess.run(
            command_line(arguments), capture_output=True, text=True, check=False
        )
        try:
            facts: dict[str, Any] = json.loads(answer.stdout)
        except ValueError:
            return {"error": answer.stderr.strip()}
        return facts

    def _first_json(self, child: Child) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def said() -> bool:
            lines = read_log(child.log).splitlines(keepends=True)
            whole = [line for line in lines if line.startswith("{") and line.endswith("}\n")]
            found.extend(json.loads(line) for line in whole[:1])
            return bool(found)

        if not wait_for(said, children=self._children, timeout_seconds=READY_SECONDS):
            raise NotReadyError(child)
        return found[0]

    def _dashboard_url(self) -> str:
        assert self._dashboard is not None, "asked for only when started"
        child = self._dashboard

        def url() -> str | None:
            match = _DASHBOARD_URL.search(read_log(child.log))
            return match[1] if match else None

        children = self._children
        if not wait_for(lambda: bool(url()), children=children, timeout_seconds=READY_SECONDS):
            raise NotReadyError(child)
        return url() or ""


def _engine_arguments(options: DemoOptions, places: Places) -> list[str]:
    shape = options.shape
    arguments = ["serve", "--json", "--engine", ENGINE_NAME]
    arguments += ["--simulated"] if options.simulated else ["--model", "smollm2"]
    arguments += ["--journal", str(places.journal), "--accounts-file", str(places.accounts)]
    settings = {
        "--num-blocks": shape.num_blocks,
        "--block-size": shape.block_size,
        "--max-context": shape.max_context,
        "--max-batch": shape.max_batch,
        "--max-queue": shape.max_queue,
        "--token-budget": shape.token_budget,
    }
    arguments += [text for pair in settings.items() for text in map(str, pair)]
    arguments += [text for tenant in TENANTS for text in ("--tenant", tenant)]
    if options.port is not None:
        arguments += ["--port", str(options.port)]
    for fault in options.faults:
        arguments += ["--fault", str(fault)]
    if options.faults_truth is not None:
        arguments += ["--faults-truth", str(options.faults_truth.absolute())]
    return arguments


def _agent_arguments(places: Places) -> list[str]:
    return ["agent", "--json", "--journal", str(places.journal), "--store", places.store]
