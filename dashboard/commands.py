"""`kvpulse dashboard`: serve the pages over one store, on loopback unless told otherwise."""

import argparse
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from dashboard.config import (
    AGENT_VARIABLE,
    CURRENCY_VARIABLE,
    PRICE_VARIABLE,
    STORE_VARIABLE,
    TARGETS_VARIABLE,
    TOKEN_FILE_VARIABLE,
    read_config,
    read_price,
)
from dashboard.errors import ConfigError
from dashboard.theme import server_options

PORTS_TRIED = 50


def build_parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    parser = argparse.ArgumentParser(
        prog="kvpulse dashboard",
        description="Show what an agent stored: verdict, block map, requests, baselines.",
    )
    parser.add_argument(
        "--store",
        metavar="PATH_OR_URL",
        help="SQLite file or SQLAlchemy URL (default: the agent's own default)",
    )
    parser.add_argument("--port", type=_port, default=8501, help="first port to try (default 8501)")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    parser.add_argument(
        "--agent",
        metavar="URL",
        help="the agent that saves, compares and acknowledges (default http://127.0.0.1:9464)",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="private file with the token that the agent wants"
    )
    parser.add_argument(
        "--targets", metavar="TEXT", help="the agent's targets, such as 'ttft p99 2s'"
    )
    parser.add_argument(
        "--price-per-hour",
        metavar="NUMBER",
        help="what this engine's hardware costs per hour; needed for cost per request",
    )
    parser.add_argument("--currency", metavar="CODE", help="currency of that price (default USD)")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; they go from 1 to 65535")
    return int(text)


class ClaimedPort(NamedTuple):
    """A free port, and what keeps other dashboards from it until Streamlit listens there."""

    port: int
    claim: socket.socket


def claim_port(host: str, first: int) -> ClaimedPort | None:
    """Return the first port from `first` on that can be bound and no other dashboard has claimed.

    Streamlit binds it a moment later and gives up if it is taken by then: two that start at once
    must not both choose it. The claim is a name that ends with the process.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(first, min(first + PORTS_TRIED, 65_536)):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            if sys.platform == "linux":
                claim.bind(f"\0kvpulse-dashboard-{port}")
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError:
            claim.close()
            continue
        return ClaimedPort(port, claim)
    return None


def put_settings(options: argparse.Namespace) -> None:
    """Hand the flags to the page script, which reads the environment."""
    given = {
        STORE_VARIABLE: options.store,
        AGENT_VARIABLE: options.agent,
        TOKEN_FILE_VARIABLE: options.token_file,
        TARGETS_VARIABLE: options.targets,
        PRICE_VARIABLE: options.price_per_hour,
        CURRENCY_VARIABLE: options.currency,
    }
    os.environ.update({name: value for name, value in given.items() if value})


def main(argv: list[str]) -> int:
    """Serve until interrupted; 2 for a bad option, 3 when no port is free or a part is missing."""
    options = build_parser().parse_args(argv)
    try:
        read_price("--price-per-hour", options.price_per_hour)
        put_settings(options)
        config = read_config()
    except ConfigError as error:
        print(f"kvpulse dashboard: {error}", file=sys.stderr)
        return 2
    if find_spec("streamlit") is None:
        print(
            "kvpulse dashboard needs Streamlit: pip install 'kvpulse-app[dashboard]'",
            file=sys.stderr,
        )
        return 3
    claimed = claim_port(options.host, options.port)
    if claimed is None:
        print(f"no free port on {options.host} from {options.port} on", file=sys.stderr)
        return 3
    port = claimed.port
    if port != options.port:
        print(f"port {options.port} is taken; using {port}", flush=True)
    shown = "localhost" if options.host == "127.0.0.1" else options.host
    print(f"dashboard: http://{shown}:{port}  (store: {hide_password(config.store)})", flush=True)
    with claimed.claim:
        serve(options.host, port)
    return 0


def hide_password(store: str) -> str:
    """Return a store's address without the password that a URL may carry."""
    scheme, separator, rest = store.partition("://")
    credentials, at, place = rest.rpartition("@")
    if not at:
        return store
    user = credentials.partition(":")[0]
    return f"{scheme}{separator}{user}:***@{place}"


def serve(host: str, port: int) -> None:
    """Run Streamlit in this process until it is told to stop."""
    from streamlit.web import bootstrap

    script = str(Path(__file__).with_name("app.py"))
    flags = server_options(host=host, port=port)
    bootstrap.load_config_options(flags)
    bootstrap.run(script, False, [], flags)
