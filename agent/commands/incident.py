"""`kvpulse incident`: what is or was wrong with the engines, and since when.

`list`, `show` and `bundle` read the store; `ack` asks the running agent, which alone writes it.
"""

import argparse
import getpass
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, cast

from agent.byte_size import bytes_text
from agent.commands.agent_client import add_agent_options, client_of
from agent.commands.exit_codes import ExitCode
from agent.commands.moments import parse_duration
from agent.config import AgentConfig, load_config
from agent.export.private_file import PrivateFile
from agent.incidents.bundle import write_bundle
from agent.incidents.desk import checked_key
from agent.incidents.document import incident_document, row_document
from agent.incidents.text import incident_lines, list_lines
from agent.reads.incidents import MOST_ROWS, IncidentFilter
from agent.reads.reads import open_reads
from agent.shown_settings import shown_settings

DEFAULT_ROWS: Final = 20
STATES: Final = {"open": True, "closed": False, "all": None}
Action = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse incident`."""
    arguments = _parser().parse_args(argv)
    action: Action = arguments.action
    return action(arguments)


def _list(arguments: argparse.Namespace) -> int:
    since = arguments.since
    since_ns = None if since is None else time.time_ns() - parse_duration("--since", since)
    asked = IncidentFilter(
        arguments.engine, None, STATES[arguments.state], since_ns, arguments.limit
    )
    anything_open = IncidentFilter(arguments.engine, is_open=True, limit=1)
    reads = open_reads(_config(arguments).store)
    try:
        rows, is_open = reads.incidents(asked), bool(reads.incidents(anything_open))
    finally:
        reads.close()
    documents = [row_document(row) for row in rows]
    _print(arguments, {"incidents": documents}, lambda: list_lines(rows, time.time_ns()))
    return ExitCode.BAD_ANSWER if is_open else ExitCode.GOOD


def _show(arguments: argparse.Namespace) -> int:
    reads = open_reads(_config(arguments).store)
    try:
        stored = reads.incident(checked_key(arguments.id))
    finally:
        reads.close()
    _print(arguments, incident_document(stored), lambda: incident_lines(stored, time.time_ns()))
    return ExitCode.GOOD


def _acknowledge(arguments: argparse.Namespace) -> int:
    key = checked_key(arguments.id)
    body = {"by": arguments.by or getpass.getuser(), "note": arguments.note}
    client = client_of(arguments)
    done = client.post("api", "incidents", str(key), "acknowledgement", body=body)
    said: dict[str, Any] = cast(dict[str, Any], done["acknowledgement"])
    _print(arguments, done, lambda: [f"incident {key}: acknowledged by {said['by']}"])
    return ExitCode.GOOD


def _bundle(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    key = checked_key(arguments.id)
    path = Path(arguments.out or f"incident-{key}.zip").expanduser()
    reads = open_reads(config.store)
    try:
        stored = reads.incident(key)
        with PrivateFile(path, replace=arguments.force) as file:
            bundle = write_bundle(cast(IO[bytes], file), reads, stored, shown_settings(config))
            file.publish()
            num_bytes = file.num_bytes
    finally:
        reads.close()
    names = [member.name for member in bundle.members]
    done = {"path": str(path), "bytes": num_bytes, "members": names, "left_out": bundle.left_out}
    lines = [f"{path}: {len(names)} files, {bytes_text(num_bytes)}"]
    lines += [f"  without {name}: {why}" for name, why in bundle.left_out.items()]
    _print(arguments, done, lambda: lines)
    return ExitCode.GOOD


def _config(arguments: argparse.Namespace) -> AgentConfig:
    return load_config({"store": arguments.store, "config": arguments.config}, os.environ)


def _print(
    arguments: argparse.Namespace, document: dict[str, Any], lines: Callable[[], list[str]]
) -> None:
    print(json.dumps(document) if arguments.json else "\n".join(lines()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse incident",
        description=__doc__,
        epilog="Exit codes: 0 good (list: none is open), 1 list: one is open, 2 usage or no such"
        " incident, 3 the store cannot be read, or the agent does not answer. docs/incidents.md"
        " says more.",
    )
    actions = parser.add_subparsers(dest="what", required=True, metavar="ACTION")
    listing = _action(actions, "list", _list, "which there are, the open ones first")
    listing.add_argument("--engine", help="only of this one")
    listing.add_argument("--state", choices=tuple(STATES), default="all", help="default: all")
    listing.add_argument("--since", metavar="TIME", help="open or closed later than so long ago")
    listing.add_argument(
        "--limit",
        type=_limit,
        default=DEFAULT_ROWS,
        help=f"at most so many (default {DEFAULT_ROWS})",
    )
    _store_options(listing)
    show = _action(actions, "show", _show, "one with its evidence")
    _one(show)
    _store_options(show)
    acknowledge = _action(actions, "ack", _acknowledge, "say that somebody looks after it")
    _one(acknowledge)
    acknowledge.add_argument("--by", metavar="NAME", help="who (default: the user)")
    acknowledge.add_argument("--note", metavar="TEXT", help="what you found or do")
    add_agent_options(acknowledge)
    bundle = _action(actions, "bundle", _bundle, "one file with all that is known of it")
    _one(bundle)
    bundle.add_argument("--out", metavar="FILE", help="default: incident-ID.zip")
    bundle.add_argument("--force", action="store_true", help="replace a file that is there")
    _store_options(bundle)
    return parser


def _action(actions: Any, name: str, action: Action, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=what, description=what)
    parser.set_defaults(action=action)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _one(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="its number, as `incident list` shows it")


def _store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_ROWS}")
    return int(text)
