"""Content identity of blocks: keyed chain hashes of tokens, or what a simulation brings along."""

import os
from array import array
from collections.abc import Callable
from collections.abc import Sequence as Seq
from hashlib import blake2b
from typing import Final

from engine.sequence import Sequence
from kvpulse.events import U64_MASK

NO_PARENT: Final = 0

# (hash of the block before, its tokens, whose content it is) to the block's hash.
ChainHash = Callable[[int, Seq[int], str], int]


class TokenBlockHasher:
    """Hashes each full block over its tokens and everything before, within one tenant.

    Tenant by tenant, so that nobody can find out by timing what somebody else has sent.
    """

    def __init__(self, chain_hash: ChainHash, *, block_size: int) -> None:
        self._chain_hash = chain_hash
        self._block_size = block_size

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks."""
        size, hashes, tokens = self._block_size, seq.block_hashes, seq.token_ids
        parent = hashes[-1] if hashes else NO_PARENT
        for block in range(len(hashes), num_blocks):
            block_tokens = tokens[block * size : (block + 1) * size]
            parent = self._chain_hash(parent, block_tokens, seq.request.tenant) or 1
            hashes.append(parent)


class SimulatedBlockHasher:
    """Takes the prompt's hashes from the request; what is generated is the sequence's own."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = mix(seed)

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks."""
        hashes = seq.block_hashes
        if not hashes and seq.request.simulated is not None:
            hashes += seq.request.simulated.block_hashes[:num_blocks]
        for block in range(len(hashes), num_blocks):
            hashes.append(mix(self._seed ^ mix(seq.seq_id << 24 ^ block)) or 1)


class RequestBlockHasher:
    """Asks the one of the two that a request is made for."""

    def __init__(self, tokens: TokenBlockHasher, simulated: SimulatedBlockHasher) -> None:
        self._tokens = tokens
        self._simulated = simulated

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks."""
        if seq.request.simulated is None:
            self._tokens.extend(seq, num_blocks)
        else:
            self._simulated.extend(seq, num_blocks)


def block_hasher(block_size: int, chain_hash: ChainHash | None) -> RequestBlockHasher:
    """Return the hasher of an engine; without `chain_hash`, keyed for this process alone."""
    chain_hash = chain_hash or keyed_chain_hash(os.urandom(32))
    tokens = TokenBlockHasher(chain_hash, block_size=block_size)
    return RequestBlockHasher(tokens, SimulatedBlockHasher())


def keyed_chain_hash(key: bytes) -> ChainHash:
    """Return a chain hash under `key` (blake2b, 64 bits, salted by tenant)."""

    def chain_hash(parent: int, tokens: Seq[int], tenant: str) -> int:
        salt = blake2b(tenant.encode(), digest_size=16).digest()
        data = parent.to_bytes(8, "little") + array("I", tokens).tobytes()
        digest = blake2b(data, digest_size=8, key=key, salt=salt).digest()
        return int.from_bytes(digest, "little")

    return chain_hash


def mix(value: int) -> int:
    """Return a well-spread 64-bit number for a small one (the finaliser of splitmix64)."""
    z = (value + 0x9E37_79B9_7F4A_7C15) & U64_MASK
    z = (z ^ z >> 30) * 0xBF58_476D_1CE4_E5B9 & U64_MASK
    z = (z ^ z >> 27) * 0x94D0_49BB_1331_11EB & U64_MASK
    return z ^ z >> 31
