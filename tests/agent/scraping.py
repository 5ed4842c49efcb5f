"""An agent's look at a metrics page, over HTTP, at a clock that moves when a test says so."""

from agent.live_view import LiveView
from agent.scrape_watch import ScrapeClocks, ScrapeWatch
from agent.scraped.target import parse_scrape_targets
from agent.sources.http_page import fetch
from tests.agent.page_server import Served

NS = 1_000_000_000
START = 1_795_999_980  # a whole minute


class Scraping:
    """One page, looked at into one store."""

    def __init__(self, served: Served, store: str, now: list[float]) -> None:
        self.served, self.store, self.now = served, store, now
        self.view = LiveView(START * NS)
        self.watch = ScrapeWatch(
            parse_scrape_targets(f"chat={served.url}", "--scrape")[0],
            store,
            self.view,
            seconds=15.0,
            clocks=ScrapeClocks(
                wall_ns=lambda: int(now[0] * NS),
                seconds=lambda: now[0],
                fetch=lambda address: fetch(address, timeout_seconds=2.0),
            ),
        )

    def look(self, seconds: float = 15.0) -> None:
        self.watch.tick()
        self.now[0] += seconds
