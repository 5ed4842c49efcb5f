"""Secrets are read from private files: command lines and environments are shown by `ps`."""

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


def read_secret(setting: str, path: Path) -> str:
    """Return the one line that a file holds; its text is in no message.

    Args:
        setting: What names the file in the configuration, for messages.

    Raises:
        ConfigError: The file cannot be read, is open to others, or holds no such line.
    """
    where = f"{setting} {path}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(where, error.strerror or str(error), ACCEPTED) from error
    try:
        mode = os.fstat(descriptor).st_mode
        content = os.read(descriptor, MOST_CHARACTERS + 2) if stat.S_ISREG(mode) else b""
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(mode):
        raise ConfigError(where, "no regular file", ACCEPTED)
    if mode & 0o077:
        raise ConfigError(where, f"mode {stat.S_IMODE(mode):04o}, open to others", ACCEPTED)
    secret = content.removesuffix(b"\n")
    if not FEWEST_CHARACTERS <= len(secret) <= MOST_CHARACTERS:
        raise ConfigError(where, f"{len(secret)} bytes", ACCEPTED)
    if not all(0x21 <= byte <= 0x7E for byte in secret):
        raise ConfigError(where, "characters that no header may carry", ACCEPTED)
    return secret.decode("ascii")
