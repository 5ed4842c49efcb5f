"""Keyed hashes: how content, request ids and unknown tenants are named without being told.

The key is 32 random bytes in a file of its own, 0600, beside the store and never in journal or
store. Without it the hashes say nothing; two installs hash the same prompt differently. Content
hashes are scoped to a tenant unless the caller asks for none, so that nobody learns from a hash
what somebody else has sent.
"""

import os
import stat
from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

from kvpulse.errors import IdentityKeyError

KEY_BYTES: Final = 32
ALIAS_DIGITS: Final = 6


def load_or_create_key(path: Path) -> bytes:
    """Return the key in `path`, making it on first use.

    Raises:
        IdentityKeyError: The file is readable by others, or no key.
    """
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _create_key(path)
    except OSError as error:
        raise IdentityKeyError(f"cannot make the key file {path}: {error.strerror}") from error
    return load_key(path)


def load_key(path: Path) -> bytes:
    """Return the key in `path`.

    Raises:
        IdentityKeyError: The file is missing, readable by others, or no key.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise IdentityKeyError(f"cannot read the key file {path}: {error.strerror}") from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise IdentityKeyError(f"{path} is no file; name one that holds, or may hold, a key")
        key = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if mode & 0o077:
        raise IdentityKeyError(f"{path} is open to others; run: chmod 600 {path}")
    if len(key) != KEY_BYTES:
        raise IdentityKeyError(
            f"{path} holds {len(key)} bytes instead of {KEY_BYTES}; remove it to get a new key, "
            "which makes new hashes differ from those already stored"
        )
    return key


def _create_key(path: Path) -> None:
    """Put a whole key under its name at once, whoever else is doing the same."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, os.urandom(KEY_BYTES))
        os.fsync(descriptor)
        os.link(draft, path)
    except FileExistsError:
        return  # another process was first: its key is the one
    finally:
        os.close(descriptor)
        os.unlink(draft)


class KeyedHashes:
    """Every keyed hash of one install.

    Args:
        key: From `load_or_create_key`.
        tenants: Configured tenant names and the aliases that may be shown for them.
    """

    __slots__ = ("_chain", "_request", "_tenant", "_tenants")

    def __init__(self, key: bytes, tenants: Mapping[str, str] | None = None) -> None:
        self._chain = blake2b(digest_size=8, key=key, person=b"kvpulse-content")
        self._request = blake2b(digest_size=8, key=key, person=b"kvpulse-request")
        self._tenant = blake2b(digest_size=8, key=key, person=b"kvpulse-tenant")
        self._tenants = dict(tenants or {})

    def chain_hash(self, previous: int, token_ids: Sequence[int], salt: bytes = b"") -> int:
        """Return the 64-bit identity of a full block that follows `previous` (0: the first one).

        Args:
            salt: What the content is scoped to, see `tenant_salt`; empty shares it between all.
        """
        state = self._chain.copy()
        state.update(previous.to_bytes(8, "little") + salt + array("I", token_ids).tobytes())
        return int.from_bytes(state.digest(), "little") or 1

    def chain_hashes(
        self, token_ids: Sequence[int], block_size: int, salt: bytes = b""
    ) -> list[int]:
        """Return the identities of all full blocks of a prompt."""
        hashes = []
        previous = 0
        data = memoryview(array("I", token_ids)).cast("B")
        width = 4 * block_size
        fresh = self._chain.copy
        for at in range(0, len(data) - width + 1, width):
            state = fresh()
            state.update(previous.to_bytes(8, "little") + salt + data[at : at + width])
            previous = int.from_bytes(state.digest(), "little") or 1
            hashes.append(previous)
        return hashes

    def tenant_salt(self, tenant: str) -> bytes:
        """Return the scope of a tenant's content: eight bytes that no other tenant has."""
        return self._digest(self._tenant, b"salt:" + tenant.encode())

    def request_hash(self, request_id: str) -> int:
        """Return the keyed hash of a client's request id; never 0."""
        return int.from_bytes(self._digest(self._request, request_id.encode()), "little") or 1

    def tenant_alias(self, tenant: str) -> str:
        """Return the configured alias, or `t-` and six hash digits for a tenant nobody named."""
        known = self._tenants.get(tenant)
        if known is not None:
            return known
        return "t-" + self._digest(self._tenant, b"name:" + tenant.encode()).hex()[:ALIAS_DIGITS]

    @staticmethod
    def _digest(start: blake2b, data: bytes) -> bytes:
        state = start.copy()
        state.update(data)
        return state.digest()
