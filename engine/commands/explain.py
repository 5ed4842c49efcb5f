"""`kvpulse explain A B`: why the time to first token of one recording is not that of another."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from engine.explain.document import explanation_document, explanation_lines
from engine.explain.errors import CannotBeExplained
from engine.explain.explain import explain
from engine.explain.explanation import Answer
from engine.explain.journal_window import record_journal
from engine.option_types import positive_duration
from kvpulse.errors import KvpulseError
from kvpulse.recording_file import read_recording
from kvpulse.window_recording import WindowRecording

EXIT_GOOD: Final = 0
EXIT_UNREACHABLE: Final = 3
EXIT_UNKNOWN: Final = 4
MOST_SECONDS: Final = 3_600.0


def main(argv: list[str]) -> int:
    """Explain and print."""
    given = _parser().parse_args(argv)
    try:
        recordings = [_recording(path, given.seconds) for path in (given.first, given.second)]
    except OSError as error:
        print(f"kvpulse explain: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_UNREACHABLE
    except (KvpulseError, CannotBeExplained) as error:
        print(f"kvpulse explain: {error}", file=sys.stderr)
        return error.exit_code
    explanation = explain(*recordings, on_progress=_show_progress)
    found = explanation_document(explanation)
    text = explanation_lines(found)
    print(json.dumps({**found, "text": text}) if given.json else "\n".join(text))
    return EXIT_UNKNOWN if explanation.answer is Answer.CANNOT_BE_EXPLAINED else EXIT_GOOD


def _recording(path: Path, seconds: float) -> WindowRecording:
    if path.is_dir():
        return record_journal(path, start_seconds=0, seconds=seconds)
    return read_recording(path)


def _show_progress(done: int, of: int) -> None:
    print(f"replayed {done} of {of} choices of what differs", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse explain",
        description=__doc__,
        epilog="A and B are directories of journals, or files of recordings as `kvpulse baseline"
        " compare --why` makes them. Exit codes: 0 explained, or no change; 2 usage, or no"
        " recording; 3 no such file; 4 it cannot be explained.",
    )
    parser.add_argument("first", metavar="A", type=Path)
    parser.add_argument("second", metavar="B", type=Path)
    help_text = f"how much of a journal's beginning (default and at most {MOST_SECONDS:.0f})"
    parser.add_argument("--seconds", type=_seconds, default=MOST_SECONDS, help=help_text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _seconds(text: str) -> float:
    return min(positive_duration(text), MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
