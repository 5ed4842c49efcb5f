"""Laws of the ledger and audits that did not hold: each is one condition, with its times."""

import json
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from kvpulse.events import UNKNOWN_OWNER

MOST_LAWS: Final = 200


@dataclass(frozen=True, slots=True)
class BrokenLaw:
    """One condition, with what its first failed check saw.

    Attributes:
        law: A law's or an audit's name, as in docs/ledger.md.
        closed_at_ns: When it held again; None: it does not, or did not when the run ended.
        expected: One side in words; "" where there are no two sides.
        found: The other side.
        blocks: The first few of the blocks it is about, as far as they are known.
        owners: The first few sequences; `UNKNOWN_OWNER` is one whose end nobody saw.
    """

    law: str
    opened_at_ns: int
    closed_at_ns: int | None
    expected: str
    found: str
    blocks: list[int]
    num_blocks: int
    owners: list[int]
    num_owners: int

    @property
    def sentence(self) -> str:
        """What was found, what was expected, and what it is about."""
        sides = f"{self.found}, expected {self.expected}" if self.expected else self.found
        owners = ["unknown" if owner == UNKNOWN_OWNER else str(owner) for owner in self.owners]
        parts = [f"{self.law}: {sides}"]
        if self.blocks:
            parts.append(_listed("blocks", list(map(str, self.blocks)), self.num_blocks))
        if owners:
            parts.append(_listed("sequences", owners, self.num_owners))
        return "; ".join(parts)


def read_broken_laws(connection: Connection, run_key: int) -> list[BrokenLaw]:
    """Return the conditions of a run: those open first, then the newest first, a bounded number."""
    query = text(
        "SELECT * FROM broken_laws WHERE run_key=:key ORDER BY CASE WHEN closed_at_ns IS NULL"
        " THEN 0 ELSE 1 END, opened_at_ns DESC, law LIMIT :most"
    )
    return [
        BrokenLaw(
            law=row.law,
            opened_at_ns=row.opened_at_ns,
            closed_at_ns=row.closed_at_ns,
            expected=row.expected,
            found=row.found,
            blocks=json.loads(row.blocks),
            num_blocks=row.num_blocks,
            owners=json.loads(row.owners),
            num_owners=row.num_owners,
        )
        for row in connection.execute(query, {"key": run_key, "most": MOST_LAWS})
    ]


def _listed(noun: str, names: list[str], number: int) -> str:
    more = f" and {number - len(names)} more" if number > len(names) else ""
    return f"{noun} {', '.join(names)}{more}"
