"""How a request gets its credentials when they are not a fixed key: a signature or a token.

Credentials are found and refreshed by the cloud's own library, which is an extra. It runs in a
thread, because it blocks; requests are sent and signed by Windlass.

Invariant: tokens and signatures exist only in the headers of a request. They are in no error, no
record and no file. A token is fetched again before it expires, and no more often than that.
"""

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from windlass.core.errors import ConfigError, ModelError
from windlass.core.secrets.mask import Secret
from windlass.models.http.provider_errors import mask_keys

REFRESH_BEFORE_S = 300.0
"""A token is replaced this long before it expires, so that no request carries an expired one."""
SIGN_IN_S = 60.0
"""How long a library may take: a `credential_process` may ask a person first."""
REASON_CHARS_MAX = 300
T = TypeVar("T")
_MACHINE_FOLDER = Path("/sys/class/dmi/id")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, and when it expires in seconds since the epoch."""

    value: Secret
    expires_at: float

    @property
    def is_fresh(self) -> bool:
        return time.time() < self.expires_at - REFRESH_BEFORE_S


class SharedFetch(Generic[T]):
    """One fetch for all who wait for it: requests that begin together fetch one token."""

    def __init__(self, fetch: Callable[[], Awaitable[T]]) -> None:
        self._fetch = fetch
        self._task: asyncio.Task[T] | None = None

    async def wait(self) -> T:
        """Return what is fetched. If one of the waiters is cancelled, the others keep waiting."""
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._task = asyncio.create_task(self._run())
            # Every waiter may have been cancelled by the time it fails.
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


def import_library(module: str, extra: str, what: str) -> ModuleType:
    """Import a cloud's library. Raises ConfigError, which names the extra, if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigError(f"{what}: pip install 'windlass[{extra}]'") from None


async def call_library(service: str, work: Callable[[], T]) -> T:
    """Let a library look for credentials, in a thread. Raises ModelError.

    A library that does not answer within `SIGN_IN_S` is left behind in its thread.
    """
    try:
        return await asyncio.wait_for(asyncio.to_thread(work), SIGN_IN_S)
    except TimeoutError:
        message = f"{service} did not answer within {SIGN_IN_S:.0f} s"
        raise ModelError("network", message) from None
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - each library has its own kinds of errors
        kind = "network" if _is_transport_error(error) else "auth"
        raise ModelError(kind, f"{service} failed: {_describe(error)}") from None


def _is_transport_error(error: BaseException) -> bool:
    """Whether the network failed, rather than the credentials."""
    return any(
        isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | PermissionError)
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _describe(error: Exception) -> str:
    """Return the error of a library in one line, bounded, without keys."""
    text = " ".join(str(error).split()) or type(error).__name__
    return mask_keys(text[:REASON_CHARS_MAX])


def read_machine_facts() -> str:
    """Return what the firmware reports about this machine's maker; empty if it reports nothing.

    A virtual machine of a cloud names its cloud there, so that no metadata service is asked on
    other machines: each attempt would take a second.
    """
    facts: list[str] = []
    for name in ("sys_vendor", "product_name", "chassis_asset_tag"):
        try:
            facts.append((_MACHINE_FOLDER / name).read_text("ascii", "replace").strip())
        except OSError:
            continue
    return "\n".join(facts)
