"""Workload identity federation: a token of somebody else is exchanged for one of Google's.

The law: the token is sent only to addresses of the credentials file that are safe on their way, and
no command of such a file is run.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from windlass.core.errors import ConfigError, ModelError
from windlass.core.secrets.secret import Secret
from windlass.models.cloud.signing import (
    AccessToken,
    BearerSigner,
    find_object,
    read_credentials_file,
    read_token,
)
from windlass.models.http.fetch import JsonRequest, fetch_json
from windlass.models.http.post import find_proxy

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind
_EXCHANGE_SERVICE = "the token exchange of Google"
_ACCOUNT_SERVICE = "the service accounts of Google"
_TOKEN_SOURCE = "the source of the workload's token"  # noqa: S105 - words
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def federated_signer(
    fields: Mapping[str, Any], path: Path, scope: str, environ: Mapping[str, str]
) -> BearerSigner:
    """Return a signer for credentials of the type `external_account`. Raises ConfigError."""
    source = find_object(fields, "credential_source")
    if not source.get("file") and not source.get("url"):
        raise ConfigError(
            f"{path}: its credential_source is not supported: it must name a file or an address."
        )
    token_url = _check_url(fields.get("token_url"), path, "token_url")
    impersonation = fields.get("service_account_impersonation_url")
    account_url = _check_url(impersonation, path, "its service account") if impersonation else ""
    form = {
        "grant_type": EXCHANGE,
        "audience": str(fields.get("audience") or ""),
        "scope": scope,
        "requested_token_type": ACCESS_TOKEN,
        "subject_token_type": str(fields.get("subject_token_type") or ""),
    }

    async def fetch() -> AccessToken:
        # The token of the workload is short-lived, so it is read for each exchange.
        subject = await _read_subject_token(source, path, environ)
        body = urlencode({**form, "subject_token": subject}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        request = JsonRequest(
            service=_EXCHANGE_SERVICE,
            url=token_url,
            method="POST",
            headers=headers,
            body=body,
            proxy=find_proxy(token_url, environ),
        )
        token = read_token(await fetch_json(request), _EXCHANGE_SERVICE)
        if not account_url:
            return token
        return await _impersonate(account_url, token, scope, environ)

    return BearerSigner(fetch, {})


async def _read_subject_token(
    source: Mapping[str, Any], path: Path, environ: Mapping[str, str]
) -> str:
    if source.get("file"):
        try:
            text = read_credentials_file(Path(str(source["file"])))
        except OSError as error:
            raise ModelError("auth", f"{path}: {error.strerror}: {source['file']}") from None
    else:
        url = _check_url(source["url"], path, "the address of the token", is_local=True)
        headers = {name: str(value) for name, value in find_object(source, "headers").items()}
        request = JsonRequest(
            service=_TOKEN_SOURCE,
            url=url,
            headers=headers,
            proxy=find_proxy(url, environ),
            expects_text=True,
        )
        text = str((await fetch_json(request))["text"])
    about = find_object(source, "format")
    if about.get("type") == "json":
        try:
            found = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError:
            found = {}
        text = str(found.get(str(about.get("subject_token_field_name"))) or "")
    if not text.strip():
        raise ModelError("auth", f"{path}: the workload has no token")
    return text.strip()


async def _impersonate(
    url: str, token: AccessToken, scope: str, environ: Mapping[str, str]
) -> AccessToken:
    """Return the token of a service account, which the exchanged one is good for."""
    headers = {
        "Authorization": f"Bearer {token.value.reveal()}",
        "Content-Type": "application/json",
    }
    request = JsonRequest(
        service=_ACCOUNT_SERVICE,
        url=url,
        method="POST",
        headers=headers,
        body=msgspec.json.encode({"scope": [scope]}),
        proxy=find_proxy(url, environ),
    )
    answer = await fetch_json(request)
    value = answer.get("accessToken")
    if not isinstance(value, str) or not value:
        raise ModelError("auth", f"{_ACCOUNT_SERVICE} answered without a token")
    try:
        expires_at = datetime.fromisoformat(str(answer.get("expireTime"))).timestamp()
    except ValueError:
        expires_at = 0.0
    return AccessToken(Secret(value), expires_at)


def _check_url(value: object, path: Path, name: str, *, is_local: bool = False) -> str:
    """Return an address of the file. That of the token may be the machine's own (`is_local`)."""
    url = str(value or "")
    parts = urlsplit(url)
    is_machine = is_local and parts.scheme == "http" and parts.hostname == "169.254.169.254"
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK and not is_machine:
        raise ConfigError(f"{path}: {name} must be an address that begins with https://.")
    return url
