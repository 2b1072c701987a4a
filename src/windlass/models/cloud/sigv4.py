"""Signature version 4 of AWS: a request signed with a secret key that is never sent.

The law: what is signed is what is sent, byte by byte: the path as it stands in the URL, the headers
that are named, and the hash of the body.
"""

import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from urllib.parse import parse_qsl, quote, urlsplit

from windlass.core.secrets.secret import Secret

ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "-_.~"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """A pair of keys; temporary ones have a session token, and expire."""

    key_id: str
    secret: Secret
    session_token: Secret | None = None
    expires_at: float = math.inf
    """In seconds since the epoch; keys of a person do not expire."""


@dataclass(frozen=True, slots=True)
class SigningScope:
    """When and for which service a signature counts."""

    at: datetime
    """In UTC."""
    region: str
    service: str

    @property
    def timestamp(self) -> str:
        return self.at.strftime("%Y%m%dT%H%M%SZ")

    @property
    def path(self) -> str:
        return f"{self.timestamp[:8]}/{self.region}/{self.service}/aws4_request"


def sign_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: AwsKeys,
    scope: SigningScope,
) -> dict[str, str]:
    """Return the headers that sign a request: its time, its session token and `Authorization`.

    `headers` are sent as well, and signed with it; the host is added.
    """
    added = {"X-Amz-Date": scope.timestamp}
    if keys.session_token:
        added["X-Amz-Security-Token"] = keys.session_token.reveal()
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    signed = {"host": host} | {name.lower(): value for name, value in {**headers, **added}.items()}
    names = ";".join(sorted(signed))
    request = canonical_request(method, url, signed, sha256(body).hexdigest())
    signature = compute_signature(request, keys.secret, scope)
    added["Authorization"] = (
        f"{ALGORITHM} Credential={keys.key_id}/{scope.path}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return added


def canonical_request(method: str, url: str, headers: Mapping[str, str], body_hash: str) -> str:
    """Return a request in the form that is signed. `headers` have names in lower case."""
    parts = urlsplit(url)
    # Every service but S3 wants the path encoded once more than it is sent.
    path = quote(parts.path or "/", safe="/" + _UNRESERVED)
    pairs = sorted(
        (quote(name, safe=_UNRESERVED), quote(value, safe=_UNRESERVED))
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    query = "&".join(f"{name}={value}" for name, value in pairs)
    lines = [f"{name}:{' '.join(value.split())}\n" for name, value in sorted(headers.items())]
    names = ";".join(sorted(headers))
    return "\n".join((method, path, query, "".join(lines), names, body_hash))


def compute_signature(request: str, secret: Secret, scope: SigningScope) -> str:
    """Return the signature of a canonical request."""
    key = f"AWS4{secret.reveal()}".encode()
    for part in scope.path.split("/"):
        key = _hmac(key, part)
    digest = sha256(request.encode()).hexdigest()
    text = f"{ALGORITHM}\n{scope.timestamp}\n{scope.path}\n{digest}"
    return _hmac(key, text).hex()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
