"""What the journal holds of requests that came over HTTP, and what it never holds."""

import httpx

from kvpulse.events import ArriveWord, Kind, RejectReason
from tests.engine.factories_server import running_server
from tests.engine.factories_server_journal import Recorded
from tests.waiting import wait_until

PLANTED = "xylophone"
ARGUMENTS = ("--simulated", "--step-ms", "1", "--max-context", "256", "--num-blocks", "32")


def _post(server, body: dict[str, object], **headers: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{server.url}/v1/completions", json=body, headers=headers)


def test_the_asked_max_tokens_is_kept_beside_the_clamped_one(tmp_path):
    with running_server(tmp_path, *ARGUMENTS) as server:
        _post(server, {"prompt": [1] * 200, "max_tokens": 5000})
        _post(server, {"prompt": [1]})

    clamped, unasked = Recorded(tmp_path).words(Kind.ARRIVE)
    assert clamped[ArriveWord.PROMPT_TOKENS] == 200
    assert clamped[ArriveWord.MAX_TOKENS] == 56
    assert clamped[ArriveWord.ASKED_MAX_TOKENS] == 5000
    assert unasked[ArriveWord.MAX_TOKENS] == 16
    assert unasked[ArriveWord.ASKED_MAX_TOKENS] == 0xFFFF_FFFF


def test_a_retry_is_told_apart_and_a_request_id_is_kept_as_a_hash(tmp_path):
    with running_server(tmp_path, *ARGUMENTS) as server:
        for retry in ("0", "3", "many", "99999999999999"):
            headers = {"x_stainless_retry_count": retry, "x_request_id": PLANTED}
            _post(server, {"prompt": [1], "max_tokens": 1}, **headers)
        _post(server, {"prompt": [1], "max_tokens": 1})

    arrivals = Recorded(tmp_path).words(Kind.ARRIVE)
    assert [int(words[ArriveWord.RETRY]) for words in arrivals] == [0, 3, 0, 0, 0]
    hashes = [int(words[ArriveWord.REQUEST_HASH_LOW]) for words in arrivals]
    assert len(set(hashes[:4])) == 1
    assert hashes[0] != 0
    assert hashes[4] == 0


def test_tenants_are_recorded_under_their_alias_or_a_hash(tmp_path):
    arguments = (*ARGUMENTS, "--tenant", "acme-eu=acme", "--tenant", "globex")
    with running_server(tmp_path, *arguments) as server:
        _post(server, {"prompt": [1], "max_tokens": 1}, x_kvpulse_tenant="acme-eu")
        _post(server, {"prompt": [1], "max_tokens": 1, "user": "globex"})
        _post(server, {"prompt": [1], "max_tokens": 1, "user": PLANTED})

    recorded = Recorded(tmp_path)
    acme, globex, unknown = recorded.strings()
    assert (acme, globex) == ("acme", "globex")
    assert unknown.startswith("t-")
    assert len(set(recorded.field(Kind.ARRIVE, "tenant"))) == 3


def test_what_cannot_be_served_is_recorded_as_invalid(tmp_path):
    with running_server(tmp_path, *ARGUMENTS) as server:
        for body in ({"prompt": ""}, {"prompt": [1], "n": 0}, {"model": "other", "prompt": [1]}):
            assert _post(server, body).status_code in (400, 404)
        assert httpx.post(f"{server.url}/v1/completions", content=b"{").status_code == 400

    recorded = Recorded(tmp_path)
    # What is no JSON object never was a request.
    assert recorded.field(Kind.REJECT, "aux") == [RejectReason.INVALID_REQUEST] * 3
    assert recorded.field(Kind.ARRIVE, "owner") == recorded.field(Kind.REJECT, "owner")


def test_a_disconnect_gives_every_block_back_before_the_sequence_ends(tmp_path):
    with running_server(tmp_path, *ARGUMENTS, "--step-ms", "20") as server:
        body = {"prompt": [1] * 40, "max_tokens": 200, "stream": True}
        url = f"{server.url}/v1/completions"
        with httpx.Client() as client, client.stream("POST", url, json=body) as answer:
            next(answer.iter_bytes())
        wait_until(lambda: server.accounts()["cancelled"] == 1)

    recorded = Recorded(tmp_path)
    allocated = sum(recorded.field(Kind.ALLOCATE, "n"))
    assert allocated == sum(recorded.field(Kind.FREE, "n")) >= 3
    assert max(recorded.field(Kind.FREE, "seq")) < recorded.field(Kind.FINISH, "seq")[0]


def test_no_text_and_no_id_is_found_in_journal_or_log(tmp_path, caplog):
    caplog.set_level("DEBUG")
    prompt = f"the {PLANTED} of {PLANTED}"
    with running_server(tmp_path, *ARGUMENTS) as server:
        _post(server, {"prompt": prompt, "user": PLANTED}, x_request_id=PLANTED)
        _post(server, {"prompt": prompt, "model": PLANTED, "stop": [PLANTED]})
        _post(server, {"prompt": prompt, "n": PLANTED, "seed": PLANTED})
        _post(server, {"prompt": [0x51525354] * 80, "max_tokens": 2})

    needles = [PLANTED.encode(), PLANTED.encode("utf-16-le"), b"TSRQTSRQ"]
    files = [path for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        assert not [needle for needle in needles if needle in content]
    ours = [r.getMessage() for r in caplog.records if r.name.startswith(("engine", "uvicorn"))]
    assert not [line for line in ours if PLANTED in line]
