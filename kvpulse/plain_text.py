"""What a recorded text may be: printable ASCII, bounded. Writers and readers keep the same rule.

A reader applies it too: a journal may have been damaged or written by somebody else's code, and its
texts end up on terminals, in pages and in labels.
"""

import re
from typing import Final

from kvpulse.events import MAX_STRING_BYTES

MAX_CONFIG_BYTES: Final = 8192

_UNPRINTABLE: Final = re.compile(r"[^ -~]")


def plain_text(text: str, *, most: int = MAX_STRING_BYTES) -> str:
    """Return the first `most` characters, with '?' for everything but printable ASCII."""
    return _UNPRINTABLE.sub("?", text[:most])
