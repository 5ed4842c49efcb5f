"""Beams of one request, which run in lockstep and wait, run and end together."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.sequence import Sequence


class Gang:
    """The live beams of one request.

    Attributes:
        root_id: The number that `submit` gave the request.
        members: Live beams, in the order in which they stand in the batch.
    """

    __slots__ = ("members", "root_id")

    def __init__(self, root_id: int, members: "list[Sequence]") -> None:
        self.root_id = root_id
        self.members = members
