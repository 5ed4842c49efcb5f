"""The optional bearer token: read from a private file, compared without telling how far it fits."""

import hmac
from pathlib import Path

from agent.secret_file import read_secret


def read_token(path: Path) -> str:
    """Return the token that a file holds; its text is in no message.

    Raises:
        ConfigError: The file cannot be read, is open to others, or holds no token.
    """
    return read_secret("token_file", path)


def is_authorized(header: str, token: str) -> bool:
    """Whether an Authorization header carries the token, as RFC 6750 section 2.1 has it."""
    scheme, _, given = header.partition(" ")
    matches = hmac.compare_digest(given.strip().encode(), token.encode())
    return matches and scheme.lower() == "bearer"
