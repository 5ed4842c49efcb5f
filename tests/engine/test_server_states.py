"""A client that leaves, or a server that ends, gives every block back: in whatever state."""

import pytest

from kvpulse.events import FinishReason, Kind
from tests.engine.factories_server_journal import Recorded
from tests.engine.factories_server_states import STATES, in_state, references_left
from tests.waiting import wait_until

each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)


def _begun(recorded: Recorded) -> int:
    return len(recorded.field(Kind.ARRIVE, "n")) + len(recorded.field(Kind.FORK, "n"))


@each_state
def test_leaving_gives_every_block_back_and_nobody_else_is_ended(tmp_path, state):
    with in_state(tmp_path, state) as (server, pending):
        pending.leave()
        wait_until(lambda: server.accounts()["cancelled"] > 0)
        server.check()
        if state.before:  # the one that held the room goes on
            wait_until(lambda: server.state() == (1, 0))
        else:
            assert server.is_idle()

    recorded = Recorded(tmp_path)
    assert references_left(tmp_path) == {"gpu": 0, "host": 0}
    assert recorded.field(Kind.FINISH, "aux") == [FinishReason.CANCELLED] * _begun(recorded)
    assert server.served.engine.accounts().active_blocks == 0


@each_state
def test_the_servers_end_gives_every_block_back_and_tells_who_waits(tmp_path, state):
    with in_state(tmp_path, state, "--drain-seconds", "0.05") as (server, pending):
        server.stop()
        answer = pending.begun()
        body = answer.read()

    if state.begun:
        assert answer.status == 200
        assert b'"code":503' in body
        assert body.endswith(b"data: [DONE]\n\n")
    else:
        assert answer.status == 503
        assert answer.headers["x-kvpulse-reason"] == "shutting_down"
        assert int(answer.headers["retry-after"]) >= 1
    engine = server.served.engine
    engine.check()  # its thread has ended
    assert engine.accounts().active_blocks == 0
    assert references_left(tmp_path) == {"gpu": 0, "host": 0}
    recorded = Recorded(tmp_path)
    assert recorded.field(Kind.FINISH, "aux") == [FinishReason.CANCELLED] * _begun(recorded)
