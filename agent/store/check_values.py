"""What a check of the store found."""

from collections.abc import Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    """Something that does not add up."""

    run_key: int
    law: str
    detail: str


def differ(run_key: int, law: str, what: str, found: int, expected: int) -> Iterator[Finding]:
    """Yield a finding if two ways to one number do not meet."""
    if found != expected:
        yield Finding(run_key, law, f"{what}: {found}, expected {expected}")
