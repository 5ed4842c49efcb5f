"""What a baseline may be called: a name that is safe in a path, a page, a table and a log line."""

import re
from typing import Final

from agent.baselines.errors import BaselineRefused
from kvpulse.plain_text import plain_text

MOST_CHARACTERS: Final = 64
ACCEPTED: Final = (
    f"1 to {MOST_CHARACTERS} letters, digits, '.', '_' or '-', beginning with a letter or digit"
)
_FORM: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_CHARACTERS - 1}}}")


def checked_name(name: object) -> str:
    """Return the name.

    Raises:
        BaselineRefused: It is none; the message shows the beginning of it, made printable.
    """
    if not isinstance(name, str) or not _FORM.fullmatch(name):
        raise BaselineRefused(f"name {_shown(name)}: accepted is {ACCEPTED}")
    return name


def _shown(name: object) -> str:
    return repr(plain_text(name, most=80)) if isinstance(name, str) else "missing"
