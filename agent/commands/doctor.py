"""`kvpulse doctor`: what is wrong with the engines, why, and what to do."""

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agent.commands.doctor_url import Looks, examine_page
from agent.commands.exit_codes import ExitCode
from agent.commands.moments import TIME_FORMS, joined, parse_duration, parse_moment
from agent.config import AgentConfig, load_config
from agent.errors import ConfigError, StoreError
from agent.reads.models import EngineRow, RunRow
from agent.reads.reads import Reads, open_reads
from agent.scraped.address import parse_address
from agent.scraped.errors import PageUnreachable, PageUnreadable
from agent.triage.doctor import examine
from agent.triage.gather import Question
from agent.triage.judge import severity
from agent.triage.report import as_json, as_text, unreached
from agent.triage.scraped import Limits
from agent.triage.verdicts import Diagnosis, Verdict

NS: Final = 1_000_000_000
LEAST_SECONDS: Final = 10.0
MOST_SECONDS: Final = 6 * 3_600.0
MOST_LIMIT: Final = 1 << 40


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse doctor`."""
    arguments = _parser().parse_args(joined(list(argv), "--at"))
    if arguments.url is not None:
        return _of_page(arguments, Looks())
    config = load_config(
        {name: getattr(arguments, name) for name in ("store", "targets", "config")}, os.environ
    )
    seconds = _length(arguments.last)
    try:
        found = _examine(config, arguments.engine, arguments.at, seconds)
    except StoreError as error:
        if not arguments.json:
            raise
        print(json.dumps(unreached(str(error))))
        return ExitCode.UNREACHABLE
    if not found:
        return _nobody(config.store, as_document=arguments.json)
    return _say(found, as_document=arguments.json)


def _say(found: Sequence[Diagnosis], *, as_document: bool) -> int:
    if as_document:
        every = [as_json(each) for each in found]
        print(json.dumps({**every[0], "engines": every}))
    else:
        print("\n\n".join(as_text(each) for each in found))
    is_well = all(each.verdict is Verdict.HEALTHY for each in found)
    return ExitCode.GOOD if is_well else ExitCode.BAD_ANSWER


def _of_page(arguments: argparse.Namespace, looks: Looks) -> int:
    """Judge an engine by its metrics page, without agent and store."""
    for name in ("engine", "at", "store"):
        if getattr(arguments, name) is not None:
            raise ConfigError(f"--{name}", getattr(arguments, name), "nothing beside --url")
    address = parse_address(arguments.url, "--url")
    limits = Limits(
        _limit("--max-model-len", arguments.max_model_len),
        _limit("--max-num-seqs", arguments.max_num_seqs),
    )
    try:
        found = examine_page(address, limits, looks)
    except (PageUnreachable, PageUnreadable) as error:
        print(json.dumps(unreached(str(error))) if arguments.json else f"kvpulse doctor: {error}")
        return ExitCode.UNREACHABLE
    return _say(found, as_document=arguments.json)


def _limit(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) < MOST_LIMIT):
        raise ConfigError(flag, text, "a whole number from 1 on, such as 4096")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse doctor",
        description=__doc__,
        epilog="Exit codes: 0 every engine is healthy, 1 one is not, 2 usage, 3 the store or"
        " the page cannot be read. Several engines: the worst first; --json is the worst one's"
        " answer, with all under `engines`. docs/runbook.md has a section for each verdict.",
    )
    parser.add_argument("--engine", help="only this one; default: every engine in the store")
    parser.add_argument(
        "--last", metavar="TIME", default="60s", help="how much time to judge (default 60s)"
    )
    parser.add_argument("--at", metavar="TIME", help=f"{TIME_FORMS}; default: the newest")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="judge a vLLM or SGLang by its metrics page, without agent and store: 5 looks in 20 s",
    )
    parser.add_argument(
        "--max-model-len", metavar="N", help="with --url: tokens that a sequence may have"
    )
    parser.add_argument(
        "--max-num-seqs", metavar="N", help="with --url: sequences that may run at once"
    )
    parser.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
    parser.add_argument(
        "--targets", metavar="TEXT", help="such as 'ttft p99 2s'; default: the agent's"
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _length(text: str) -> float:
    seconds = parse_duration("--last", text) / NS
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ConfigError("--last", text, "from 10s to 6h, such as 60s, 5m, 1h")
    return seconds


def _examine(
    config: AgentConfig, engine: str | None, at: str | None, seconds: float
) -> list[Diagnosis]:
    """Return the diagnosis of every engine that was meant, the worst first."""
    reads = open_reads(config.store)
    try:
        rows = _chosen(reads.engines(), engine)
        found = [
            examine(reads, replace(question, targets=config.targets))
            for row in rows
            for question in _ask(reads, row, at, seconds)
        ]
    finally:
        reads.close()
    return sorted(found, key=severity)


def _chosen(rows: Sequence[EngineRow], name: str | None) -> list[EngineRow]:
    chosen = [row for row in rows if name in (None, row.engine)]
    if name is not None and not chosen:
        names = ", ".join(row.engine for row in rows) or "none yet"
        raise ConfigError("--engine", name, f"one of the store's engines: {names}")
    return chosen


def _ask(reads: Reads, row: EngineRow, at: str | None, seconds: float) -> list[Question]:
    """Return the question about an engine; none where it had not begun by then."""
    runs: list[RunRow] = reads.runs(row.engine)
    newest = next(run for run in runs if run.run_key == row.run_key)
    if at is None:
        return [Question(newest, seconds=seconds, now_ns=time.time_ns())]
    end_ns = parse_moment("--at", at, newest_ns=newest.last_event_at_ns or 0)
    begun = (run for run in runs if run.started_at_ns < end_ns)
    return [Question(run, seconds=seconds, end_ns=end_ns) for run in [next(begun, None)] if run]


def _nobody(store: str, *, as_document: bool) -> int:
    """Say that there is nobody to judge: nothing was reached that could be."""
    why = f"no engine is in {store} at that time; start one, and an agent that follows its journal"
    print(json.dumps(unreached(why)) if as_document else f"kvpulse doctor: {why}")
    return ExitCode.UNREACHABLE
