"""What a sign-in leaves behind, and where it is kept.

Invariant: a record belongs to the address of one server, and is found by nothing else. Its `repr`
shows no token. It is renewed under a lock, so that of two runs only one uses a refresh token, which
many servers take only once.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from windlass.core.messages import TextPart, ToolResult
from windlass.core.secrets.mask import Mask

EXPIRY_MARGIN_S = 30.0
"""Seconds before its end at which a token is renewed: a request takes a while."""


class OAuthClient(msgspec.Struct, frozen=True, omit_defaults=True):
    """The client as an authorization server knows it."""

    client_id: str
    secret: str = ""
    method: str = "none"
    """How it shows its secret: `none`, `client_secret_basic` or `client_secret_post`."""
    redirect_uri: str = ""

    @override
    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r})"


class McpToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """The token for one server, and what renews it."""

    server: str
    """The address of the server, in one form: the token goes nowhere else."""
    resource: str
    """What the authorization server calls it; may be a part of the address."""
    issuer: str
    token_endpoint: str
    client: OAuthClient
    access_token: str
    refresh_token: str = ""
    expires_at: float | None = None
    scope: str = ""
    """The rights that were asked for or granted, so that a wider sign-in keeps them."""
    revocation_endpoint: str = ""

    @override
    def __repr__(self) -> str:
        return f"McpToken(for {self.resource!r}, from {self.issuer!r})"

    @property
    def is_fresh(self) -> bool:
        """Whether it is still good, as far as its time says."""
        return self.expires_at is None or time.time() < self.expires_at - EXPIRY_MARGIN_S

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may be shown nowhere."""
        values = (self.access_token, self.refresh_token, self.client.secret)
        return tuple(value for value in values if value)


class McpTokenStore(Protocol):
    """Keeps the tokens for MCP servers, by the address of the server."""

    def load(self, server: str) -> McpToken | None:
        """Return the newest token, even if another process has written it."""
        ...

    def save(self, token: McpToken) -> None:
        """Keep a token in place of the one before."""
        ...

    def delete(self, server: str) -> None:
        """Forget a token. Does nothing if there is nothing to forget."""
        ...

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        """Let one task at a time renew a token, over all processes that share the store."""
        ...


class MemoryTokens:
    """Keeps tokens as long as the process lives."""

    def __init__(self) -> None:
        self._tokens: dict[str, McpToken] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def load(self, server: str) -> McpToken | None:
        """Return the token for a server, if there is one."""
        return self._tokens.get(server)

    def save(self, token: McpToken) -> None:
        """Keep a token in place of the one before."""
        self._tokens[token.server] = token

    def delete(self, server: str) -> None:
        """Forget a token, if there is one."""
        self._tokens.pop(server, None)

    @asynccontextmanager
    async def lock(self, server: str) -> AsyncGenerator[None]:
        """Let one task at a time renew a token."""
        async with self._locks.setdefault(server, asyncio.Lock()):
            yield


class TokenMask:
    """Masks the tokens that a connection has used, in what the server says."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._mask: Mask | None = None

    def remember(self, token: McpToken) -> None:
        for value in token.secrets:
            if value not in self._values:
                self._values[value] = None
                self._mask = None

    def mask_text(self, text: str) -> str:
        if not self._values:
            return text
        if self._mask is None:
            self._mask = Mask(list(self._values), key_like=False)
        return self._mask.mask_text(text)

    def mask_result(self, result: ToolResult) -> ToolResult:
        """Return a result without the tokens that the server was sent: it may repeat them."""
        if not self._values:
            return result
        content = tuple(
            replace(part, text=self.mask_text(part.text)) if isinstance(part, TextPart) else part
            for part in result.content
        )
        return replace(result, content=content)
