"""How a request gets its credentials when they are not a fixed key: a signature or a token.

The law: tokens and signatures exist only in the headers of a request. They are in no error, no
record and no file. A token is asked for again before it expires, and never more often.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from windlass.core.errors import ModelError
from windlass.core.secrets.secret import Secret
from windlass.environ import read_regular_file

REFRESH_BEFORE_S = 300.0
"""A token is replaced so long before it expires, so that no request is sent with an old one."""
CREDENTIALS_BYTES_MAX = 262_144
T = TypeVar("T")
_MACHINE_FOLDER = Path("/sys/class/dmi/id")


class RequestSigner(Protocol):
    """Adds credentials to requests."""

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """The lasting secrets that it holds, by name."""
        ...

    async def sign_request(self, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers that a POST of this body needs. Raises ModelError."""
        ...


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, and when it expires in seconds since the epoch."""

    value: Secret
    expires_at: float

    @property
    def is_fresh(self) -> bool:
        return time.time() < self.expires_at - REFRESH_BEFORE_S


class SharedFetch(Generic[T]):
    """One fetch for all who wait for it: requests that begin together ask for one token."""

    def __init__(self, fetch: Callable[[], Awaitable[T]]) -> None:
        self._fetch = fetch
        self._task: asyncio.Task[T] | None = None

    async def wait(self) -> T:
        """Return what is fetched. If one of those who wait is cancelled, the others go on."""
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._task = asyncio.create_task(self._run())
            # Nobody may be left to hear of a failure.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _run(self) -> T:
        return await self._fetch()


class BearerSigner:
    """Sends an access token, which it fetches and keeps until it expires."""

    def __init__(
        self, fetch: Callable[[], Awaitable[AccessToken]], secrets: Mapping[str, Secret]
    ) -> None:
        self._fetch = SharedFetch(fetch)
        self._token: AccessToken | None = None
        self._secrets = dict(secrets)

    @property
    def secrets(self) -> Mapping[str, Secret]:
        return self._secrets

    async def sign_request(self, url: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG002 - a token covers no content
        token = self._token
        if token is None or not token.is_fresh:
            token = self._token = await self._fetch.wait()
        return {"Authorization": f"Bearer {token.value.reveal()}"}


def find_object(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the object at the end of these names; an empty one if there is none."""
    for name in names:
        inner: object = value.get(name)
        value = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    return value


def read_token(answer: Mapping[str, object], service: str) -> AccessToken:
    """Return the token in the answer of an OAuth server. Raises ModelError if there is none."""
    token = answer.get("access_token")
    if not isinstance(token, str) or not token:
        raise ModelError("auth", f"{service} answered without an access token")
    return AccessToken(Secret(token), time.time() + _read_lifetime(answer.get("expires_in")))


def _read_lifetime(value: object) -> float:
    # Some services send numbers as text. A token of unknown age is asked for each time.
    try:
        return float(str(value))
    except ValueError:
        return 0.0


def read_credentials_file(path: Path) -> str:
    """Return the text of a credentials file; empty if there is none. Raises OSError if unusable."""
    try:
        return read_regular_file(path, bytes_max=CREDENTIALS_BYTES_MAX).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def read_machine_facts() -> str:
    """Return what this machine says of its maker; empty if it says nothing.

    A virtual machine of a cloud says which one, so that no metadata service is asked elsewhere:
    there, each attempt would take a second.
    """
    facts: list[str] = []
    for name in ("sys_vendor", "product_name", "chassis_asset_tag"):
        try:
            facts.append((_MACHINE_FOLDER / name).read_text("ascii", "replace").strip())
        except OSError:
            continue
    return "\n".join(facts)
