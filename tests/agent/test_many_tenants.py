"""More tenants than are told apart: nobody's blocks are booked to another by name."""

from agent.rollups.labelled import OTHER_TENANTS
from tests.agent.factories_ledger import follow
from tests.agent.factories_stream import SECOND, ToyEngine


def test_tenants_beyond_255_are_told_as_one_that_is_none_of_them(tmp_path):
    engine = ToyEngine(tmp_path, total_blocks=400)
    engine.tenants = [engine.recorder.tenant(f"tenant-{i}") for i in range(300)]
    first_id = engine.tenants[0]
    for number in range(300):
        sequence = engine.arrive(number)
        engine.admit(sequence)
        engine.allocate(sequence, 1)
    engine.clock.now_ns += SECOND
    engine.pool()
    for sequence in list(engine.live.values()):
        engine.finish(sequence)
    engine.recorder.close()

    _, stored = follow(engine.recorder.directory)

    told_apart = 255 - first_id
    paid = _by_label(stored, "tenant_block_ns")
    tokens = _by_label(stored, "tenant_tokens")
    names = {f"tenant-{i}" for i in range(told_apart)} | {OTHER_TENANTS}
    assert set(paid) == set(tokens) == names
    assert paid["tenant-0"] == paid[f"tenant-{told_apart - 1}"] == SECOND
    assert paid[OTHER_TENANTS] == (300 - told_apart) * SECOND
    assert tokens[OTHER_TENANTS] == (300 - told_apart) * 107
    assert stored.failures == []


def _by_label(stored, wanted):
    sums = {}
    for (tier, _, family, label), value in stored.labelled.items():
        if family == wanted and tier == 10:
            sums[label] = sums.get(label, 0) + value
    return sums
