"""Keys of AWS that a profile or an account of a cluster leads to: web identity, SSO, a command.

The law: a command is run only if the person's own configuration file names it, without a shell, and
nothing that it prints is in an error. Tokens of a sign-in are read from the files of the AWS
command line and never written: signing in again is for that program.
"""

import asyncio
import hashlib
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from windlass.core.errors import ConfigError, ModelError
from windlass.models.cloud.signing import find_object, read_credentials_file
from windlass.models.http.fetch import JsonRequest, fetch_json
from windlass.models.http.post import find_proxy

PROCESS_S = 60.0
"""How long a command may take: it may ask a person first."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_STS = "the security token service of AWS"
_SSO = "the sign-in service of AWS"
_WEB_IDENTITY_ANSWER = (
    "AssumeRoleWithWebIdentityResponse",
    "AssumeRoleWithWebIdentityResult",
    "Credentials",
)
FetchAnswer = Callable[[], Awaitable[Mapping[str, Any]]]
"""Returns `AccessKeyId`, `SecretAccessKey`, `Token` and `Expiration`."""


def web_identity_fetcher(environ: Mapping[str, str], region: str) -> FetchAnswer | None:
    """Return how the account of a cluster (EKS) gets keys; None if the environment has none."""
    token_file = environ.get("AWS_WEB_IDENTITY_TOKEN_FILE", "")
    role = environ.get("AWS_ROLE_ARN", "")
    if not token_file or not role:
        return None
    url = _service_url(environ, "STS", f"https://sts.{_domain(region)}")
    name = environ.get("AWS_ROLE_SESSION_NAME") or "windlass"

    async def fetch() -> Mapping[str, Any]:
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": role,
            "RoleSessionName": name,
            # The file is replaced from time to time, so it is read for each request.
            "WebIdentityToken": _read_file(Path(token_file)).strip(),
        }
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        request = JsonRequest(
            service=_STS,
            url=url,
            method="POST",
            headers=headers,
            body=urlencode(form).encode(),
            proxy=find_proxy(url, environ),
        )
        answer = await fetch_json(request)
        keys = find_object(answer, *_WEB_IDENTITY_ANSWER)
        return {**keys, "Token": keys.get("SessionToken")}

    return fetch


def sso_fetcher(
    environ: Mapping[str, str],
    profile: Mapping[str, str],
    read_section: Callable[[str], Mapping[str, str]],
) -> FetchAnswer | None:
    """Return how a profile gets keys that signs in through a browser; None for other profiles."""
    account = profile.get("sso_account_id", "")
    role = profile.get("sso_role_name", "")
    if not account or not role:
        return None
    session = profile.get("sso_session", "")
    about = read_section(f"sso-session {session}") if session else profile
    cache, base = _find_sign_in(environ, session, about)
    url = f"{base}/federation/credentials?{urlencode({'role_name': role, 'account_id': account})}"

    async def fetch() -> Mapping[str, Any]:
        token = _decode_object(_read_file(cache)).get("accessToken")
        if not isinstance(token, str):
            raise ModelError("auth", "nobody has signed in. Run: aws sso login")
        request = JsonRequest(
            service=_SSO,
            url=url,
            headers={"x-amz-sso_bearer_token": token},
            proxy=find_proxy(url, environ),
            fix="Sign in again: aws sso login",
        )
        keys = find_object(await fetch_json(request), "roleCredentials")
        return {
            "AccessKeyId": keys.get("accessKeyId"),
            "SecretAccessKey": keys.get("secretAccessKey"),
            "Token": keys.get("sessionToken"),
            "Expiration": float(keys.get("expiration") or 0) / 1000,
        }

    return fetch


def _find_sign_in(
    environ: Mapping[str, str], session: str, about: Mapping[str, str]
) -> tuple[Path, str]:
    """Return where the token of a sign-in is kept, and the address that takes it."""
    start = about.get("sso_start_url", "")
    region = about.get("sso_region", "")
    if not start or not region.replace("-", "").isalnum():
        raise ConfigError("the AWS profile has no sso_start_url or no sso_region.")
    home = Path(environ.get("HOME") or Path.home())
    name = hashlib.sha1((session or start).encode(), usedforsecurity=False).hexdigest()
    cache = home / ".aws" / "sso" / "cache" / f"{name}.json"
    return cache, _service_url(environ, "SSO", f"https://portal.sso.{_domain(region)}")


def process_fetcher(command: str) -> FetchAnswer | None:
    """Return how a profile gets keys whose `credential_process` is a command; None without one."""
    if not command.strip():
        return None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"credential_process cannot be read: {error}") from None

    async def fetch() -> Mapping[str, Any]:
        answer = _decode_object(await _run_command(words))
        return {**answer, "Token": answer.get("SessionToken")}

    return fetch


async def _run_command(words: list[str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise ModelError("auth", f"credential_process cannot start: {error.strerror}") from None
    try:
        async with asyncio.timeout(PROCESS_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ModelError("auth", f"credential_process took more than {PROCESS_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ModelError("auth", f"credential_process ended with code {process.returncode}")
    return output.decode("utf-8", "replace")


def _domain(region: str) -> str:
    return f"{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def _service_url(environ: Mapping[str, str], service: str, default: str) -> str:
    """Return the address of a service. One that the person names must be safe on its way."""
    url = environ.get(f"AWS_ENDPOINT_URL_{service}", "").rstrip("/") or default
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise ConfigError(f"AWS_ENDPOINT_URL_{service} must begin with https://.")
    return url


def _read_file(path: Path) -> str:
    try:
        return read_credentials_file(path)
    except OSError as error:
        raise ModelError("auth", f"{path} cannot be read: {error.strerror}") from None


def _decode_object(text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
