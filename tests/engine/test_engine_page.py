"""The example of docs/engine.md runs as printed."""

import textwrap
from pathlib import Path

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.request import Request, SimulatedContent
from engine.simulation.simulated_runner import SimulatedRunner
from tests.engine.factories_ledger import PlainLedger

PAGE = Path(__file__).parents[2] / "docs" / "engine.md"


def test_the_example_serves_a_request_and_records_it(tmp_path):
    text = PAGE.read_text()
    start = text.index("    clock = VirtualClock()")
    example = textwrap.dedent(text[start : text.index("\n\n", start)])
    names = {
        "EngineConfig": EngineConfig,
        "JournalSettings": lambda folder: JournalSettings(tmp_path),
        "Path": Path,
        "Request": Request,
        "SimulatedContent": SimulatedContent,
        "SimulatedRunner": SimulatedRunner,
        "VirtualClock": VirtualClock,
        "open_engine": open_engine,
    }

    exec(example, names)

    ledger = PlainLedger().read(names["recorder"].directory)
    assert sum(ledger.ended.values()) == 1
    acts = names["engine"].accounts().acts
    assert dict(ledger.events) == {kind: n for kind, n in acts.items() if n}
