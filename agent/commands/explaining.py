"""Have a comparison explained: both windows fetched from the agent, replayed by the engine's side.

The agent does not know the engine, so `kvpulse explain` runs as a process of its own; what it says
of its progress goes to standard error.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.commands.agent_client import AgentClient
from agent.errors import AgentError, RefusedByAgent
from kvpulse.recording_file import write_private

NS: Final = 1_000_000_000
LONGEST_NS: Final = 3_600 * NS
COMMAND: Final = (sys.executable, "-m", "engine.commands.explain")
ANSWERED: Final = (0, 4)  # explained or no change; cannot be explained


class NotExplained(AgentError):
    """The process that explains failed, or is not installed."""


def explain_comparison(client: AgentClient, comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Return why the sides differ, as `kvpulse explain --json` has it.

    The last hour of each side is replayed, or as much as the shorter one has.

    Raises:
        AgentUnreachable: The agent does not answer.
        NotExplained: The engine's side failed, or is not installed.
    """
    sides = (comparison["first"], comparison["second"])
    window_ns = min(LONGEST_NS, *(side["end_ns"] - side["start_ns"] for side in sides))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("first", "second")]
        for side, file in zip(sides, files, strict=True):
            try:
                write_private(_recording(client, side, window_ns), file)
            except RefusedByAgent as error:
                return _not_recorded(f"{side['label']}: {error}")
        return _explained(files)


def _recording(client: AgentClient, side: Mapping[str, Any], window_ns: int) -> bytes:
    end_ns = side["end_ns"]
    return client.download(
        "api", "recording", engine=side["engine"], start_ns=end_ns - window_ns, end_ns=end_ns
    )


def _explained(files: list[Path]) -> dict[str, Any]:
    command = [*COMMAND, *map(str, files), "--json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode not in ANSWERED:
        raise NotExplained(
            "the replays failed; their message is above. They need the engine's packages: run"
            " `make setup` in a checkout. Without --why the comparison works all the same"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _not_recorded(why: str) -> dict[str, Any]:
    text = f"why mean TTFT changed: it cannot be explained, because {why}"
    return {
        "answer": "cannot_be_explained",
        "why_not": why,
        "traffic_ratio": None,
        "shares": [],
        "text": [text],
    }
