"""What the pool of host blocks states: the same acts, marked as the host's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class HostRecording:
    """A Recorder as the host pool sees it. Host blocks keep no content, so nothing is cached."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def allocate(self, owner: int, ids: Sequence[int], tenant: int) -> None:
        """State that `owner` took free host blocks."""
        self._recorder.allocate(owner, ids, tenant, True)

    def share(self, owner: int, ids: Sequence[int], count: int, tenant: int) -> None:
        """State that `owner` took one more reference to each host block."""
        self._recorder.share(owner, ids, count, tenant, True)

    def free(self, owner: int, ids: Sequence[int], count: int, outcome: int, tenant: int) -> None:
        """State that `owner` dropped one reference to each host block."""
        self._recorder.free(owner, ids, count, outcome, tenant, True)
