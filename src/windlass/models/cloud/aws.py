"""Credentials for Amazon Bedrock, found where the tools of AWS find theirs.

In this order: the environment, a web identity (EKS), a profile in the files of the AWS command line
(keys, a sign-in through a browser, or a command), the container's service (ECS, EKS), and the
service of the virtual machine (EC2). The first that has keys wins.

The law: nothing is asked of a service, and no command is run, before the first request.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from windlass.core.errors import ConfigError, ModelError
from windlass.core.secrets.secret import Secret
from windlass.models.cloud.aws_roles import (
    FetchAnswer,
    process_fetcher,
    sso_fetcher,
    web_identity_fetcher,
)
from windlass.models.cloud.signing import (
    REFRESH_BEFORE_S,
    SharedFetch,
    read_credentials_file,
    read_machine_facts,
)
from windlass.models.cloud.sigv4 import AwsKeys, SigningScope, sign_headers
from windlass.models.http.fetch import JsonRequest, fetch_json

SERVICE = "bedrock"
MACHINE_SERVICE = "http://169.254.169.254"
CONTAINER_SERVICE = "http://169.254.170.2"
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-\d{1,2}")
# Only these hosts may hold credentials of a container without TLS.
_CONTAINER_HOSTS = frozenset(
    ("169.254.170.2", "169.254.170.23", "fd00:ec2::23", "127.0.0.1", "localhost", "::1")
)
_KEYS_SERVICE = "the credentials service of AWS"
FetchKeys = Callable[[], Awaitable[AwsKeys]]


class AwsSigner:
    """Signs requests with keys that last, or with temporary keys that it fetches."""

    def __init__(self, region: str, keys: AwsKeys | FetchKeys) -> None:
        self._region = region
        self._source = keys
        self._fetched: AwsKeys | None = None
        self._fetch = None if isinstance(keys, AwsKeys) else SharedFetch(keys)

    @property
    def secrets(self) -> Mapping[str, Secret]:
        if not isinstance(self._source, AwsKeys):
            return {}
        found = {"AWS_SECRET_ACCESS_KEY": self._source.secret}
        if self._source.session_token:
            found["AWS_SESSION_TOKEN"] = self._source.session_token
        return found

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
    region = (
        region or _read_profile(environ, "AWS_CONFIG_FILE", "config").get("region", "")
    ).strip()
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
    keys: AwsKeys | FetchKeys | None = (
        _keys_of_environment(environ)
        or _web_identity(environ, region)
        or _keys_of_profile(environ)
        or _container_fetcher(environ)
        or _machine_fetcher(environ)
    )
    return AwsSigner(region, keys) if keys else None


def _keys_of_environment(environ: Mapping[str, str]) -> AwsKeys | None:
    # A profile that is named is meant, even if a key is set as well.
    if environ.get("AWS_PROFILE"):
        return None
    return _read_keys({name.lower(): value for name, value in environ.items()}, "the environment")


def _web_identity(environ: Mapping[str, str], region: str) -> FetchKeys | None:
    if environ.get("AWS_PROFILE"):
        return None
    return _as_keys(web_identity_fetcher(environ, region))


def _as_keys(fetch_answer: FetchAnswer | None) -> FetchKeys | None:
    if fetch_answer is None:
        return None

    async def fetch() -> AwsKeys:
        return _keys_of_answer(await fetch_answer())

    return fetch


def _keys_of_profile(environ: Mapping[str, str]) -> AwsKeys | FetchKeys | None:
    name = environ.get("AWS_PROFILE") or "default"
    stored = _read_profile(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials")
    configured = _read_profile(environ, "AWS_CONFIG_FILE", "config")
    keys = _read_keys({**configured, **stored}, f'the AWS profile "{name}"')
    if keys is not None:
        return keys
    read_section = partial(_read_section, environ, "AWS_CONFIG_FILE", "config")
    # A command may only stand in this file, which no project can name.
    fetch = sso_fetcher(environ, configured, read_section) or process_fetcher(
        configured.get("credential_process", "")
    )
    if fetch is None and environ.get("AWS_PROFILE"):
        raise ConfigError(
            f'the AWS profile "{name}" has no keys of its own. If it takes a role, run: '
            f'eval "$(aws configure export-credentials --profile {name} --format env)"; '
            "unset AWS_PROFILE"
        )
    return _as_keys(fetch)


def _read_keys(fields: Mapping[str, str], source: str) -> AwsKeys | None:
    key_id = fields.get("aws_access_key_id", "").strip()
    secret = fields.get("aws_secret_access_key", "").strip()
    if not key_id and not secret:
        return None
    if not key_id or not secret:
        missing = "AWS_SECRET_ACCESS_KEY" if key_id else "AWS_ACCESS_KEY_ID"
        raise ConfigError(f"{source} has only half of a pair of AWS keys: {missing} is missing.")
    token = fields.get("aws_session_token", "").strip()
    return AwsKeys(key_id, Secret(secret), Secret(token) if token else None)


def _read_profile(environ: Mapping[str, str], variable: str, file_name: str) -> Mapping[str, str]:
    """Return the fields of the chosen profile in one of the files of the AWS command line."""
    name = environ.get("AWS_PROFILE") or "default"
    section = f"profile {name}" if file_name == "config" and name != "default" else name
    return _read_section(environ, variable, file_name, section)


def _read_section(
    environ: Mapping[str, str], variable: str, file_name: str, section: str
) -> Mapping[str, str]:
    home = Path(environ.get("HOME") or Path.home())
    path = Path(environ.get(variable) or home / ".aws" / file_name).expanduser()
    import configparser  # noqa: PLC0415 - only for those who have such a file

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(read_credentials_file(path))
    except (OSError, configparser.Error) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from None
    return dict(parser[section]) if parser.has_section(section) else {}


def _container_fetcher(environ: Mapping[str, str]) -> FetchKeys | None:
    full = environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
    relative = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
    if not full and not relative:
        return None
    url = f"{CONTAINER_SERVICE}{relative}" if relative else full
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _CONTAINER_HOSTS:
        raise ConfigError("AWS_CONTAINER_CREDENTIALS_FULL_URI names a host that AWS does not use.")

    async def fetch() -> AwsKeys:
        token = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        if token_file := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            # The file is replaced from time to time, so it is read for each request.
            token = _read_token_file(Path(token_file))
        headers = {"Authorization": token} if token else {}
        request = JsonRequest(service=_KEYS_SERVICE, url=url, headers=headers)
        return _keys_of_answer(await fetch_json(request))

    return fetch


def _read_token_file(path: Path) -> str:
    try:
        return read_credentials_file(path).strip()
    except OSError as error:
        raise ModelError("auth", f"{path} cannot be read: {error.strerror}") from None


def _machine_fetcher(environ: Mapping[str, str]) -> FetchKeys | None:
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    named = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
    if not named and "Amazon EC2" not in read_machine_facts():
        return None
    base = f"{(named or MACHINE_SERVICE).rstrip('/')}/latest"

    async def fetch() -> AwsKeys:
        # A session is opened by a PUT, which a page in a browser or a proxy cannot be made to send.
        opened = await fetch_json(
            JsonRequest(
                service=_KEYS_SERVICE,
                url=f"{base}/api/token",
                method="PUT",
                headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"},
                expects_text=True,
            )
        )
        headers = {"X-aws-ec2-metadata-token": str(opened["text"])}
        url = f"{base}/meta-data/iam/security-credentials/"
        roles = await fetch_json(
            JsonRequest(service=_KEYS_SERVICE, url=url, headers=headers, expects_text=True)
        )
        role = str(roles["text"]).split("\n")[0].strip()
        if not role:
            raise ModelError("auth", "this machine has no role in AWS")
        request = JsonRequest(service=_KEYS_SERVICE, url=url + role, headers=headers)
        return _keys_of_answer(await fetch_json(request))

    return fetch


def _keys_of_answer(answer: Mapping[str, Any]) -> AwsKeys:
    fields = [answer.get(name) for name in ("AccessKeyId", "SecretAccessKey", "Token")]
    key_id, secret, token = fields
    if not isinstance(key_id, str) or not isinstance(secret, str):
        raise ModelError("auth", f"{_KEYS_SERVICE} answered without keys")
    session_token = Secret(token) if isinstance(token, str) and token else None
    return AwsKeys(key_id, Secret(secret), session_token, _read_expiry(answer.get("Expiration")))


def _read_expiry(value: object) -> float:
    """Return when keys expire. Keys of unknown age are asked for each time."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return 0.0
