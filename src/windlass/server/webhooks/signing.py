"""Signatures of webhooks, as the Standard Webhooks specification writes them.

Invariant: the signature covers the id, the time and the exact bytes of the body, so that an
attacker cannot change a message, send it again much later, or forge one.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from windlass.core.errors import ConfigError

SECRET_PREFIX = "whsec_"  # noqa: S105 - how a secret begins
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
TOLERANCE_S = 300.0
"""How old a message may be when it is verified."""


def make_secret() -> str:
    """Return a new secret."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(secret: str) -> str:
    """Return a secret that a user chose. Raises ConfigError if it is not one."""
    if not SECRET_BYTES_MIN <= len(_key_of(secret)) <= SECRET_BYTES_MAX:
        raise ConfigError(
            f"the secret of a webhook is {SECRET_PREFIX} and {SECRET_BYTES_MIN} to "
            f"{SECRET_BYTES_MAX} bytes in base64"
        )
    return secret


def sign_message(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message: the header `webhook-signature`."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(_key_of(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    tolerance_s: float = TOLERANCE_S,
) -> str:
    """Return the id of a message that was received. Raises ValueError if it is not genuine.

    `headers` are looked up in lower case. A message may come twice, with the same id.
    """
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "")
    if not (message_id and timestamp.isdigit() and len(timestamp) < SECRET_BYTES_MIN):
        raise ValueError("the message is not signed")
    wanted = sign_message(secret, message_id, int(timestamp), body).encode()
    # Several signatures are given while a secret is replaced by another.
    if not any(hmac.compare_digest(one.encode(), wanted) for one in given.split(" ")):
        raise ValueError("the signature does not fit the message")
    if abs(now - int(timestamp)) > tolerance_s:
        raise ValueError("the message is too old, or the clocks differ")
    return message_id


def _key_of(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""
