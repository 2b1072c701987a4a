"""Tokens of an identity provider (OIDC): signed by its keys, for this service, not out of date.

Invariant: only public-key signatures count, so that being able to check a token is not enough to
make one. The subject is the caller, and a person whom the provider verified. Whatever a token does
not say is not allowed: `admin` has to be named.
"""

import asyncio
import importlib
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.http.urls import is_loopback
from windlass.logs import get_logger
from windlass.server.access import CALLER_CHARS_MAX, ROLES, Caller, Role
from windlass.server.tokens import DEFAULT_ROLES

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")
ROLES_CLAIM = "windlass_roles"
LEEWAY_S = 30.0
"""How far the clocks of the provider and of this machine may differ."""
FETCH_S = 5.0
KEYS_S = 300
"""How long the provider's keys are kept."""
THREADS = 4
"""That check tokens at a time."""
DOCUMENT_BYTES_MAX = 1_000_000
_log = get_logger(__name__)
VerifyToken = Callable[[str], Mapping[str, Any]]
"""Returns the claims of a token. Raises if it is not valid; may block."""


class JwtOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tokens are accepted, and for whom they must be meant."""

    issuer: str
    audience: str
    keys_url: str = ""
    """Where the provider's keys are; by default, its own configuration says so."""


class JwtAuthenticator:
    """Finds the caller of a token of one identity provider."""

    def __init__(self, verify: VerifyToken) -> None:
        self._verify = verify
        # The journal works in the threads of the event loop. A provider that does not answer, and
        # clients that send anything that looks like a token, must not take those.
        self._threads = ThreadPoolExecutor(THREADS, "windlass-jwt")

    async def authenticate(self, secret: str) -> Caller | None:
        """Return the caller of a token; None if it is not one, or not valid."""
        if secret.count(".") != 2:  # noqa: PLR2004 - head, claims and signature
            return None
        try:
            loop = asyncio.get_running_loop()
            claims = await loop.run_in_executor(self._threads, self._verify, secret)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a token, it is refused
            _log.info("a token of the identity provider is refused: %s", type(error).__name__)
            return None
        return read_claims(claims)


def make_jwt_authenticator(options: JwtOptions) -> JwtAuthenticator:
    """Return the verifier of a provider's tokens. Raises ConfigError without the extra `jwt`."""
    try:
        jwt: Any = importlib.import_module("jwt")
        importlib.import_module("cryptography")
    except ModuleNotFoundError:
        raise ConfigError(
            "tokens of an identity provider need another package: pip install 'windlass[jwt]'"
        ) from None
    client: Any = None

    def verify(secret: str) -> Mapping[str, Any]:
        nonlocal client
        if client is None:
            keys_url = options.keys_url or find_keys_url(options.issuer)
            client = jwt.PyJWKClient(keys_url, lifespan=KEYS_S, timeout=FETCH_S)
        key = client.get_signing_key_from_jwt(secret)
        return jwt.decode(
            secret,
            key.key,
            algorithms=list(ALGORITHMS),
            issuer=options.issuer,
            audience=options.audience,
            leeway=LEEWAY_S,
            options={"require": ["exp", "sub", "iss", "aud"]},
        )

    return JwtAuthenticator(verify)


def find_keys_url(issuer: str) -> str:
    """Return where the keys of a provider are, as its configuration says. Blocks."""
    check_https(issuer)
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    with urllib.request.urlopen(address, timeout=FETCH_S) as reply:  # noqa: S310 - checked above
        found = msgspec.json.decode(reply.read(DOCUMENT_BYTES_MAX), type=dict[str, Any])
    if found.get("issuer") != issuer:
        raise ConfigError(f"{address} is the configuration of a different issuer")
    return check_https(str(found["jwks_uri"]))


def check_https(url: str) -> str:
    """Return a URL that keys may come from. Raises ConfigError unless it is HTTPS or loopback."""
    parts = urllib.parse.urlsplit(url)
    is_local = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if parts.scheme != "https" and not is_local:
        raise ConfigError(f"{url}: the keys of an identity provider are fetched by https only")
    return url


def read_claims(claims: Mapping[str, Any]) -> Caller | None:
    """Return the caller that the claims of a valid token name; None if they name none."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= CALLER_CHARS_MAX:
        return None
    if not subject.strip() or not subject.isprintable():
        return None
    expires = claims.get("exp")
    if not isinstance(expires, int | float):
        return None
    roles = frozenset(_read_roles(claims.get(ROLES_CLAIM)))
    return Caller(subject, roles, expires=expires + LEEWAY_S, person=subject)


def _read_roles(claim: object) -> tuple[Role, ...]:
    if claim is None:
        return DEFAULT_ROLES
    if isinstance(claim, str):
        named: list[object] = list(claim.split())
    elif isinstance(claim, list):
        named = cast("list[object]", claim)
    else:
        named = []
    return tuple(role for role in ROLES if role in named)
