"""What can go wrong before a page is drawn.

DashboardError
├── ConfigError   a flag or environment variable
└── StoreMissing  no store to read, or one of another version
"""


class DashboardError(Exception):
    """Base of every error the dashboard raises on purpose."""


class ConfigError(DashboardError):
    """A flag or environment variable holds something that cannot be used."""

    def __init__(self, name: str, found: str, accepted: str) -> None:
        super().__init__(f"{name} is {found!r}; accepted: {accepted}")
        self.name = name
        self.found = found
        self.accepted = accepted


class StoreMissing(DashboardError):
    """There is no store to read where the dashboard was told to look."""
