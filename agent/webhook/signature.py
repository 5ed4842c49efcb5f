"""Sign a message as the Standard Webhooks specification (1.0.0) has it: libraries can check it.

What is signed is `id.timestamp.body`: who copies a message cannot send it again later, since its
time is then old, nor under another id.
"""

import base64
import binascii
import hmac
from hashlib import sha256
from pathlib import Path
from typing import Final

from agent.errors import ConfigError
from agent.secret_file import read_secret

SETTING: Final = "webhook_secret_file"
ENCODED: Final = "whsec_"  # what follows it is the key in base64
ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"


def read_key(path: Path) -> bytes:
    """Return the key that a private file holds; its text is in no message.

    Raises:
        ConfigError: The file cannot be read, is open to others, or holds no key.
    """
    secret = read_secret(SETTING, path)
    if not secret.startswith(ENCODED):
        return secret.encode("ascii")
    try:
        return base64.b64decode(secret.removeprefix(ENCODED), validate=True)
    except binascii.Error as error:
        accepted = f"base64 after {ENCODED}, such as `openssl rand -base64 32` prints"
        raise ConfigError(f"{SETTING} {path}", "something else", accepted) from error


def signed_headers(key: bytes, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the three headers that go with a body.

    Args:
        key: Shared with the receiver.
        message_id: The same for every attempt at one message.
        timestamp: When this attempt is made, in seconds since 1970.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, signed, sha256).digest()
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: "v1," + base64.b64encode(digest).decode("ascii"),
    }
