"""The agent's settings as others may see them: without passwords, tokens and secret addresses."""

from dataclasses import fields
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent.config import AgentConfig

REMOVED: Final = "(removed)"
# A name with one of these holds what must not leave the machine, whatever it will be called.
SECRET_WORDS: Final = ("token", "secret", "password", "credential", "key", "webhook", "header")
PLAIN: Final = (int, float, bool, type(None))


def shown_settings(config: AgentConfig) -> dict[str, object]:
    """Return every setting; of an address only what it leads to, and no path that may be secret."""
    return {field.name: _shown(field.name, getattr(config, field.name)) for field in fields(config)}


def shown_address(address: str) -> str:
    """Return scheme, host and port of an address, and no more.

    Users, passwords, paths and queries may each be all that protects what it leads to.
    """
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port is not None else ""
        host = parts.hostname or ""
    except ValueError:
        return REMOVED
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}{port}"


def _shown(name: str, value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if any(word in name for word in SECRET_WORDS):
        return REMOVED
    if isinstance(value, str | Path) and "://" in str(value):
        return shown_address(str(value))
    if isinstance(value, tuple | list):
        return [_shown(name, each) for each in value]
    return value if isinstance(value, PLAIN) else str(value)
