"""The menu in its order; a new page is one more line here and one module in `views/`."""

from collections.abc import Callable
from typing import Final, NamedTuple

from dashboard.page import Page
from dashboard.views import baselines, block_map, overview, requests, sharing, telemetry, tenants
from dashboard.views.scraped import of_journals


class PageEntry(NamedTuple):
    """One page of the menu."""

    path: str
    title: str
    draw: Callable[[Page], None]


PAGES: Final = (
    PageEntry("overview", "Overview", overview.draw),
    PageEntry("block-map", "Block map", of_journals(block_map.draw, what="which block is whose")),
    PageEntry("requests", "Requests", of_journals(requests.draw, what="single requests")),
    PageEntry("sharing", "Sharing", of_journals(sharing.draw, what="who shares which blocks")),
    PageEntry("tenants", "Tenants", of_journals(tenants.draw, what="tenants")),
    PageEntry("baselines", "Baselines", baselines.draw),
    PageEntry("telemetry", "Telemetry health", telemetry.draw),
)
