"""Map what a client calls itself to the tenant name that may be recorded."""

from collections.abc import Collection
from typing import Final

from kvpulse.identity import KeyedHashes

MAX_UNKNOWN: Final = 512
OVERFLOW: Final = "t-others"


class TenantAliases:
    """Configured names pass as their alias; any other becomes `t-` and six digits of a keyed hash.

    A client may send any number of names, and each takes an entry of the journal's string table, so
    that after `MAX_UNKNOWN` different unknown ones the rest share one name.
    """

    def __init__(self, hashes: KeyedHashes, *, configured: Collection[str]) -> None:
        self._hashes = hashes
        self._configured = frozenset(configured)
        self._unknown: set[str] = set()

    def resolve(self, name: str | None) -> str:
        """Return the alias for a client's name, "" if it gave none."""
        if not name:
            return ""
        # A lone surrogate, which JSON can carry, has no UTF-8 form.
        alias = self._hashes.tenant_alias(name.encode("utf-8", "replace").decode())
        if name in self._configured or alias in self._unknown:
            return alias
        if len(self._unknown) >= MAX_UNKNOWN:
            return OVERFLOW
        self._unknown.add(alias)
        return alias
