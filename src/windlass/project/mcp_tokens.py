"""The tokens for MCP servers at which a person has signed in, among their secrets.

Invariant: a token is a value of the secret store, so it is in no file of ours. Of all processes of
this user, one at a time renews it.
"""

import asyncio
import fcntl
import hashlib
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from windlass.core.errors import ConfigError, NothingToDo
from windlass.environ import xdg_folder
from windlass.private_files import make_private_folder
from windlass.project.secrets import SecretStore
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.mcp.oauth.tokens import McpToken

NAME_PREFIX = "MCP_LOGIN_"
LOCK_S_MAX = 60.0
"""How long another process may take to renew a token."""
LOCK_WAIT_S = 0.05
_NAME_CHARS_MAX = 60


class SecretTokens:
    """Keeps tokens in a secret store (`McpTokenStore`)."""

    def __init__(self, secrets: SecretStore | None = None, locks: Path | None = None) -> None:
        self._secrets = secrets or SecretStore()
        self._locks = locks or xdg_folder("STATE", ".local/state") / "locks"

    def load(self, server: str) -> McpToken | None:
        """Return the token for a server. Raises ConfigError if it cannot be read."""
        name = token_name(server)
        text = self._secrets.find_again(name)
        if text is None:
            return None
        try:
            token = msgspec.json.decode(text, type=McpToken)
        except msgspec.MsgspecError:
            raise ConfigError(f"the secret {name} is not a token that Windlass has kept") from None
        if token.server != server:
            raise ConfigError(f"the secret {name} is a token for another server")
        self._reveal(token)
        return token

    def save(self, token: McpToken) -> None:
        """Keep a token. Raises ConfigError if the system has no store of secrets."""
        self._reveal(token)
        self._secrets.save_value(token_name(token.server), msgspec.json.encode(token).decode())

    def delete(self, server: str) -> None:
        """Forget the token for a server, if there is one."""
        with suppress(NothingToDo):
            self._secrets.delete(token_name(server))

    @asynccontextmanager
    async def lock(self, server: str) -> AsyncGenerator[None]:
        """Hold the lock for a token. It is the kernel's, so it is free when its holder dies."""
        make_private_folder(self._locks)
        path = self._locks / token_name(server)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            await _wait_for_lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _reveal(self, token: McpToken) -> None:
        name = token_name(token.server)
        for value in token.secrets:
            digest = hashlib.blake2b(value.encode(), digest_size=4).hexdigest()
            self._secrets.note_revealed(f"{name}_{digest}", value)


async def _wait_for_lock(descriptor: int) -> None:
    # The lock does not notify when it is free.
    try:
        async with asyncio.timeout(LOCK_S_MAX):
            while not _try_lock(descriptor):  # noqa: ASYNC110
                await asyncio.sleep(LOCK_WAIT_S)
    except TimeoutError:
        raise ToolUnavailable("another process has been renewing the token for too long") from None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def token_name(server: str) -> str:
    """Return the name of the secret that is the token for a server: a host, and a hash."""
    host = re.sub(r"[^A-Za-z0-9]+", "_", urlsplit(server).hostname or "")[:_NAME_CHARS_MAX]
    digest = hashlib.blake2b(server.encode(), digest_size=8).hexdigest()
    return f"{NAME_PREFIX}{host}_{digest}"
