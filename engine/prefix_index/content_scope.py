"""What besides its tokens decides whether two blocks hold the same content.

KV depends on tokens and positions (the chain of blocks covers both), on what a position attends to
(mask, window) and on the adapter. And nobody shall find out by timing what another tenant has sent.
So all of these salt a block's identity, and each combination has a tree of its own.
"""

import json
from hashlib import blake2b

from engine.request import Request
from kvpulse.identity import KeyedHashes


class ContentScopes:
    """Gives each request the scope within which its content may be shared.

    Args:
        mask: Kind of the runner's attention mask.
        sliding_window: Tokens that a position of the runner's model looks back, None for all.
    """

    def __init__(
        self, hashes: KeyedHashes, *, mask: str = "causal", sliding_window: int | None = None
    ) -> None:
        self._hashes = hashes
        self._mask = mask
        self._sliding_window = sliding_window

    def salt_of(self, request: Request) -> bytes:
        """Return the salt of its tokens' identities: the tenant's, and another 8 bytes if needed.

        Full causal attention without an adapter is the ordinary case and adds nothing.
        """
        salt = self._hashes.tenant_salt(request.tenant)
        if not self._is_special(request):
            return salt
        special = json.dumps([request.adapter, self._mask, self._sliding_window])
        return salt + self._hashes.tenant_salt("scope:" + special)

    def simulated_salt_of(self, request: Request) -> int:
        """Return the salt of identities that a simulation brings along, 0 for nobody's.

        Not keyed, so that the same trace gives the same journal.
        """
        if not request.tenant and not self._is_special(request):
            return 0
        parts = [request.tenant, request.adapter, self._mask, self._sliding_window]
        digest = blake2b(json.dumps(parts).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def _is_special(self, request: Request) -> bool:
        return bool(request.adapter) or self._mask != "causal" or self._sliding_window is not None
