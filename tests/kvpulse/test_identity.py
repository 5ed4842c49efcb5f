"""Keyed hashes: equal content in one install, nothing at all without the key."""

import os
import stat
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpulse.errors import IdentityKeyError
from kvpulse.identity import KeyedHashes, load_key, load_or_create_key
from tests.kvpulse.factories_journal import child_environment

KEY = bytes(range(32))
TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=100)


def test_the_key_is_made_once_private_and_random(tmp_path):
    path = tmp_path / "state" / "identity.key"

    key = load_or_create_key(path)

    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create_key(path) == key
    assert load_or_create_key(tmp_path / "other.key") != key
    assert os.listdir(path.parent) == ["identity.key"]


def test_processes_that_make_the_key_at_once_agree(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kvpulse.identity import load_or_create_key;"
        "print(load_or_create_key(Path(sys.argv[1])).hex())"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "key")],
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        for _ in range(4)
    ]

    assert len({process.communicate(timeout=30)[0] for process in processes}) == 1


def test_a_key_open_to_others_is_refused(tmp_path):
    path = tmp_path / "key"
    load_or_create_key(path)
    path.chmod(0o640)

    with pytest.raises(IdentityKeyError, match="chmod 600"):
        load_key(path)


def test_a_short_key_is_refused(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"short")
    path.chmod(0o600)

    with pytest.raises(IdentityKeyError, match="5 bytes instead of 32"):
        load_or_create_key(path)


def test_a_folder_in_the_keys_place_is_named(tmp_path):
    with pytest.raises(IdentityKeyError, match="is no file"):
        load_or_create_key(tmp_path)


def test_a_key_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(IdentityKeyError, match=r"cannot make the key file .*/file/x/key"):
        load_or_create_key(tmp_path / "file" / "x" / "key")


def test_a_missing_key_is_named(tmp_path):
    with pytest.raises(IdentityKeyError, match="No such file"):
        load_key(tmp_path / "key")


@given(tokens=TOKENS, salt=st.binary(max_size=8), block_size=st.sampled_from([1, 8, 16]))
def test_the_chain_of_a_prompt_is_its_blocks_one_by_one(tokens, salt, block_size):
    hashes = KeyedHashes(KEY)
    one_by_one = []
    previous = 0
    for at in range(0, len(tokens) - block_size + 1, block_size):
        previous = hashes.chain_hash(previous, tokens[at : at + block_size], salt)
        one_by_one.append(previous)

    assert hashes.chain_hashes(tokens, block_size, salt) == one_by_one
    assert all(0 < value < 2**64 for value in one_by_one)


def test_a_block_is_another_after_another_prefix():
    hashes = KeyedHashes(KEY)

    left, right = hashes.chain_hashes([1, 2, 9, 9], 2), hashes.chain_hashes([1, 3, 9, 9], 2)

    assert not set(left) & set(right)


def test_two_installs_hash_the_same_prompt_differently():
    prompt = list(range(64))
    one, other = KeyedHashes(KEY), KeyedHashes(bytes(32))

    assert not set(one.chain_hashes(prompt, 16)) & set(other.chain_hashes(prompt, 16))
    assert one.request_hash("req-1") != other.request_hash("req-1")
    assert one.tenant_alias("acme") != other.tenant_alias("acme")


def test_content_is_scoped_to_its_tenant():
    hashes = KeyedHashes(KEY)
    prompt = list(range(32))

    acme = hashes.chain_hashes(prompt, 16, hashes.tenant_salt("acme"))
    beta = hashes.chain_hashes(prompt, 16, hashes.tenant_salt("beta"))

    assert not set(acme) & set(beta)
    assert acme == hashes.chain_hashes(prompt, 16, hashes.tenant_salt("acme"))


def test_a_configured_tenant_has_its_alias_and_another_only_hash_digits():
    hashes = KeyedHashes(KEY, {"customer-4711": "retail"})

    assert hashes.tenant_alias("customer-4711") == "retail"
    alias = hashes.tenant_alias("customer-4712")
    assert alias.startswith("t-")
    assert len(alias) == 8
    assert set(alias[2:]) <= set("0123456789abcdef")
    assert alias == hashes.tenant_alias("customer-4712")


def test_one_block_takes_a_few_microseconds():
    hashes = KeyedHashes(KEY)
    prompt = list(range(16 * 200))

    best = min(timed(hashes, prompt) for _ in range(5))

    assert best / 200 < 20e-6


def timed(hashes: KeyedHashes, prompt: list[int]) -> float:
    started = time.thread_time()
    hashes.chain_hashes(prompt, 16)
    return time.thread_time() - started
