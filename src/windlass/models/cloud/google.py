"""Credentials for Vertex AI: a service account, a sign-in, a workload, or the machine's account.

Found where Google's own tools find them: `GOOGLE_APPLICATION_CREDENTIALS`, the file that
`gcloud auth application-default login` writes, or the metadata service of a machine in the cloud.
"""

import importlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from windlass.core.errors import ConfigError, ModelError
from windlass.core.secrets.secret import Secret
from windlass.models.cloud.google_federation import federated_signer
from windlass.models.cloud.signing import (
    AccessToken,
    BearerSigner,
    read_credentials_file,
    read_machine_facts,
    read_token,
)
from windlass.models.http.fetch import JsonRequest, fetch_json
from windlass.models.http.post import find_proxy

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_S = 3600
"""How long the statement lasts that a service account signs to get a token."""
_METADATA_HOST = "metadata.google.internal"
_SIGN_IN = "the sign-in service of Google"
_METADATA = "the metadata service of Google"
_MULTI_REGIONS = frozenset(("us", "eu"))
_PLACE = re.compile(r"[a-z0-9:.-]{1,64}")
_NO_PROJECT = '"vertex" needs a project. Set GOOGLE_CLOUD_PROJECT.'
_NO_CRYPTO = (
    "a service account of Google signs with RSA, which needs another package: "
    "pip install 'windlass[vertex]'"
)


class GoogleIdentity:
    """Who asks: where the token comes from, and which project its account belongs to."""

    def __init__(self, signer: BearerSigner, project: str = "") -> None:
        self.signer = signer
        self.project = project


def vertex_address(
    url: str, publisher: str, environ: Mapping[str, str], project: str, *, with_key: bool
) -> str:
    """Return the base URL of a publisher's models. `url` replaces Google's host if it is given.

    A key (`with_key`) belongs to a project, so that none is named. Raises ConfigError.
    """
    if "/publishers/" in url:
        return url
    location = environ.get("GOOGLE_CLOUD_LOCATION", "").strip() or "global"
    project = environ.get("GOOGLE_CLOUD_PROJECT", "").strip() or project
    for name, value in (("GOOGLE_CLOUD_LOCATION", location), ("GOOGLE_CLOUD_PROJECT", project)):
        if value and not _PLACE.fullmatch(value):
            # The location becomes a part of the host's name, so it must not name another host.
            raise ConfigError(f'{name}="{value}" is not a name of Google\'s cloud.')
    if with_key:
        host = url or "https://aiplatform.googleapis.com"
        return f"{host.removesuffix('/v1')}/v1/publishers/{publisher}"
    if not project:
        raise ConfigError(_NO_PROJECT)
    if location == "global":
        host = url or "https://aiplatform.googleapis.com"
    elif location in _MULTI_REGIONS:
        host = url or f"https://aiplatform.{location}.rep.googleapis.com"
    else:
        host = url or f"https://{location}-aiplatform.googleapis.com"
    path = f"projects/{project}/locations/{location}/publishers/{publisher}"
    return f"{host.removesuffix('/v1')}/v1/{path}"


def find_google_identity(environ: Mapping[str, str]) -> GoogleIdentity | None:
    """Return the account of the environment or of this machine; None if there is none.

    Raises ConfigError if a credentials file cannot be used.
    """
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
    path = Path(named).expanduser() if named else _default_file(environ)
    try:
        text = read_credentials_file(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if text:
        return _identity_of_file(text, path, environ)
    if named:
        raise ConfigError(f"GOOGLE_APPLICATION_CREDENTIALS: there is no file {path}.")
    host = environ.get("GCE_METADATA_HOST", "")
    if host or environ.get("K_SERVICE") or "Google" in read_machine_facts():
        return GoogleIdentity(_metadata_signer(host or _METADATA_HOST))
    return None


def _default_file(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    folder = Path(environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    return folder / "application_default_credentials.json"


def _identity_of_file(text: str, path: Path, environ: Mapping[str, str]) -> GoogleIdentity:
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise ConfigError(f"{path} is not a credentials file of Google's.") from None
    match fields.get("type"):
        case "service_account":
            signer = _service_account_signer(fields, path, environ)
            return GoogleIdentity(signer, str(fields.get("project_id") or ""))
        case "authorized_user":
            signer = _user_signer(fields, path, environ)
            return GoogleIdentity(signer, str(fields.get("quota_project_id") or ""))
        case "external_account":
            signer = federated_signer(fields, path, SCOPE, environ)
            return GoogleIdentity(signer, str(fields.get("quota_project_id") or ""))
        case kind:
            raise ConfigError(
                f'{path}: credentials of the type "{kind}" are not supported. Use a service '
                "account, or run: gcloud auth application-default login"
            )


def _take_fields(fields: Mapping[str, Any], path: Path, *names: str) -> list[str]:
    missing = [name for name in names if not isinstance(fields.get(name), str)]
    if missing:
        raise ConfigError(f"{path} has no {missing[0]}.")
    return [fields[name] for name in names]


def _service_account_signer(
    fields: Mapping[str, Any], path: Path, environ: Mapping[str, str]
) -> BearerSigner:
    email, key_text = _take_fields(fields, path, "client_email", "private_key")
    key = Secret(key_text)
    url = str(fields.get("token_uri") or TOKEN_URL)
    headers = {"kid": str(fields.get("private_key_id") or "")}
    try:
        jwt: Any = importlib.import_module("jwt")
        importlib.import_module("cryptography")
    except ImportError:
        raise ConfigError(_NO_CRYPTO) from None

    async def fetch() -> AccessToken:
        now = int(time.time())
        claims = {"iss": email, "scope": SCOPE, "aud": url, "iat": now, "exp": now + ASSERTION_S}
        try:
            assertion = jwt.encode(claims, key.reveal(), algorithm="RS256", headers=headers)
        except ValueError:
            raise ModelError("auth", f"{path}: its private key cannot be read") from None
        form = {"grant_type": GRANT_TYPE, "assertion": assertion}
        return await _fetch_token(url, form, environ)

    return BearerSigner(fetch, {"GOOGLE_PRIVATE_KEY": key})


def _user_signer(fields: Mapping[str, Any], path: Path, environ: Mapping[str, str]) -> BearerSigner:
    names = ("client_id", "client_secret", "refresh_token")
    client, client_secret, refresh = _take_fields(fields, path, *names)
    kept = {"GOOGLE_CLIENT_SECRET": Secret(client_secret), "GOOGLE_REFRESH_TOKEN": Secret(refresh)}
    url = str(fields.get("token_uri") or TOKEN_URL)

    async def fetch() -> AccessToken:
        form = {
            "grant_type": "refresh_token",
            "client_id": client,
            "client_secret": kept["GOOGLE_CLIENT_SECRET"].reveal(),
            "refresh_token": kept["GOOGLE_REFRESH_TOKEN"].reveal(),
        }
        return await _fetch_token(url, form, environ)

    return BearerSigner(fetch, kept)


async def _fetch_token(
    url: str, form: Mapping[str, str], environ: Mapping[str, str]
) -> AccessToken:
    request = JsonRequest(
        service=_SIGN_IN,
        url=url,
        method="POST",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        body=urlencode(form).encode(),
        proxy=find_proxy(url, environ),
        fix="Sign in again: gcloud auth application-default login",
    )
    return read_token(await fetch_json(request), _SIGN_IN)


def _metadata_signer(host: str) -> BearerSigner:
    query = urlencode({"scopes": SCOPE})
    url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token?{query}"

    async def fetch() -> AccessToken:
        request = JsonRequest(service=_METADATA, url=url, headers={"Metadata-Flavor": "Google"})
        return read_token(await fetch_json(request), _METADATA)

    return BearerSigner(fetch, {})
