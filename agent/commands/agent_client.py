"""The options that say where the agent is, for the commands that ask it."""

import argparse
import os

from agent.api_client import AGENT_VARIABLE, AgentClient, checked_url
from agent.config import load_config
from agent.http.access_token import read_token

__all__ = ["AgentClient", "add_agent_options", "client_of"]


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the agent is."""
    parser.add_argument(
        "--agent", metavar="URL", help=f"default: {AGENT_VARIABLE}, else this machine's agent"
    )
    parser.add_argument("--token-file", metavar="FILE", help="the agent's token, if it wants one")
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")


def client_of(arguments: argparse.Namespace) -> AgentClient:
    """Return a client for what the options say.

    Raises:
        ConfigError: The address or the token file cannot be used.
    """
    flags = {"token_file": arguments.token_file, "config": arguments.config}
    config = load_config(flags, os.environ)
    url = arguments.agent or os.environ.get(AGENT_VARIABLE) or f"http://127.0.0.1:{config.port}"
    return AgentClient(
        checked_url(url), read_token(config.token_file) if config.token_file else None
    )
