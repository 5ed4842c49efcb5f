"""The command-line options for faults, the same for each command that runs an engine."""

import argparse
from pathlib import Path
from typing import Final

from engine.errors import ConfigError
from engine.faults.registry import FAULT_NAMES, read_fault
from engine.faults.spec import FaultSpec

# argparse formats help texts, so that no percent sign may stand in one.
FAULT_HELP: Final = (
    "misbehave on purpose: " + ", ".join(FAULT_NAMES) + "; may be repeated (docs/faults.md)"
)


def fault(text: str) -> FaultSpec:
    """Read the value of a `--fault` option."""
    try:
        return read_fault(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_fault_options(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add `--fault NAME[:key=value,…]` (a list, `fault`) and `--faults-truth FILE`."""
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        type=fault,
        metavar="NAME[:key=value,…]",
        help=FAULT_HELP,
    )
    help_text = "where faults write what they really did, one JSON line each"
    parser.add_argument("--faults-truth", type=Path, metavar="FILE", help=help_text)
