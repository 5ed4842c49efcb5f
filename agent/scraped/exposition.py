"""Read a page in Prometheus' text format into plain samples; every page is hostile."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from agent.scraped.errors import PageUnreadable

MOST_SAMPLES: Final = 100_000
LONGEST_LABEL: Final = 256


class Sample(NamedTuple):
    """One number of a page."""

    labels: Mapping[str, str]
    value: float


Samples = Mapping[str, tuple[Sample, ...]]


def parse_page(body: bytes, label: str) -> Samples:
    """Return a page's samples by name, in its order; what is no finite number is left out.

    Args:
        label: The page's name for the message.

    Raises:
        PageUnreadable: It is no page in that format, or has too many samples.
    """
    found: dict[str, list[Sample]] = {}
    number = 0
    try:
        for family in text_string_to_metric_families(body.decode("utf-8")):
            for sample in family.samples:
                number += 1
                if number > MOST_SAMPLES:
                    raise PageUnreadable(label, f"more than {MOST_SAMPLES} samples")
                if math.isfinite(sample.value) and _is_plain(sample.labels):
                    found.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
    except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise PageUnreadable(label, "it is no page in Prometheus' text format") from error
    return {name: tuple(samples) for name, samples in found.items()}


def _is_plain(labels: Mapping[str, str]) -> bool:
    return all(len(value) <= LONGEST_LABEL and value.isprintable() for value in labels.values())
