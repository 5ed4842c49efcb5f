"""`kvpulse doctor --url`: what is wrong with an engine that is only known by its metrics page."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from agent.reads.models import RunState
from agent.scraped.address import PageAddress
from agent.scraped.errors import PageUnreachable, PageUnreadable
from agent.scraped.page_reader import PageReader
from agent.scraped.reading import Reading
from agent.scraped.window import ScrapedWindow, window_of
from agent.sources.http_page import fetch
from agent.triage.facts import RunFacts, TelemetryFacts
from agent.triage.judge import judge, severity
from agent.triage.scraped import Limits, Scraped, scraped_facts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import Diagnosis

NUM_LOOKS: Final = 5
PAUSE_SECONDS: Final = 3.2
TIMEOUT_SECONDS: Final = 3.5
MOST_SECONDS: Final = 20.0
MOST_VAIN_LOOKS: Final = 2  # at a page that never answered
NO_PAST: Final = "five looks are no past to compare steps and traffic with; an agent keeps one"


@dataclass(frozen=True, slots=True)
class Looks:
    """How a page is looked at; a test brings clocks of its own."""

    fetch: Callable[[PageAddress], bytes] = field(
        default=partial(fetch, timeout_seconds=TIMEOUT_SECONDS)
    )
    wall_ns: Callable[[], int] = field(default=time.time_ns)
    seconds: Callable[[], float] = field(default=time.monotonic)
    sleep: Callable[[float], None] = field(default=time.sleep)


def examine_page(address: PageAddress, limits: Limits, looks: Looks) -> list[Diagnosis]:
    """Look five times within 20 s, and judge every engine of the page; the worst comes first.

    Raises:
        PageUnreachable, PageUnreadable: No look gave anything.
    """
    reader = PageReader(address, looks.fetch)
    found: list[tuple[Reading, ...]] = []
    failure: PageUnreachable | PageUnreadable | None = None
    began = looks.seconds()
    for number in range(NUM_LOOKS):
        looks.sleep(max(0.0, began + number * PAUSE_SECONDS - looks.seconds()))
        # A look may ask for two pages.
        if looks.seconds() - began > MOST_SECONDS - 2 * TIMEOUT_SECONDS:
            break
        try:
            found.append(reader.read(looks.wall_ns()))
            failure = None
        except (PageUnreachable, PageUnreadable) as error:
            failure = error
            if not found and number >= MOST_VAIN_LOOKS - 1:
                break
    if not found and failure is not None:
        raise failure
    names = sorted({each.engine for each in chain.from_iterable(found)})
    ends_ns = looks.wall_ns()
    return sorted((_judge(address, name, found, limits, ends_ns) for name in names), key=severity)


def _judge(
    address: PageAddress,
    name: str,
    found: list[tuple[Reading, ...]],
    limits: Limits,
    ends_ns: int,
) -> Diagnosis:
    window = window_of([each for each in chain.from_iterable(found) if each.engine == name])
    several = len({each.engine for each in chain.from_iterable(found)}) > 1
    label = f"{address.label} engine {name}" if several else address.label
    return judge(
        scraped_facts(
            Scraped(
                window=window,
                run=_run(label, window),
                telemetry=TelemetryFacts(
                    0, 0, commit_age_seconds=_age(window, ends_ns), is_asked=True
                ),
                limits=limits,
                no_past=NO_PAST,
            )
        ),
        # A last look in vain makes whatever is known old.
        Thresholds(stale_seconds=PAUSE_SECONDS),
    )


def _run(label: str, window: ScrapedWindow) -> RunFacts:
    started = window.stated.started_at_seconds
    started_ns = int(window.t_ns[0]) if started is None else int(started * 1e9)
    return RunFacts(label, "", 0, RunState.LIVE, started_ns, int(window.t_ns[-1]))


def _age(window: ScrapedWindow, ends_ns: int) -> float:
    return max(0.0, (ends_ns - int(window.t_ns[-1])) / 1e9)
