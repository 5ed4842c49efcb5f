"""What an engine states of its KV groups says how many blocks tokens take and what they weigh."""

import pytest

from agent.kv_groups import StatedGroups
from agent.ledger.delta import RunShape
from agent.ledger.ledger import Ledger
from agent.ledger.state import decode_state, encode_map_of, encode_state
from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.reader import StreamReader
from tests.engine.factories_engine import COST, make_request


def test_tokens_take_a_block_of_each_group_and_of_windowed_ones_only_so_many():
    groups = StatedGroups(total=3, windowed=2, most_windowed_blocks=8)

    assert groups.most_blocks(10, 6, 4) == 4 + 8
    assert groups.most_blocks(4, 4, 4) == 2 + 4
    assert groups.most_blocks(300, 100, 4) == 100 + 8
    assert groups.most_blocks(None, 100, 4) == 0
    assert StatedGroups().most_blocks(300, 100, 4) == 100


def test_a_block_weighs_a_groups_share_of_a_token_in_all_layers():
    assert StatedGroups(total=3).bytes_per_block(600, 4) == 800
    assert StatedGroups(total=3).bytes_per_block(None, 4) is None


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"kv_groups": 3},
        {"kv_groups": "3", "windowed_kv_groups": 2, "most_windowed_blocks": 8},
        {"kv_groups": 0, "windowed_kv_groups": 0, "most_windowed_blocks": 0},
        {"kv_groups": 2, "windowed_kv_groups": 3, "most_windowed_blocks": 8},
        {"kv_groups": 2**60, "windowed_kv_groups": 0, "most_windowed_blocks": 0},
        {"kv_groups": 2, "windowed_kv_groups": 1, "most_windowed_blocks": -1},
        {"kv_groups": 2, "windowed_kv_groups": 1, "most_windowed_blocks": 2**200},
    ],
)
def test_what_cannot_be_is_read_as_one_group_without_a_window(config):
    assert StatedGroups.read(config) == StatedGroups()


def test_a_ledger_knows_how_many_blocks_a_request_of_a_mixed_model_may_still_need(tmp_path):
    clock = VirtualClock()
    engine, recorder = open_engine(
        EngineConfig(total_blocks=60, block_size=4, token_budget=8, max_batch=4),
        SimulatedRunner(clock, cost=COST, group_windows=(None, 6, 6)),
        clock=clock,
        journal=JournalSettings(tmp_path, wall_clock=clock.now_ns),
    )
    engine.submit(make_request(prompt_tokens=60, max_tokens=20))
    engine.step()

    batch = StreamReader(recorder.directory).read()
    ledger = Ledger(RunShape(batch.total_blocks, 0, batch.block_size))
    ledger.apply(batch)

    # 20 blocks without a window, and ceil((6 + 8 - 2) / 4) + 1 in each group with one.
    assert ledger.core.requests.limit_blocks == 20 + 4 + 4
    restored, _ = decode_state(encode_state(ledger.core, {}), encode_map_of(ledger.core))
    assert restored.requests.kv_groups == StatedGroups(3, 2, 8)
    assert restored.requests.limit_blocks == 28
    engine.close()
