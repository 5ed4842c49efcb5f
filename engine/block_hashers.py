"""Content identity of blocks: keyed chain hashes of tokens, or what a simulation brings along."""

import os
from typing import Protocol

from engine.prefix_index.content_scope import ContentScopes
from engine.sequence import Sequence
from kvpulse.events import U64_MASK
from kvpulse.identity import KeyedHashes


class BlockHasher(Protocol):
    """Gives full blocks their content identity."""

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks, all of them full."""


class TokenBlockHasher:
    """Hashes each full block over its tokens and everything before, within one scope."""

    def __init__(
        self, hashes: KeyedHashes, *, block_size: int, scopes: ContentScopes | None = None
    ) -> None:
        self._hashes = hashes
        self._block_size = block_size
        self._scopes = scopes or ContentScopes(hashes)

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks."""
        size, known, tokens = self._block_size, seq.block_hashes, seq.token_ids
        salt = self._scopes.salt_of(seq.request)
        if not known:
            known += self._hashes.chain_hashes(tokens[: num_blocks * size], size, salt)
        for block in range(len(known), num_blocks):
            block_tokens = tokens[block * size : (block + 1) * size]
            known.append(self._hashes.chain_hash(known[-1], block_tokens, salt))


class SimulatedBlockHasher:
    """Takes the prompt's hashes from the request; what is generated is the sequence's own."""

    def __init__(self, *, seed: int = 0, scopes: ContentScopes | None = None) -> None:
        self._seed = mix(seed)
        self._scopes = scopes

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks."""
        hashes = seq.block_hashes
        if not hashes and seq.request.simulated is not None:
            hashes += seq.request.simulated.block_hashes[:num_blocks]
            salt = self._scopes.simulated_salt_of(seq.request) if self._scopes else 0
            if salt:
                hashes[:] = [(content_hash ^ salt) or 1 for content_hash in hashes]
        for block in range(len(hashes), num_blocks):
            hashes.append(mix(self._seed ^ mix(seq.seq_id << 24 ^ block)) or 1)


class RequestBlockHasher:
    """Asks the one of the two that a request is made for."""

    def __init__(
        self, tokens: TokenBlockHasher, simulated: SimulatedBlockHasher, scopes: ContentScopes
    ) -> None:
        self.scopes = scopes
        self._tokens = tokens
        self._simulated = simulated

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks."""
        if seq.request.simulated is None:
            self._tokens.extend(seq, num_blocks)
        else:
            self._simulated.extend(seq, num_blocks)


def block_hasher(
    block_size: int,
    hashes: KeyedHashes | None,
    *,
    mask: str = "causal",
    sliding_window: int | None = None,
) -> RequestBlockHasher:
    """Return the hasher of an engine; without `hashes`, keyed for this engine alone."""
    hashes = hashes or KeyedHashes(os.urandom(32))
    scopes = ContentScopes(hashes, mask=mask, sliding_window=sliding_window)
    tokens = TokenBlockHasher(hashes, block_size=block_size, scopes=scopes)
    return RequestBlockHasher(tokens, SimulatedBlockHasher(scopes=scopes), scopes)


def mix(value: int) -> int:
    """Return a well-spread 64-bit number for a small one (the finaliser of splitmix64)."""
    z = (value + 0x9E37_79B9_7F4A_7C15) & U64_MASK
    z = (z ^ z >> 30) * 0xBF58_476D_1CE4_E5B9 & U64_MASK
    z = (z ^ z >> 27) * 0x94D0_49BB_1331_11EB & U64_MASK
    return z ^ z >> 31
