"""`kvpulse db`: bring the store's schema up to date, check it, or bring it under its budget."""

import argparse
import json
import os
from collections.abc import Sequence
from itertools import islice
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from agent.commands.exit_codes import ExitCode
from agent.config import load_config
from agent.errors import StoreTooNew, StoreTooOld, StoreUnreadable
from agent.store.check import check_runs
from agent.store.check_values import Finding
from agent.store.connection import (
    StoreAddress,
    first_line,
    open_for_reading,
    open_for_writing,
    parse_address,
)
from agent.store.keeper import pruned_text
from agent.store.prune import Pruner
from agent.store.retention import Held
from agent.store.revision import HEAD, check_revision, stored_revision, upgrade

MOST_FINDINGS: Final = 100


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse db upgrade|check|prune`."""
    arguments = _parser().parse_args(argv)
    actions = {"upgrade": _upgrade, "check": _check, "prune": _prune}
    return actions[arguments.action](arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvpulse db", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("upgrade", "create the store or apply the revisions it lacks, in one transaction"),
        ("check", "say whether the store can be used, and recount it; exit 1 if not all adds up"),
        ("prune", "delete the oldest detail until the store fits its budget; exit 1 if it cannot"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
        action.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
        action.add_argument("--json", action="store_true", help="print one JSON object")
        if name == "check":
            action.add_argument("--quick", action="store_true", help="look at the revision only")
        if name == "prune":
            action.add_argument(
                "--store-budget", metavar="SIZE", help="such as 500MB; default: the agent's, 8GiB"
            )
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
        findings = [] if problem or arguments.quick else _recount(engine, address)
    finally:
        engine.dispose()
    facts: dict[str, object] = {
        "store": address.label,
        "revision": found,
        "needed": HEAD,
        "usable": not problem,
        "recounted": not problem and not arguments.quick,
        "findings": [finding._asdict() for finding in findings],
    }
    good = f"at {HEAD}" + ("" if arguments.quick else ", everything adds up")
    lines = [f"run {run_key}: {law}: {detail}" for run_key, law, detail in findings]
    text = "\n".join(lines) or f"{address.label}: {good}"
    _print(arguments, problem or text, facts)
    return ExitCode.BAD_ANSWER if problem or findings else ExitCode.GOOD


def _recount(engine: Engine, address: StoreAddress) -> list[Finding]:
    try:
        with engine.connect() as connection:
            return list(islice(check_runs(connection), MOST_FINDINGS))
    except DBAPIError as error:
        raise StoreUnreadable(address.label, first_line(error)) from error


def _prune(arguments: argparse.Namespace) -> int:
    flags = {name: getattr(arguments, name) for name in ("store", "config", "store_budget")}
    config = load_config(flags, os.environ)
    reads = open_for_reading(parse_address(config.store))  # a typing error makes no new store
    try:
        check_revision(reads, parse_address(config.store))
    finally:
        reads.dispose()
    pruner = Pruner(parse_address(config.store))
    try:
        done = pruner.prune(config.store_budget)
    finally:
        pruner.close()
    facts: dict[str, object] = {
        "store": parse_address(config.store).label,
        "budget_bytes": done.budget_bytes,
        "before_bytes": done.before_bytes,
        "after_bytes": done.after_bytes,
        "pinned_bytes": done.pinned_bytes,
        "deleted": {kind.value: done.deleted.get(kind, 0) for kind in Held},
        "within": done.is_within,
        "busy": not done.is_ours,
    }
    _print(arguments, pruned_text(done), facts)
    if not done.is_ours:
        return ExitCode.UNREACHABLE
    return ExitCode.GOOD if done.is_within else ExitCode.BAD_ANSWER


def _store(arguments: argparse.Namespace) -> str:
    flags = {"store": arguments.store, "config": arguments.config}
    return load_config(flags, os.environ).store


def _print(arguments: argparse.Namespace, text: str, facts: dict[str, object]) -> None:
    print(json.dumps(facts) if arguments.json else text)
