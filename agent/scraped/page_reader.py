"""Look at an engine's page again and again: its metrics, and once what its models may hold."""

import json
from collections.abc import Callable
from dataclasses import replace

from agent.scraped import sglang, vllm
from agent.scraped.address import PageAddress
from agent.scraped.errors import PageUnreachable
from agent.scraped.exposition import parse_page
from agent.scraped.reading import Reading

Fetch = Callable[[PageAddress], bytes]
MODELS_PATH = "/v1/models"


class PageReader:
    """One page. Keeps what the server said of its models, and asks again after a failure."""

    def __init__(self, address: PageAddress, fetch: Fetch) -> None:
        self.address = address
        self._fetch = fetch
        self._lengths: dict[str, int] | None = None

    def read(self, t_ns: int) -> tuple[Reading, ...]:
        """Return a reading of each engine on the page.

        Raises:
            PageUnreachable, PageUnreadable: There is none; the message says why.
        """
        try:
            samples = parse_page(self._fetch(self.address), self.address.label)
            dialect = sglang if sglang.is_sglang(samples) else vllm
            found = dialect.readings(samples, t_ns=t_ns, label=self.address.label)
        except PageUnreachable:
            self._lengths = None  # who answers next may be another server
            raise
        if self._lengths is None:
            self._lengths = self._model_lengths()
        return tuple(self._with_length(each) for each in found)

    def _with_length(self, reading: Reading) -> Reading:
        length = (self._lengths or {}).get(reading.stated.model or "")
        if length is None:
            return reading
        return replace(reading, stated=replace(reading.stated, max_model_len=length))

    def _model_lengths(self) -> dict[str, int]:
        """Return the longest sequence by model; of a server that does not say, nothing."""
        try:
            said = json.loads(self._fetch(self.address.beside(MODELS_PATH)))
            rows = said["data"]
            found = {str(row["id"]): row.get("max_model_len") for row in rows}
        except (PageUnreachable, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return {}
        lengths = {model: n for model, n in found.items() if isinstance(n, int) and 0 < n < 1 << 40}
        if lengths and len(rows) == 1:
            lengths[""] = next(iter(lengths.values()))
        return lengths
