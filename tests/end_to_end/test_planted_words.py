"""Words planted in requests to a real server are in no journal, store, page, answer or log."""

import json
import logging
from array import array
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.http.app import create_app
from agent.live_view import LiveView
from agent.store.store import Store
from engine.simulation.simulated_text import SimulatedText
from kvpulse.command import main as kvpulse
from kvpulse.identity import KeyedHashes
from tests.agent.factories_store import empty_store
from tests.agent.stored_bytes import journal_bytes, store_bytes
from tests.engine.factories_server import KEY, RunningServer, running_server
from tests.waiting import wait_until

WORDS = ("Zaphenathpaneah", "dreizehnhundertsieben", "пароль-Персефоны")
PROMPT = " ".join(WORDS) + " and what follows fills more than one block of sixteen tokens. " * 4
API_KEY = "sk-Quetzalcoatl-31337"
TENANT = "Persephone Holdings"
KNOWN_TENANT = "Umbrella Corporation"
REQUEST_ID = "chatcmpl-Hephaistos-77"
ALIAS = "alias-of-the-known-one"
TOKEN_RUN = 3  # shorter runs come by chance


class Haystack:
    """Bytes by the place where they were found."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, bytes]] = []

    def add(self, place: str, pieces: Iterator[bytes]) -> None:
        self.parts += [(place, piece) for piece in pieces]

    def places(self, needle: bytes) -> set[str]:
        return {place for place, piece in self.parts if needle in piece}


def ask(server: RunningServer) -> None:
    """Send the planted words in every place where a client may put some."""
    headers = {"authorization": f"Bearer {API_KEY}", "x-request-id": REQUEST_ID}
    messages = [{"role": "user", "content": PROMPT}]
    for tenant in (TENANT, KNOWN_TENANT):
        named = {**headers, "x-kvpulse-tenant": tenant}
        for path, said in (("completions", {"prompt": PROMPT}), ("chat/completions", {})):
            body = {"model": "simulated", "max_tokens": 24, "messages": messages, **said}
            body = {key: body[key] for key in body if path[:4] == "chat" or key != "messages"}
            url = f"{server.url}/v1/{path}"
            assert httpx.post(url, json=body, headers=named, timeout=60).status_code == 200
    refused = {"model": "simulated", "prompt": PROMPT, "user": TENANT, "max_tokens": -1}
    assert server.post(refused).status_code == 400
    too_long = {"model": "simulated", "prompt": PROMPT * 2_000, "user": TENANT, "max_tokens": 1}
    assert server.post(too_long).status_code == 400


def follow(journal: Path, store: str) -> list[bytes]:
    """Follow the journal in this process; return what the agent answers over HTTP."""
    with Store.open(store) as opened:
        view = LiveView(0, store_label=store, journal=str(journal))
        loop = AgentLoop(AgentConfig(journal=journal, store=store), opened, view)
        while loop.turn(scan=True):
            pass
        client = TestClient(create_app(view), base_url="http://127.0.0.1")
        answers = [client.get(path).content for path in ("/metrics", "/api/status", "/readyz")]
        loop.close()
    return answers


@pytest.fixture(scope="module")
def haystack(tmp_path_factory: pytest.TempPathFactory) -> Haystack:
    folder = tmp_path_factory.mktemp("planted")
    journal, store, found = folder / "journal", empty_store(folder), Haystack()
    log = folder / "log"
    handler = logging.FileHandler(log)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        arguments = ("--simulated", "--tenant", f"{KNOWN_TENANT}={ALIAS}")
        with running_server(folder, *arguments) as server:
            ask(server)
            wait_until(server.is_idle)
            found.add("agent's answers", iter(follow(journal, store)))
            found.add("engine's answers", iter([json.dumps(server.accounts()).encode()]))
        assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0
    finally:
        root.removeHandler(handler)
        handler.close()
        root.setLevel(level)
    found.add("journal", journal_bytes(journal))
    found.add("store", store_bytes(store))
    found.add("log", iter([log.read_bytes()]))
    return found


def test_the_search_finds_what_is_there(haystack: Haystack) -> None:
    hashes = KeyedHashes(KEY, {KNOWN_TENANT: ALIAS})
    request_hash = hashes.request_hash(REQUEST_ID).to_bytes(8, "little")

    assert haystack.places(ALIAS.encode()) == {"agent's answers", "journal", "store"}
    assert haystack.places(hashes.tenant_alias(TENANT).encode()) >= {"journal", "store"}
    assert haystack.places(request_hash) >= {"journal", "store"}
    assert haystack.places(b"following") >= {"log"}


@pytest.mark.parametrize("text", [*WORDS, API_KEY, TENANT, KNOWN_TENANT, REQUEST_ID])
def test_no_planted_text_is_anywhere(haystack: Haystack, text: str) -> None:
    spellings = {text, text.lower(), text.upper(), json.dumps(text)[1:-1]}
    needles = [each.encode(code) for each in spellings for code in ("utf-8", "utf-16-le")]

    assert [haystack.places(needle) for needle in needles if haystack.places(needle)] == []


def test_no_run_of_token_ids_is_anywhere(haystack: Haystack) -> None:
    ids = SimulatedText().encode(PROMPT)
    runs = [ids[at : at + TOKEN_RUN] for at in range(0, len(ids) - TOKEN_RUN, TOKEN_RUN)]
    needles = {array(width, run).tobytes() for run in runs for width in "HIQ"}

    assert len(needles) > 30
    assert [needle for needle in needles if haystack.places(needle)] == []


def test_neither_the_key_nor_what_is_derived_from_it_for_a_tenant_is_anywhere(
    haystack: Haystack,
) -> None:
    hashes = KeyedHashes(KEY)
    secrets = [KEY[:16], *(hashes.tenant_salt(name) for name in (TENANT, KNOWN_TENANT, ""))]

    for secret in secrets:
        assert haystack.places(secret) == haystack.places(secret.hex().encode()) == set()
