"""The address of a metrics page: checked once, and never shown with its credentials."""

import base64
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from agent.errors import ConfigError

ACCEPTED = "an address such as http://127.0.0.1:8000/metrics"
DEFAULT_PATH = "/metrics"


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Where a page is.

    Attributes:
        path: With its query, if any.
        authorization: Value of the header of that name; "" for none.
    """

    scheme: str
    host: str
    port: int | None
    path: str = field(repr=False)  # its query may hold a token
    authorization: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """Return what may stand in messages: neither user, password nor query."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path.split('?')[0]}"

    def beside(self, path: str) -> "PageAddress":
        """Return another page of the same server."""
        return PageAddress(self.scheme, self.host, self.port, path, self.authorization)


def parse_address(text: str, where: str) -> PageAddress:
    """Read an address; a path that is missing is `/metrics`.

    Args:
        where: What it was given as, for the message: a flag, a variable.

    Raises:
        ConfigError: It is not an http or https address. The message holds no credentials.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(where, _without_secrets(text), ACCEPTED) from error
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ConfigError(where, _without_secrets(text), ACCEPTED)
    path = parts.path if parts.path not in ("", "/") else DEFAULT_PATH
    return PageAddress(
        parts.scheme,
        parts.hostname,
        port,
        f"{path}?{parts.query}" if parts.query else path,
        _basic(parts.username, parts.password),
    )


def _basic(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _without_secrets(text: str) -> str:
    """Return a text that is no address without what may be a password in it."""
    head, at, tail = text.rpartition("@")
    return f"…@{tail}".split("?")[0] if at and head else text.split("?")[0]
