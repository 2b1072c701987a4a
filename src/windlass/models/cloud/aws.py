"""Credentials for Amazon Bedrock, and the signatures (version 4) that they make.

They are keys of the environment, or whatever botocore finds.

botocore knows profiles, sign-ins through a browser, `credential_process`, roles, web identities,
containers and virtual machines. It reads the process's environment and the user's own files, so a
project's `.env` cannot say where it looks.

Invariant: no service is asked and no command is run before the first request. What is signed is
what is sent, byte by byte: the path exactly as in the URL, the headers that are named, and the hash
of the body. The secret key is never sent.
"""

import hmac
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qsl, quote, urlsplit

from windlass.core.errors import ConfigError, ModelError
from windlass.core.secrets.mask import Secret
from windlass.models.cloud.signing import (
    REFRESH_BEFORE_S,
    SharedFetch,
    call_library,
    import_library,
    read_machine_facts,
)

ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "-_.~"
SERVICE = "bedrock"
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-\d{1,2}")
_FINDER = "the credentials of AWS"
_HINTS = (
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
)
FOUND_KEYS_S = 60.0
"""How long keys of botocore are used before it is asked again; it refreshes them in time."""
BotocoreSession: TypeAlias = Any
"""A `botocore.session.Session`. The library has no types."""


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


FetchKeys = Callable[[], Awaitable[AwsKeys]]


class AwsSigner:
    """Signs requests with keys that last, or with temporary keys that it fetches."""

    def __init__(
        self, region: str, keys: AwsKeys | FetchKeys, secrets: Mapping[str, Secret]
    ) -> None:
        self._region = region
        self._source = keys
        self._secrets = dict(secrets)
        self._fetched: AwsKeys | None = None
        self._fetch = None if isinstance(keys, AwsKeys) else SharedFetch(keys)

    @property
    def secrets(self) -> Mapping[str, Secret]:
        return self._secrets

    async def sign_request(self, url: str, body: bytes) -> Mapping[str, str]:
        scope = SigningScope(datetime.now(UTC), self._region, SERVICE)
        headers = {"Content-Type": "application/json"}
        return sign_headers("POST", url, headers, body, await self._current_keys(), scope)

    async def _current_keys(self) -> AwsKeys:
        if isinstance(self._source, AwsKeys) or self._fetch is None:
            return cast("AwsKeys", self._source)
        if self._fetched is None or time.time() > self._fetched.expires_at - REFRESH_BEFORE_S:
            self._fetched = await self._fetch.wait()
        return self._fetched


def find_region(environ: Mapping[str, str]) -> str:
    """Return the region of the environment or of the profile. Raises ConfigError without one."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    if not region and _has_files(environ):
        region = _open_session(environ).get_config_variable("region") or ""
    region = region.strip()
    if not region:
        raise ConfigError('"bedrock" needs a region. Set AWS_REGION, for example "us-east-1".')
    if not _REGION.fullmatch(region):
        # It becomes a part of the host's name, so it must not be able to name another host.
        raise ConfigError(f'AWS_REGION="{region}" is not a region, such as "us-east-1".')
    return region


def bedrock_url(region: str) -> str:
    """Return the address of Bedrock in a region."""
    suffix = ".cn" if region.startswith("cn-") else ""
    return f"https://bedrock-runtime.{region}.amazonaws.com{suffix}"


def find_aws_signer(environ: Mapping[str, str], region: str) -> AwsSigner | None:
    """Return a signer with the credentials of this machine; None if there are none.

    Raises ConfigError if they are there but cannot be used.
    """
    if (keys := _keys_of_environment(environ)) is not None:
        secrets = {"AWS_SECRET_ACCESS_KEY": keys.secret}
        if keys.session_token:
            secrets["AWS_SESSION_TOKEN"] = keys.session_token
        return AwsSigner(region, keys, secrets)
    is_machine = "Amazon EC2" in read_machine_facts()
    if not is_machine and not any(environ.get(hint) for hint in _HINTS) and not _has_files(environ):
        return None
    session = _open_session(environ)
    secret = _profile(session, environ).get("aws_secret_access_key")
    secrets = {"AWS_SECRET_ACCESS_KEY": Secret(secret)} if isinstance(secret, str) else {}
    return AwsSigner(region, _key_fetcher(session), secrets)


def _keys_of_environment(environ: Mapping[str, str]) -> AwsKeys | None:
    # A profile that is named is meant, even if a key is set as well.
    if environ.get("AWS_PROFILE"):
        return None
    key_id = environ.get("AWS_ACCESS_KEY_ID", "").strip()
    secret = environ.get("AWS_SECRET_ACCESS_KEY", "").strip()
    if not key_id and not secret:
        return None
    if not key_id or not secret:
        missing = "AWS_SECRET_ACCESS_KEY" if key_id else "AWS_ACCESS_KEY_ID"
        raise ConfigError(
            f"the environment has only half of a pair of AWS keys: {missing} is missing."
        )
    token = environ.get("AWS_SESSION_TOKEN", "").strip()
    return AwsKeys(key_id, Secret(secret), Secret(token) if token else None)


def _has_files(environ: Mapping[str, str]) -> bool:
    """Whether the files of the AWS command line are there."""
    folder = Path(environ.get("HOME") or Path.home()) / ".aws"
    named = (environ.get("AWS_CONFIG_FILE"), environ.get("AWS_SHARED_CREDENTIALS_FILE"))
    paths = [Path(name).expanduser() for name in named if name]
    return any(path.is_file() for path in (*paths, folder / "config", folder / "credentials"))


def _open_session(environ: Mapping[str, str]) -> BotocoreSession:
    what = "credentials of AWS other than keys in the environment need another package"
    library = import_library("botocore.session", "bedrock", what)
    return library.Session(profile=environ.get("AWS_PROFILE") or None)


def _profile(session: BotocoreSession, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the fields of the chosen profile. Raises ConfigError if a named one does not exist."""
    name = environ.get("AWS_PROFILE") or "default"
    errors: Any = import_library("botocore.exceptions", "bedrock", "")
    try:
        profiles = cast("Mapping[str, Mapping[str, Any]]", session.full_config["profiles"])
    except errors.BotoCoreError as error:
        raise ConfigError(f"the configuration of AWS cannot be read: {error}") from None
    if name not in profiles and environ.get("AWS_PROFILE"):
        raise ConfigError(f'there is no AWS profile "{name}" in ~/.aws. Check AWS_PROFILE.')
    return profiles.get(name, {})


def _key_fetcher(session: BotocoreSession) -> FetchKeys:
    errors: Any = import_library("botocore.exceptions", "bedrock", "")

    def find_keys() -> AwsKeys:
        try:
            found = session.get_credentials()
            # Frozen: the key, the secret and the token belong to one another.
            frozen = found and found.get_frozen_credentials()
        except errors.CredentialRetrievalError as error:
            if error.kwargs.get("provider") != "custom-process":
                raise
            # The library's text quotes what the command printed, which may be a key.
            raise ModelError("auth", "the credential_process of the AWS profile failed") from None
        except errors.SSOError:
            message = "the sign-in to AWS is missing or has expired. Run: aws sso login"
            raise ModelError("auth", message) from None
        if frozen is None:
            raise ModelError("auth", "AWS has no credentials here. Run: aws configure")
        token = Secret(frozen.token) if frozen.token else None
        ask_again_at = time.time() + REFRESH_BEFORE_S + FOUND_KEYS_S
        return AwsKeys(frozen.access_key, Secret(frozen.secret_key), token, ask_again_at)

    async def fetch() -> AwsKeys:
        return await call_library(_FINDER, find_keys)

    return fetch
