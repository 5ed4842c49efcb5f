"""`kvpulse agent`: follow every engine's journal into one store, and answer scrapers."""

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final

from starlette.types import ASGIApp

from agent.agent_loop import AgentLoop
from agent.baseline_desk import BaselineDesk
from agent.commands.exit_codes import ExitCode
from agent.config import AgentConfig, load_config
from agent.gpu_watch import GpuWatch
from agent.http.access_token import read_token
from agent.http.app import create_app
from agent.http.guard import is_allowed_host
from agent.http.server import HttpServer, start_http_server
from agent.incidents.board import IncidentBoard
from agent.incidents.desk import IncidentDesk
from agent.incidents.watch import IncidentWatch
from agent.ledger.freed_memory import give_back_freed_memory, keep_freed_memory
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.metrics.otlp import OtlpPush
from agent.periodic import Periodic
from agent.reads.reads import open_reads
from agent.scrape_watch import TICK_SECONDS, ScrapeWatch
from agent.sources.nvml import NvmlSource
from agent.store.connection import StoreAddress
from agent.store.gpu_history import GpuHistory
from agent.store.keeper import StoreKeeper
from agent.store.store import Store
from agent.store.upgrade_apart import upgrade_apart
from agent.targets.watch import LOOK_SECONDS, TargetWatch
from agent.webhook.endpoint import Endpoint
from agent.webhook.outbox import StoreOutbox
from agent.webhook.sender import WebhookSender
from agent.webhook.signature import read_key

LOGGER: Final = logging.getLogger("agent")
TRIM_SECONDS: Final = 60.0  # between two times that freed memory goes back
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse agent`."""
    arguments = _parser().parse_args(argv)
    flags = ("journal", "store", "host", "port", "token_file", "log_level", "store_budget")
    names = (*flags, "scrape_seconds", "targets", "webhook_url", "webhook_secret_file", "config")
    given = {name: getattr(arguments, name) for name in names}
    given["scrape"] = None if arguments.scrape is None else ",".join(arguments.scrape)
    config = load_config(given, os.environ)
    token = read_token(config.token_file) if config.token_file else None
    webhook = _webhook(config)
    _log_to_stderr(config.log_level)
    keep_freed_memory()
    if not arguments.once:
        upgrade_apart(config.store)
    with Store.open(config.store) as store:
        view = LiveView(
            time.time_ns(), store_label=store.address.label, journal=str(config.journal)
        )
        loop = AgentLoop(config, store, view)
        keeper = StoreKeeper(
            store.address,
            view,
            budget_bytes=config.store_budget,
            prune_seconds=config.prune_seconds,
        )
        with _stopped_by_signals() as stop:
            if arguments.once:
                code = _drain(loop, config, stop, as_json=arguments.json)
                keeper.prune_once()
                return code
            board = IncidentBoard()
            app = create_app(
                view,
                allowed_hosts=config.allowed_hosts,
                token=token,
                price=config.price,
                baselines=BaselineDesk(config.store),
                incidents=IncidentDesk(config.store, board),
            )
            keeper.start()
            try:
                with _beside(config, view, store.address, board, webhook):
                    return _follow(loop, config, app, stop, as_json=arguments.json)
            finally:
                keeper.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvpulse agent", description=__doc__)
    parser.add_argument("--journal", metavar="DIR", help="folder that engines write to")
    parser.add_argument("--store", metavar="PATH|URL", help="SQLite file or postgresql:// URL")
    parser.add_argument("--host", help="address to answer on (default 127.0.0.1)")
    parser.add_argument("--port", help="port to answer on (default 9464; the next free one)")
    parser.add_argument(
        "--token-file", metavar="FILE", help="private file with the token that clients must send"
    )
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    parser.add_argument(
        "--store-budget", metavar="SIZE", help="the oldest detail goes beyond it (default 8GiB)"
    )
    parser.add_argument(
        "--targets", metavar="TEXT", help="how fast users are to be served, such as 'ttft p99 2s'"
    )
    parser.add_argument(
        "--webhook-url", metavar="URL", help="told when an incident opens and closes (default: off)"
    )
    parser.add_argument(
        "--webhook-secret-file", metavar="FILE", help="private file with the key that signs it"
    )
    parser.add_argument(
        "--scrape",
        metavar="NAME=URL",
        action="append",
        help="also follow an engine by its metrics page (vLLM, SGLang); may be given several times",
    )
    parser.add_argument(
        "--scrape-seconds", metavar="S", help="between two looks at such a page (default 15)"
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
    parser.add_argument(
        "--once", action="store_true", help="store what the journal holds now, then exit"
    )
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    return parser


def _follow(
    loop: AgentLoop, config: AgentConfig, app: ASGIApp, stop: threading.Event, *, as_json: bool
) -> int:
    server = start_http_server(app, host=config.host, port=config.port)
    _say_where(server, config, as_json=as_json)
    try:
        loop.run(stop)
    finally:
        server.stop()
    LOGGER.info("stopped; %d events stored since the start", loop.num_events)
    return ExitCode.UNREACHABLE if loop.store_error else ExitCode.GOOD


def _say_where(server: HttpServer, config: AgentConfig, *, as_json: bool) -> None:
    if config.port and server.port != config.port:
        LOGGER.warning("port %d is taken; answering on %d", config.port, server.port)
    if config.token_file is None and not is_allowed_host(config.host, ()):
        LOGGER.warning("answering beyond this machine (--host %s) without a token", config.host)
    LOGGER.info("%s/metrics, journal %s, store %s", server.url, config.journal, config.store)
    if as_json:
        facts = {"url": server.url, "port": server.port, "pid": os.getpid()}
        print(json.dumps(facts), flush=True)


def _drain(loop: AgentLoop, config: AgentConfig, stop: threading.Event, *, as_json: bool) -> int:
    loop.drain(stop)
    for problem in (*loop.conflicts, *loop.failures.values()):
        print(f"kvpulse agent: {problem}", file=sys.stderr)
    summary = _summary(config, loop.num_events)
    print(json.dumps(summary) if as_json else _in_words(summary))
    if loop.store_error or loop.conflicts or loop.failures:
        return ExitCode.UNREACHABLE
    return ExitCode.GOOD


def _summary(config: AgentConfig, num_events: int) -> dict[str, object]:
    reads = open_reads(config.store)
    try:
        return {
            "events_read": num_events,
            "engines": [
                {
                    "engine": row.engine,
                    "run_id": row.run_id,
                    "state": row.state.value,
                    "events_stored": row.events_stored,
                    "events_lost": row.events_lost,
                    "audits_passed": row.audits_passed,
                    "audits_failed": row.audits_failed,
                    "per_kind": {
                        kind: {"stored": total.stored, "lost": total.lost}
                        for kind, total in reads.totals(row.run_key).items()
                    },
                }
                for row in reads.engines()
            ],
        }
    finally:
        reads.close()


def _in_words(summary: dict[str, object]) -> str:
    lines = [f"{summary['events_read']} events read"]
    engines = summary["engines"]
    assert isinstance(engines, list)
    lines += [
        f"{row['engine']} ({row['state']}): {row['events_stored']} events stored,"
        f" {row['events_lost']} lost; audits {row['audits_passed']} passed,"
        f" {row['audits_failed']} failed"
        for row in engines
    ]
    return "\n".join(lines)


@contextmanager
def _beside(
    config: AgentConfig,
    view: LiveView,
    address: StoreAddress,
    board: IncidentBoard,
    webhook: Endpoint | None,
) -> Iterator[None]:
    """Judge the engines for as long as we follow; look at GPUs and push, where that is wanted."""
    limit = OncePerHour(time.monotonic)
    with ExitStack() as stack:
        for target in config.scrape:
            page = ScrapeWatch(target, config.store, view, seconds=config.scrape_seconds)
            stack.callback(page.close)
            ticks = Periodic(f"scrape-{target.name}", page.tick, pause_seconds=TICK_SECONDS)
            stack.enter_context(ticks)
        listeners = []
        if webhook is not None:
            sender = WebhookSender(
                webhook, view.note_webhook, outbox=StoreOutbox(address), log_limit=limit
            )
            listeners.append(stack.enter_context(sender))
        watch = IncidentWatch(
            config.store,
            view,
            board,
            limit,
            journal=config.journal,
            targets=config.targets,
            listeners=listeners,
        )
        stack.callback(watch.close)
        stack.enter_context(Periodic("memory", give_back_freed_memory, pause_seconds=TRIM_SECONDS))
        stack.enter_context(Periodic("incidents", watch.look, pause_seconds=config.watch_seconds))
        if config.gpus != "off":
            history = GpuHistory(address, limit)
            stack.callback(history.close)
            look = GpuWatch(NvmlSource(), view, limit, history).look
            stack.enter_context(Periodic("gpus", look, pause_seconds=config.gpu_seconds))
        if config.targets:
            targets = TargetWatch(config.store, view, config.targets, limit)
            stack.callback(targets.close)
            stack.enter_context(Periodic("targets", targets.look, pause_seconds=LOOK_SECONDS))
        if config.otlp_endpoint is not None:
            push = OtlpPush(config.otlp_endpoint, view, limit).push
            stack.enter_context(Periodic("otlp", push, pause_seconds=config.otlp_seconds))
        yield


def _webhook(config: AgentConfig) -> Endpoint | None:
    """Return who is told of incidents; None: nobody."""
    if config.webhook_url is None or config.webhook_secret_file is None:
        return None
    return Endpoint(config.webhook_url, read_key(config.webhook_secret_file))


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    stop = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        LOGGER.info("%s: storing what was read, then stopping", signal.Signals(number).name)
        stop.set()

    before = {number: signal.getsignal(number) for number in STOPPING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # `nohup` asked for it
            signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
