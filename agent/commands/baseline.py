"""`kvpulse baseline`: save how an engine does, and hold it against how it did.

All goes through the running agent, which alone writes the store.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from agent.baselines.text import baseline_lines, comparison_lines, list_lines
from agent.baselines.why import with_why
from agent.commands.agent_client import AgentClient, add_agent_options, client_of
from agent.commands.exit_codes import ExitCode
from agent.commands.explaining import explain_comparison
from agent.duration import ACCEPTED, parse_seconds

DEFAULT_LAST: Final = "4h"
EXIT_OF: Final = {
    "better": ExitCode.GOOD,
    "same": ExitCode.GOOD,
    "worse": ExitCode.BAD_ANSWER,
    "unknown": ExitCode.UNKNOWN,
}
Action = Callable[[AgentClient, argparse.Namespace], int]


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse baseline`."""
    arguments = _parser().parse_args(argv)
    action: Action = arguments.action
    return action(client_of(arguments), arguments)


def _save(client: AgentClient, arguments: argparse.Namespace) -> int:
    body = {
        "name": arguments.name,
        "engine": arguments.engine,
        "last_seconds": arguments.last,
    }
    saved: dict[str, Any] = client.post("api", "baselines", body=body)
    _print(arguments, saved, lambda: ["saved", *baseline_lines(saved)])
    return ExitCode.GOOD


def _list(client: AgentClient, arguments: argparse.Namespace) -> int:
    found: dict[str, Any] = client.get("api", "baselines")
    _print(arguments, found, lambda: list_lines(found["baselines"]))
    return ExitCode.GOOD


def _show(client: AgentClient, arguments: argparse.Namespace) -> int:
    found: dict[str, Any] = client.get("api", "baselines", arguments.name)
    _print(arguments, found, lambda: baseline_lines(found))
    return ExitCode.GOOD


def _delete(client: AgentClient, arguments: argparse.Namespace) -> int:
    done: dict[str, Any] = client.delete("api", "baselines", arguments.name)
    _print(arguments, done, lambda: [f"deleted {done['deleted']}"])
    return ExitCode.GOOD


def _compare(client: AgentClient, arguments: argparse.Namespace) -> int:
    found: dict[str, Any] = client.get(
        "api",
        "comparison",
        first=arguments.first,
        second=arguments.second,
        last_seconds=arguments.last,
        engine=arguments.engine,
    )
    if arguments.why:
        found = with_why(found, explain_comparison(client, found))
    _print(arguments, found, lambda: comparison_lines(found))
    return EXIT_OF[found["answer"]]


def _print(
    arguments: argparse.Namespace, document: dict[str, Any], lines: Callable[[], list[str]]
) -> None:
    print(json.dumps(document) if arguments.json else "\n".join(lines()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse baseline",
        description=__doc__,
        epilog="Exit codes: 0 good (compare: better or same), 1 worse, 2 usage, 3 no answer from "
        "the agent or its store, 4 unknown.",
    )
    actions = parser.add_subparsers(dest="what", required=True, metavar="ACTION")
    save = _action(actions, "save", _save, "save an engine's newest hours under a name")
    save.add_argument("name", metavar="NAME")
    _window(save)
    _action(actions, "list", _list, "what is saved")
    show = _action(actions, "show", _show, "one baseline: figures, traffic, configuration")
    show.add_argument("name", metavar="NAME")
    delete = _action(actions, "delete", _delete, "delete a baseline")
    delete.add_argument("name", metavar="NAME")
    compare = _action(
        actions,
        "compare",
        _compare,
        "hold B, or the newest hours, against A; without A, against the same hours last week",
    )
    compare.add_argument("first", metavar="A", nargs="?")
    compare.add_argument("second", metavar="B", nargs="?")
    _window(compare)
    help_text = "replay both sides in the simulator: which of what differs makes the difference"
    compare.add_argument("--why", action="store_true", help=help_text)
    return parser


def _action(actions: Any, name: str, action: Action, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=what, description=what)
    parser.set_defaults(action=action)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_agent_options(parser)
    return parser


def _window(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--last",
        type=_duration,
        default=parse_seconds(DEFAULT_LAST),
        help=f"how long (default {DEFAULT_LAST})",
    )
    parser.add_argument("--engine", help="needed where the store holds more than one")


def _duration(text: str) -> float:
    seconds = parse_seconds(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {ACCEPTED}")
    return seconds
