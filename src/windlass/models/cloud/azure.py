"""Credentials for Azure OpenAI beside its keys: tokens of Microsoft Entra.

A token comes from the environment (`AZURE_OPENAI_AD_TOKEN`), for a service principal with a secret,
for a workload with a federated token, or from the managed identity of the machine.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from windlass.core.errors import ConfigError, ModelError
from windlass.core.secrets.secret import Secret
from windlass.models.cloud.signing import (
    AccessToken,
    BearerSigner,
    read_credentials_file,
    read_machine_facts,
    read_token,
)
from windlass.models.http.fetch import JsonRequest, fetch_json
from windlass.models.http.post import find_proxy

RESOURCE = "https://cognitiveservices.azure.com"
AUTHORITY = "https://login.microsoftonline.com"
MACHINE_SERVICE = "http://169.254.169.254/metadata/identity/oauth2/token"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_AZURE_MACHINE = "7783-7084-3265-9085-8269-3286-77"
"""The chassis tag of every virtual machine in Azure."""
_ENTRA = "the sign-in service of Azure"
_IDENTITY = "the managed identity service of Azure"
_PATHS = re.compile(r"/openai(?:/v1|/deployments/[^/]+)?/?$")
_API_VERSION = re.compile(r"\d{4}-\d\d-\d\d(?:-preview)?|preview|latest|v1")


def azure_address(
    url: str, deployment: str, api: str, environ: Mapping[str, str]
) -> tuple[str, str]:
    """Return the base URL of an endpoint, and the query of its requests.

    Without `OPENAI_API_VERSION`, this is the API without versions. A version by date has another
    path. `api` is the dialect.
    """
    endpoint = _PATHS.sub("", url)
    version = environ.get("OPENAI_API_VERSION", "").strip()
    if not version:
        return f"{endpoint}/openai/v1", ""
    if not _API_VERSION.fullmatch(version):
        raise ConfigError(f'OPENAI_API_VERSION="{version}" is not a version, such as "2024-10-21".')
    query = f"?api-version={version}"
    if not version[0].isdigit():
        return f"{endpoint}/openai/v1", query
    if api == "openai_chat":
        return f"{endpoint}/openai/deployments/{quote(deployment, safe='')}", query
    return f"{endpoint}/openai", query


def find_azure_signer(environ: Mapping[str, str]) -> BearerSigner | None:
    """Return a signer with the identity that the environment names; None if there is none."""
    if token := environ.get("AZURE_OPENAI_AD_TOKEN", "").strip():
        return _fixed_signer(Secret(token))
    tenant, client = environ.get("AZURE_TENANT_ID"), environ.get("AZURE_CLIENT_ID")
    secret, token_file = (
        environ.get("AZURE_CLIENT_SECRET"),
        environ.get("AZURE_FEDERATED_TOKEN_FILE"),
    )
    if tenant and client and secret:
        kept = Secret(secret)
        prove = lambda: {"client_secret": kept.reveal()}  # noqa: E731
        fetch = _principal_fetcher(environ, tenant, client, prove)
        return BearerSigner(fetch, {"AZURE_CLIENT_SECRET": kept})
    if tenant and client and token_file:
        path = Path(token_file)
        fetch = _principal_fetcher(environ, tenant, client, lambda: _federated_proof(path))
        return BearerSigner(fetch, {})
    if request := _identity_request(environ):
        return BearerSigner(lambda: _fetch_token(request), {})
    return None


def _fixed_signer(token: Secret) -> BearerSigner:
    async def fetch() -> AccessToken:
        return AccessToken(token, time.time() + 3600)

    return BearerSigner(fetch, {"AZURE_OPENAI_AD_TOKEN": token})


def _principal_fetcher(
    environ: Mapping[str, str], tenant: str, client: str, prove: Callable[[], dict[str, str]]
) -> Callable[[], Awaitable[AccessToken]]:
    authority = (environ.get("AZURE_AUTHORITY_HOST") or AUTHORITY).rstrip("/")
    url = f"{authority}/{quote(tenant, safe='')}/oauth2/v2.0/token"

    async def fetch() -> AccessToken:
        form = {
            "grant_type": "client_credentials",
            "client_id": client,
            "scope": f"{RESOURCE}/.default",
            **prove(),
        }
        request = JsonRequest(
            service=_ENTRA,
            url=url,
            method="POST",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=urlencode(form).encode(),
            proxy=find_proxy(url, environ),
            fix="Check AZURE_TENANT_ID, AZURE_CLIENT_ID and the client's secret.",
        )
        return await _fetch_token(request)

    return fetch


def _federated_proof(path: Path) -> dict[str, str]:
    # The file is replaced from time to time, so it is read for each token.
    try:
        token = read_credentials_file(path).strip()
    except OSError as error:
        raise ModelError("auth", f"{path} cannot be read: {error.strerror}") from None
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": token}


def _identity_request(environ: Mapping[str, str]) -> JsonRequest | None:
    """Return the request for a token of a managed identity; None if this machine has none."""
    query = {"resource": RESOURCE}
    if client := environ.get("AZURE_CLIENT_ID"):
        query["client_id"] = client
    endpoint, header = environ.get("IDENTITY_ENDPOINT"), environ.get("IDENTITY_HEADER")
    if endpoint and header:  # A function or an app of Azure's.
        query["api-version"] = "2019-08-01"
        headers = {"X-IDENTITY-HEADER": header}
    elif environ.get("AZURE_TOKEN_CREDENTIALS") == "ManagedIdentityCredential" or (
        _AZURE_MACHINE in read_machine_facts()
    ):
        endpoint = environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or MACHINE_SERVICE
        query["api-version"] = "2018-02-01"
        headers = {"Metadata": "true"}
    else:
        return None
    return JsonRequest(
        service=_IDENTITY,
        url=f"{endpoint}?{urlencode(query)}",
        headers=headers,
        fix="Does the identity have a role on the Azure OpenAI resource?",
    )


async def _fetch_token(request: JsonRequest) -> AccessToken:
    return read_token(await fetch_json(request), request.service)
