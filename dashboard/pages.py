"""The menu in its order; a new page is one more line here and one module in `views/`."""

from collections.abc import Callable
from typing import Final, NamedTuple

from dashboard.page import Page
from dashboard.views import (
    baselines,
    block_map,
    incidents,
    overview,
    requests,
    sharing,
    telemetry,
    tenants,
)


class PageEntry(NamedTuple):
    """One page of the menu."""

    path: str
    title: str
    draw: Callable[[Page], None]


PAGES: Final = (
    PageEntry("overview", "Overview", overview.draw),
    PageEntry("incidents", "Incidents", incidents.draw),
    PageEntry("block-map", "Block map", block_map.draw),
    PageEntry("requests", "Requests", requests.draw),
    PageEntry("sharing", "Sharing", sharing.draw),
    PageEntry("tenants", "Tenants", tenants.draw),
    PageEntry("baselines", "Baselines", baselines.draw),
    PageEntry("telemetry", "Telemetry health", telemetry.draw),
)
