"""Tells of incidents and takes acknowledgements, for whoever asks the agent."""

import time
from collections.abc import Callable
from typing import Final

from agent.errors import IncidentRefused
from agent.incidents.board import IncidentBoard
from agent.reads.incidents import IncidentFilter, IncidentRow, StoredIncident
from agent.store.incidents import Acknowledgement, IncidentWriter
from agent.store_desk import StoreDesk

MOST_NAME_CHARACTERS: Final = 100
MOST_NOTE_CHARACTERS: Final = 1_000
MOST_KEY: Final = (1 << 63) - 1


class IncidentDesk(StoreDesk[IncidentWriter]):
    """See the module; it opens the store when it is first asked. May be used from threads."""

    def __init__(
        self,
        store: str,
        board: IncidentBoard | None = None,
        *,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.board = board or IncidentBoard()  # what the metrics say
        super().__init__(store, IncidentWriter.open)
        self._wall_clock = wall_clock

    def rows(self, wanted: IncidentFilter) -> list[IncidentRow]:
        """Return incidents, the open ones first."""
        return self._open_reads().incidents(wanted)

    def show(self, key: int) -> StoredIncident:
        """Return one incident with its evidence."""
        return self._open_reads().incident(checked_key(key))

    def acknowledge(self, key: int, *, by: object, note: object) -> StoredIncident:
        """Note who has seen an incident; return it as it is then.

        Raises:
            IncidentRefused, IncidentNotFound, StoreError: The text says what to do.
        """
        said = Acknowledgement(
            _text("by", by, MOST_NAME_CHARACTERS, may_be_empty=False),
            self._wall_clock(),
            _text("note", "" if note is None else note, MOST_NOTE_CHARACTERS, may_be_empty=True),
        )
        self._open_writer().acknowledge(checked_key(key), said)
        return self._open_reads().incident(key)


def checked_key(key: object) -> int:
    """Return an incident's number.

    Raises:
        IncidentRefused: It is none.
    """
    if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) <= 19:
        key = int(key)
    if isinstance(key, int) and not isinstance(key, bool) and 1 <= key <= MOST_KEY:
        return key
    raise IncidentRefused("an incident is named by its number, such as 12")


def _text(name: str, said: object, most: int, *, may_be_empty: bool) -> str:
    text = said.strip() if isinstance(said, str) else None
    if text is None or len(text) > most or not (text or may_be_empty):
        raise IncidentRefused(f"{name}: accepted is a text of at most {most} characters")
    # People's own language is kept; what steers a terminal or turns the reading order is not.
    return "".join(letter if letter.isprintable() else " " for letter in text)
