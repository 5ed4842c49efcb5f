"""Who gave way, for whom and why: as the server tells it, and as the journal has it."""

import httpx

from engine.policy.victims import Why
from kvpulse.events import Kind
from tests.engine.factories_server_journal import Recorded
from tests.engine.factories_server_states import STATES, in_state

[PREEMPTED] = [state for state in STATES if state.name == "preempted"]


def test_a_victim_is_told_with_the_one_it_gave_way_for_the_reason_and_the_cost(tmp_path):
    with in_state(tmp_path, PREEMPTED) as (server, _):
        told = httpx.get(f"{server.url}/debug/preemptions").json()["preemptions"]

    recorded = Recorded(tmp_path)
    victims = recorded.field(Kind.PREEMPT, "owner")
    beneficiaries = recorded.field(Kind.PREEMPT, "aux")
    assert told
    for number, each in enumerate(told):
        assert (each["victim"], each["beneficiary"]) == (victims[number], beneficiaries[number])
        assert each["why"] in set(Why)
        assert each["mode"] == "recompute"
        assert each["tokens_lost"] > 0
        assert 0 <= each["blocks_kept"] <= each["blocks_freed"]
        assert f"sequence {each['victim']} gave way" in each["in_words"]
        assert each["why"] in each["in_words"]
