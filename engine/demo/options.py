"""What `kvpulse demo` was told, and where it keeps things."""

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from engine.demo.workload import REAL_SHAPE, SIMULATED_SHAPE, DemoShape
from engine.errors import EngineError
from engine.faults.options import add_fault_options
from engine.faults.spec import FaultSpec
from engine.model.model_files import find_model
from engine.option_types import port, positive_duration

ENGINE_NAME: Final = "demo"
ROOM_FOR_JOURNAL_BYTES: Final = 128 << 20
_NEEDED_MODULES: Final = ("torch", "tokenizers")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Settings of one demonstration.

    Attributes:
        seconds: How long the workload runs; None: until Ctrl-C.
        why_simulated: Why there is no real model; "" if that was asked for, None if there is one.
        journal: Where the journal is to lie and stay; None: a folder that is removed at the end.
        store: The store; None: the default one, which keeps the history of earlier demonstrations.
        pages_missing: The dashboard was wanted, but Streamlit is not installed.
        fresh: Use a store of its own, in a temporary folder.
        port: Of the engine; None: the next free one.
    """

    seconds: float | None
    why_simulated: str | None
    faults: tuple[FaultSpec, ...]
    faults_truth: Path | None
    dashboard: bool
    pages_missing: bool
    json: bool
    journal: Path | None
    store: str | None
    fresh: bool
    port: int | None
    seed: int

    @property
    def simulated(self) -> bool:
        """Whether tokens come from the cost model."""
        return self.why_simulated is not None

    @property
    def expects_crash(self) -> bool:
        """Whether the engine is to be killed on purpose."""
        return any(fault.name == "engine_crash" for fault in self.faults)

    @property
    def shape(self) -> DemoShape:
        """How large engine and workload are."""
        return SIMULATED_SHAPE if self.simulated else REAL_SHAPE


def parse_options(argv: Sequence[str]) -> DemoOptions:
    """Read the command line; look whether a real model can be served."""
    given = _parser().parse_args(argv)
    return DemoOptions(
        seconds=given.seconds,
        why_simulated="" if given.simulated else why_no_model(),
        faults=tuple(given.fault),
        faults_truth=given.faults_truth,
        dashboard=not given.no_dashboard and can_show_pages(),
        pages_missing=not given.no_dashboard and not can_show_pages(),
        json=given.json,
        journal=given.journal,
        store=given.store,
        fresh=given.fresh,
        port=given.port,
        seed=given.seed,
    )


def why_no_model() -> str | None:
    """Say what is missing for a real model; None if nothing is."""
    for module in _NEEDED_MODULES:
        if find_spec(module) is None:
            return f"{module} is not installed"
    try:
        find_model()
    except EngineError as error:
        return str(error)
    return None


def can_show_pages() -> bool:
    """Whether the dashboard's library is installed."""
    return find_spec("streamlit") is not None


def has_room(folder: Path) -> bool:
    """Whether a journal may grow in this folder, which need not exist yet."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        return shutil.disk_usage(existing).free >= ROOM_FOR_JOURNAL_BYTES
    except OSError:
        return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse demo",
        description="Start engine, agent and dashboard, and send them a mixed workload.",
        epilog="Exit code 1: events were lost, an audit failed, blocks leaked or were freed twice, "
        "or the engine died. Ctrl-C ends it.",
    )
    add = parser.add_argument
    add(
        "--seconds",
        type=positive_duration,
        metavar="N",
        help="end after so long (runs until Ctrl-C)",
    )
    add("--simulated", action="store_true", help="no model and no torch")
    add_fault_options(parser)
    add("--no-dashboard", action="store_true", help="do not start the pages")
    add("--json", action="store_true", help="print the summary as one JSON object")
    add("--journal", type=Path, metavar="DIR", help="keep the journal here")
    store = parser.add_mutually_exclusive_group()
    store.add_argument("--store", metavar="PATH|URL", help="store of the agent (its default)")
    store.add_argument("--fresh", action="store_true", help="a new store, in a temporary folder")
    add("--port", type=port, help="exactly this port for the engine (8000 or the next free one)")
    add("--seed", type=int, default=1, help="of the workload (1)")
    return parser
