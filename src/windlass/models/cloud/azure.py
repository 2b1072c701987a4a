"""Credentials for Azure OpenAI beside its keys: tokens of Microsoft Entra.

A token comes from the environment (`AZURE_OPENAI_AD_TOKEN`), or from azure-identity, which knows
applications, workloads, managed identities and the sign-in of the `az` command.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from windlass.core.errors import ConfigError
from windlass.core.secrets.mask import Secret
from windlass.models.cloud.signing import (
    AccessToken,
    BearerSigner,
    call_library,
    import_library,
    read_machine_facts,
)

SCOPE = "https://cognitiveservices.azure.com/.default"
_AZURE_MACHINE = "7783-7084-3265-9085-8269-3286-77"
"""The chassis tag of every virtual machine in Azure."""
_ENTRA = "the sign-in service of Azure"
_HINTS = ("AZURE_TENANT_ID", "IDENTITY_ENDPOINT", "AZURE_TOKEN_CREDENTIALS")
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
    """Return a signer with the identity of the environment or machine, if there is one."""
    if token := environ.get("AZURE_OPENAI_AD_TOKEN", "").strip():
        return _fixed_signer(Secret(token))
    is_machine = _AZURE_MACHINE in read_machine_facts()
    if not is_machine and not any(environ.get(hint) for hint in _HINTS):
        signed_in = Path(environ.get("HOME") or Path.home()) / ".azure" / "azureProfile.json"
        if not signed_in.is_file():
            return None
    what = "credentials of Azure other than a key or a token need another package"
    library: Any = import_library("azure.identity", "azure", what)
    tenant = environ.get("AZURE_TENANT_ID", "")
    client = environ.get("AZURE_CLIENT_ID", "")
    secret = environ.get("AZURE_CLIENT_SECRET", "")
    # An authority that the user chose is not looked up at Microsoft's first.
    options = {"disable_instance_discovery": bool(environ.get("AZURE_AUTHORITY_HOST"))}
    try:
        if tenant and client and secret:  # Passed on, because they may come from `.env`.
            credential = library.ClientSecretCredential(tenant, client, secret, **options)
        else:
            credential = library.DefaultAzureCredential(**options)
    except ValueError as error:
        raise ConfigError(f"the identity for Azure cannot be used: {error}") from None
    secrets = {"AZURE_CLIENT_SECRET": Secret(secret)} if secret else {}

    def get_token() -> AccessToken:
        token = credential.get_token(SCOPE)
        return AccessToken(Secret(token.token), float(token.expires_on))

    async def fetch() -> AccessToken:
        return await call_library(_ENTRA, get_token)

    return BearerSigner(fetch, secrets)


def _fixed_signer(token: Secret) -> BearerSigner:
    async def fetch() -> AccessToken:
        return AccessToken(token, time.time() + 3600)

    return BearerSigner(fetch, {"AZURE_OPENAI_AD_TOKEN": token})
