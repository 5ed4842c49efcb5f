"""`kvpulse db`: bring the store's schema up to date, or say which revision it is at."""

import argparse
import json
import os
from collections.abc import Sequence

from agent.commands.exit_codes import ExitCode
from agent.config import load_config
from agent.errors import StoreTooNew, StoreTooOld
from agent.store_connection import open_for_reading, open_for_writing, parse_address
from agent.store_revision import HEAD, check_revision, stored_revision, upgrade


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse db upgrade|check`."""
    arguments = _parser().parse_args(argv)
    return _upgrade(arguments) if arguments.action == "upgrade" else _check(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvpulse db", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("upgrade", "create the store or apply the revisions it lacks, in one transaction"),
        ("check", "say whether this kvpulse can use the store; exit 1 if not"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
        action.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
        action.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _upgrade(arguments: argparse.Namespace) -> int:
    address = parse_address(_store(arguments))
    engine = open_for_writing(address)
    try:
        before = upgrade(engine, address)
    finally:
        engine.dispose()
    changed = before != HEAD
    text = f"{address.label}: {before or 'empty'} → {HEAD}" if changed else f"already at {HEAD}"
    _print(arguments, text, {"store": address.label, "before": before, "revision": HEAD})
    return ExitCode.GOOD


def _check(arguments: argparse.Namespace) -> int:
    address = parse_address(_store(arguments))
    engine = open_for_reading(address)
    try:
        with engine.connect() as connection:
            found = stored_revision(connection)
        problem = None
        try:
            check_revision(engine, address)
        except (StoreTooNew, StoreTooOld) as error:
            problem = str(error)
    finally:
        engine.dispose()
    facts: dict[str, object] = {
        "store": address.label,
        "revision": found,
        "needed": HEAD,
        "usable": not problem,
    }
    _print(arguments, problem or f"{address.label}: at {HEAD}, good", facts)
    return ExitCode.BAD_ANSWER if problem else ExitCode.GOOD


def _store(arguments: argparse.Namespace) -> str:
    flags = {"store": arguments.store, "config": arguments.config}
    return load_config(flags, os.environ).store


def _print(arguments: argparse.Namespace, text: str, facts: dict[str, object]) -> None:
    print(json.dumps(facts) if arguments.json else text)
