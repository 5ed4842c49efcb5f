"""Baselines on Postgres: saved, read back, taken names, deleted."""

from dataclasses import replace

import numpy as np
import pytest

from agent.baselines.errors import BaselineExists, BaselineNotFound
from agent.reads.reads import open_reads
from agent.store.baselines import BaselineWriter
from agent.store.connection import parse_address
from agent.store.store import Store
from tests.agent.factories_baselines import series, side
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures


@pytest.mark.postgres
def test_a_baseline_is_the_same_on_postgres(postgres_url):  # noqa: F811
    Store.open(postgres_url).close()
    writer = BaselineWriter.open(parse_address(postgres_url))
    saved = replace(side(series(1, num=100)), label="calm")

    writer.save("calm", saved, saved_at_ns=7)
    with pytest.raises(BaselineExists):
        writer.save("calm", saved, saved_at_ns=8)
    reads = open_reads(postgres_url)
    found = reads.baseline("calm")
    writer.delete("calm")
    with pytest.raises(BaselineNotFound):
        writer.delete("calm")

    assert reads.baselines() == []
    assert (found.row.saved_at_ns, found.row.engine) == (7, "engine-a")
    assert found.side.traffic == saved.traffic
    assert np.array_equal(
        found.side.series.counters["wait_pool_ns"], saved.series.counters["wait_pool_ns"]
    )
    reads.close()
    writer.close()
