"""The command `kvpulse`: a table of names, each resolved to a function when it is called.

A target is a function `(argv: list[str]) -> int`. Exit codes: 0 good, 1 the answer is bad, 2 usage
or configuration, 3 cannot reach what it needs.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Final, NamedTuple

from kvpulse.emitter_choice import emitter

APP: Final = "kvpulse-app"
HOW_TO_GET_APP: Final = (
    "the rest of kvpulse comes from its source checkout: run `make setup` there, "
    "or `pip install -e kvpulse -e .`"
)
EXIT_GOOD: Final = 0
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_INTERRUPTED: Final = 130


class CommandEntry(NamedTuple):
    """One command: where its function is and what it is for."""

    target: str
    help: str
    needs: str = APP
    after_ctrl_c: int = EXIT_INTERRUPTED


COMMANDS: Final[Mapping[str, CommandEntry]] = MappingProxyType(
    {
        "demo": CommandEntry(
            "engine.commands.demo:main",
            "engine, agent and dashboard with a mixed workload",
            after_ctrl_c=EXIT_GOOD,  # there is no other way to end it
        ),
        "serve": CommandEntry("engine.commands.serve:main", "engine with an OpenAI-compatible API"),
        "agent": CommandEntry("agent.commands.agent:main", "follow journals into the store"),
        "dashboard": CommandEntry("dashboard.commands:main", "the pages in a browser"),
        "replay": CommandEntry(
            "engine.commands.replay:main", "a production trace through the simulated engine"
        ),
        "explain": CommandEntry(
            "engine.commands.explain:main", "why one recording is not as another: replays of both"
        ),
        "doctor": CommandEntry(
            "agent.commands.doctor:main", "what is wrong, why, and what to do: one verdict"
        ),
        "incident": CommandEntry(
            "agent.commands.incident:main", "what lasts: list, show, acknowledge, bundle as a file"
        ),
        "block-map": CommandEntry(
            "agent.commands.block_map:main", "every block and its owners at a moment"
        ),
        "summary": CommandEntry(
            "agent.commands.summary:main", "what a run left in the store, and whether it adds up"
        ),
        "costs": CommandEntry(
            "agent.commands.costs:main", "block-seconds and cost by tenant or request"
        ),
        "export": CommandEntry("agent.commands.export:main", "the history as Parquet files"),
        "baseline": CommandEntry(
            "agent.commands.baseline:main", "save how an engine does; compare: better or worse"
        ),
        "drill": CommandEntry(
            "agent.commands.drill:main", "are verdicts and comparisons right? simulated engines"
        ),
        "db": CommandEntry("agent.commands.db:main", "upgrade, check or prune the store"),
        "bench": CommandEntry("kvpulse.command:bench", "measure one part; alone: list them", ""),
    }
)

BENCHES: Final[Mapping[str, CommandEntry]] = MappingProxyType(
    {
        "emit": CommandEntry("kvpulse.bench_emit:main", "cost of recording one event", ""),
        "pool": CommandEntry(
            "engine.commands.bench_pool:main", "cost per block with and without recording"
        ),
        "ingest": CommandEntry(
            "agent.commands.bench_ingest:main", "events per second from journal to store"
        ),
        "query": CommandEntry(
            "agent.commands.bench_query:main", "time of block maps, a day and a month of history"
        ),
        "soak": CommandEntry(
            "agent.commands.bench_soak:main", "what a live agent costs, and that it loses nothing"
        ),
        "engine": CommandEntry(
            "engine.commands.bench_engine:main", "tokens per second, recording's cost per step"
        ),
        "kernels": CommandEntry(
            "engine.commands.bench_kernels:main", "each Triton kernel on a GPU, against its copy"
        ),
    }
)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        entry = COMMANDS.get(arguments[0])
        return entry.after_ctrl_c if entry is not None else EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_GOOD
    except Exception as error:
        # Each package has an error base of its own; those that are expected say how to exit.
        code = getattr(error, "exit_code", None)
        if not isinstance(code, int):
            raise
        print(f"kvpulse: {error}", file=sys.stderr)
        return code


def bench(argv: list[str]) -> int:
    """Run `kvpulse bench NAME`, or list the names."""
    if not argv or argv[0] in {"-h", "--help"}:
        print("usage: kvpulse bench NAME [options]\n")
        print(_listing(BENCHES))
        return EXIT_GOOD
    return _run(BENCHES, argv, prefix="kvpulse bench")


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print("usage: kvpulse COMMAND [options]   (kvpulse COMMAND --help says more)\n")
        print(_listing(COMMANDS))
        if not all(_is_there(entry) for entry in COMMANDS.values()):
            print(f"\nNot all is installed here: {HOW_TO_GET_APP}.")
        return EXIT_GOOD
    if arguments[0] in {"-V", "--version"}:
        print(f"kvpulse {version()}, {emitter()} emitter")
        return EXIT_GOOD
    return _run(COMMANDS, arguments, prefix="kvpulse")


def version() -> str:
    """Return the installed version, or say that there is none."""
    try:
        return metadata.version("kvpulse")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _run(table: Mapping[str, CommandEntry], arguments: list[str], *, prefix: str) -> int:
    name, rest = arguments[0], arguments[1:]
    entry = table.get(name)
    if entry is None:
        known = ", ".join(table)
        print(f"kvpulse: no command {name!r}; there are: {known}", file=sys.stderr)
        return EXIT_USAGE
    if not _is_there(entry):
        print(f"kvpulse: `{prefix} {name}` is not installed; {HOW_TO_GET_APP}", file=sys.stderr)
        return EXIT_UNREACHABLE
    try:
        function = _resolve(entry.target)
    except ModuleNotFoundError as error:
        print(
            f"kvpulse: `{prefix} {name}` needs the module {error.name!r}; {HOW_TO_GET_APP}",
            file=sys.stderr,
        )
        return EXIT_UNREACHABLE
    return function(rest)


def _resolve(target: str) -> Callable[[list[str]], int]:
    module, _, function = target.partition(":")
    resolved: Callable[[list[str]], int] = getattr(importlib.import_module(module), function)
    return resolved


def _is_there(entry: CommandEntry) -> bool:
    """Say whether the command's package is installed, without importing it."""
    root = entry.target.partition(":")[0].partition(".")[0]
    return importlib.util.find_spec(root) is not None


def _listing(table: Mapping[str, CommandEntry]) -> str:
    lines = []
    for name, entry in table.items():
        missing = "" if _is_there(entry) else "   (not installed)"
        lines.append(f"  {name:<11}{entry.help}{missing}")
    return "\n".join(lines)
