"""Many clients at once that ask for anything and leave at any moment: the books still balance."""

import contextlib
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from kvpulse.events import RejectReason
from tests.engine.factories_ledger import PlainLedger
from tests.engine.factories_server import Pending, RunningServer, running_server
from tests.engine.factories_server_states import references_left
from tests.waiting import wait_until

SEED = 20261130
NUM_REQUESTS = 160
NUM_CLIENTS = 12
ARGUMENTS = (
    *("--simulated", "--step-ms", "1", "--block-size", "4", "--num-blocks", "48"),
    *("--max-context", "160", "--max-batch", "6", "--max-queue", "9", "--token-budget", "64"),
    *("--host-blocks", "40", "--preemption", "auto", "--swap-min-tokens", "16"),
    *("--high-watermark", "0.95", "--queue-timeout-seconds", "0.5"),
    *("--tier", "batch:max-queue=3,watermark=0.2", "--fairness-ms-per-token", "1"),
    *("--tenant-quota", "acme:ceiling=30,floor=8,weight=2", "--tenant-quota", "globex:ceiling=20"),
)


@dataclass(frozen=True)
class Fate:
    """What a client asks, and after how long it leaves; None reads to the end."""

    body: dict[str, object]
    headers: dict[str, str]
    leaves_after_seconds: float | None


def _fate(draw: random.Random) -> Fate:
    body: dict[str, object] = {
        "prompt": [draw.randrange(3)] * draw.randint(1, 36),
        "max_tokens": draw.randint(1, 36),
        "priority": draw.randint(-2, 2),
        "service_tier": draw.choice(("default", "default", "flex")),
        "user": draw.choice(("acme", "globex", "somebody")),
    }
    body |= draw.choice(
        (
            {},
            {"stream": True},
            {"n": 3, "stream": True},
            {"n": 2, "best_of": 4},
            {"n": 2, "use_beam_search": True, "beam_width": 3},
            {"n": 2, "stop": " cache"},
        )
    )
    headers = draw.choice(({}, {}, {"x_kvpulse_timeout_ms": str(draw.randint(20, 200))}))
    # Not a wait for anything: the moment itself is what is drawn.
    leaves = draw.choice((None, None, draw.uniform(0, 0.1)))
    return Fate(body, headers, leaves)


def _live(server: RunningServer, fate: Fate) -> str:
    """Send a request and return how it ended: a status, or a reason."""
    with Pending(server, fate.body, **fate.headers) as pending:
        if fate.leaves_after_seconds is not None:
            pending.socket.settimeout(fate.leaves_after_seconds)
            with contextlib.suppress(TimeoutError):
                pending.begun().read()
            return "left"
        answer = pending.begun()
        content = answer.read()
        if answer.status != 200:
            assert set(json.loads(content)["error"]) == {"message", "type", "param", "code"}
            return str(answer.headers["x-kvpulse-reason"])
        return "broken" if b'"error":' in content else "whole"


@pytest.mark.parametrize("index", ["hash", "radix"])
def test_whatever_clients_do_every_block_comes_back_and_every_request_has_one_end(tmp_path, index):
    print("seed", SEED)
    draw = random.Random(SEED)
    fates = [_fate(draw) for _ in range(NUM_REQUESTS)]
    with (
        running_server(tmp_path, *ARGUMENTS, "--prefix-index", index) as server,
        ThreadPoolExecutor(NUM_CLIENTS) as clients,
    ):
        ends = Counter(clients.map(lambda fate: _live(server, fate), fates))
        wait_until(server.is_idle)
        server.check()
        accounts = server.accounts()

    assert accounts["requests"] + ends["left"] >= NUM_REQUESTS  # who leaves at once never arrives
    assert ends["whole"] > 20
    for reason, count in ends.items():
        if reason.upper() in RejectReason.__members__:
            told = accounts["rejected_by_reason"].get(reason, 0)
            timed_out = accounts["finished_by_reason"].get("timeout", 0)
            assert count <= told + (timed_out if reason == "deadline" else 0)
    assert sum(accounts["finished_by_reason"].values()) == (
        accounts["requests"] + accounts["per_kind"]["fork"]
    )
    assert references_left(tmp_path) == {"gpu": 0, "host": 0}
    (stream,) = (tmp_path / "journal").glob("engine/*")
    ledger = PlainLedger(in_order=False).read(stream)
    assert not ledger.host
    assert not any(ledger.tables.values())
