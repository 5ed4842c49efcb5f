"""When an engine is shown anew: once a second, for a picture costs about as much as a commit."""

from typing import Final

SHOW_SECONDS: Final = 1.0


class ShowPace:
    """Says when the newest commits of one stream are to be shown. `now` is in monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._due = now + SHOW_SECONDS
        self._was_shown = False
        self._has_news = False

    def note_commit(self) -> None:
        """State that there is something to show."""
        self._has_news = True

    def is_due(self, now: float, *, caught_up: bool) -> bool:
        """Whether to show the news now; the first picture need only have read all that there is."""
        return self._has_news and (now >= self._due or (caught_up and not self._was_shown))

    def note_shown(self, now: float) -> None:
        """State that everything committed so far is shown."""
        self._due = now + SHOW_SECONDS
        self._was_shown, self._has_news = True, False
