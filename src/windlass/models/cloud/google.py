"""Credentials for Vertex AI: a service account, a sign-in, a workload, or the machine's account.

google-auth finds and refreshes them, where Google's own tools do: the file that
`GOOGLE_APPLICATION_CREDENTIALS` names, the one that `gcloud auth application-default login` writes,
or the metadata service of a machine in the cloud.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.secrets.mask import Secret
from windlass.environ import read_regular_file
from windlass.models.cloud.signing import (
    AccessToken,
    BearerSigner,
    call_library,
    import_library,
    read_machine_facts,
)

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
CREDENTIALS_BYTES_MAX = 262_144
_SIGN_IN = "the sign-in service of Google"
_MULTI_REGIONS = frozenset(("us", "eu"))
_PLACE = re.compile(r"[a-z0-9:.-]{1,64}")
_NO_PROJECT = '"vertex" needs a project. Set GOOGLE_CLOUD_PROJECT.'
_EXTRA = ("vertex", "credentials of Google other than a key need another package")
GoogleCredentials: TypeAlias = Any
"""Credentials of google-auth, which is imported only where they are used."""
_SECRET_FIELDS = ("private_key", "client_secret", "refresh_token")


class GoogleIdentity(NamedTuple):
    """Who asks: where the token comes from, and which project its account belongs to."""

    signer: BearerSigner
    project: str = ""


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
    """Return the account of the environment or of this machine, if there is one.

    Raises ConfigError if a credentials file cannot be used.
    """
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
    path = Path(named).expanduser() if named else _default_file(environ)
    if path.is_file():
        return _identity_of_file(path)
    if named:
        raise ConfigError(f"GOOGLE_APPLICATION_CREDENTIALS: there is no file {path}.")
    hints = (environ.get("GCE_METADATA_HOST"), environ.get("K_SERVICE"))
    if any(hints) or "Google" in read_machine_facts():
        machine: Any = import_library("google.auth.compute_engine", *_EXTRA)
        return GoogleIdentity(_signer_of(machine.Credentials(scopes=[SCOPE]), {}))
    return None


def _default_file(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    folder = Path(environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    return folder / "application_default_credentials.json"


def _identity_of_file(path: Path) -> GoogleIdentity:
    library: Any = import_library("google.auth", *_EXTRA)
    try:
        data = read_regular_file(path, bytes_max=CREDENTIALS_BYTES_MAX)
        fields = msgspec.json.decode(data, type=dict[str, Any])
        credentials, project = library.default(scopes=[SCOPE])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError:
        raise ConfigError(f"{path} is not a credentials file of Google's.") from None
    except Exception as error:  # noqa: BLE001 - a broken file makes the library raise anything
        # Only the first line: the text may quote the file.
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise ConfigError(f"{path} cannot be used: {reason}") from None
    found = {name: fields.get(name) for name in _SECRET_FIELDS}
    secrets = {
        f"GOOGLE_{name.upper()}": Secret(value)
        for name, value in found.items()
        if isinstance(value, str) and value
    }
    return GoogleIdentity(
        _signer_of(credentials, secrets), str(project or fields.get("quota_project_id") or "")
    )


def _signer_of(credentials: GoogleCredentials, secrets: Mapping[str, Secret]) -> BearerSigner:
    transport: Any = import_library("google.auth.transport.requests", *_EXTRA)

    def refresh() -> AccessToken:
        credentials.refresh(transport.Request())
        expires_at = credentials.expiry
        # The library keeps times in UTC without saying so. A token of unknown age is not kept.
        known = isinstance(expires_at, datetime)
        at = expires_at.replace(tzinfo=UTC).timestamp() if known else 0.0
        return AccessToken(Secret(credentials.token), at)

    async def fetch() -> AccessToken:
        return await call_library(_SIGN_IN, refresh)

    return BearerSigner(fetch, secrets)
