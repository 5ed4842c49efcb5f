"""The optional bearer token: read from a private file, compared without telling how far it fits."""

import hmac
import os
import stat
from pathlib import Path
from typing import Final

from agent.errors import ConfigError

FEWEST_CHARACTERS: Final = 16
MOST_CHARACTERS: Final = 1024
ACCEPTED: Final = (
    f"a regular file of mode 0600 with one line of {FEWEST_CHARACTERS} to {MOST_CHARACTERS} "
    "printable ASCII characters without spaces, such as `openssl rand -hex 32` prints"
)


def read_token(path: Path) -> str:
    """Return the token that a file holds; its text is in no message.

    Raises:
        ConfigError: The file cannot be read, is open to others, or holds no token.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    try:
        mode = os.fstat(descriptor).st_mode
        content = os.read(descriptor, MOST_CHARACTERS + 2) if stat.S_ISREG(mode) else b""
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(mode):
        raise _refused(path, "no regular file")
    if mode & 0o077:
        raise _refused(path, f"mode {stat.S_IMODE(mode):04o}, open to others")
    token = content.removesuffix(b"\n")
    if not FEWEST_CHARACTERS <= len(token) <= MOST_CHARACTERS:
        raise _refused(path, f"{len(token)} bytes")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise _refused(path, "characters that no header may carry")
    return token.decode("ascii")


def is_authorized(header: str, token: str) -> bool:
    """Whether an Authorization header carries the token, as RFC 6750 section 2.1 has it."""
    scheme, _, given = header.partition(" ")
    matches = hmac.compare_digest(given.strip().encode(), token.encode())
    return matches and scheme.lower() == "bearer"


def _refused(path: Path, found: str) -> ConfigError:
    return ConfigError(f"token_file {path}", found, ACCEPTED)
