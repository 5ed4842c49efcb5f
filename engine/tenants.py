"""Numbers for tenants' aliases."""

from typing import TYPE_CHECKING

from engine.accounts import Tally

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class TenantBook:
    """Gives each alias the number that events carry; the Recorder's, where there is one."""

    def __init__(self, tally: Tally, *, recorder: "Recorder | None" = None) -> None:
        self._tally = tally
        self._recorder = recorder
        self._ids: dict[str, int] = {"": 0}
        self._numbers = {0}

    def id_of(self, alias: str) -> int:
        """Return the alias's number, a new one on first use."""
        known = self._ids.get(alias)
        if known is not None:
            return known
        tenant = len(self._ids) if self._recorder is None else self._recorder.tenant(alias)
        self._ids[alias] = tenant
        if tenant not in self._numbers:  # two aliases that print alike share a number
            self._numbers.add(tenant)
            self._tally.defines += 1
        return tenant
