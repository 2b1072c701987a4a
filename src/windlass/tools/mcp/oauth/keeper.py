"""Keeps the token for one MCP server: finds it, renews it, and lets a person sign in for it.

Invariant: a person is asked only if a page can be shown to them, and never twice for what did not
help the first time. Without a person, the error says which command signs in. A token is renewed
under the lock of its store, and only if no other run has renewed it in the meantime.
"""

import asyncio
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from urllib.parse import urlsplit

from windlass.core.errors import ConfigError, NothingToDo, WindlassError
from windlass.core.text_clip import printable_line
from windlass.logs import get_logger
from windlass.tools.breaker import ToolUnavailable
from windlass.tools.mcp.oauth.discovery import (
    Discovered,
    choose_scope,
    discover,
    is_same_issuer,
    join_scopes,
    server_name,
)
from windlass.tools.mcp.oauth.grants import (
    ShowPage,
    TokenRefused,
    authorize,
    find_client,
    request_by_credentials,
    request_token,
    revoke,
)
from windlass.tools.mcp.oauth.redirect import SIGN_IN_S, RedirectServer, open_redirect
from windlass.tools.mcp.oauth.requests import (
    Challenge,
    OAuthRequests,
    check_encrypted,
    origin_of,
)
from windlass.tools.mcp.oauth.settings import McpAuth, McpCredentials, McpSignIn
from windlass.tools.mcp.oauth.tokens import (
    McpToken,
    McpTokenStore,
    MemoryTokens,
    OAuthClient,
    TokenMask,
)

SCOPE_CHARS_MAX = 400
STEP_UPS_MAX = 3
"""How often one connection asks for more rights."""
_log = get_logger(__name__)


class TokenKeeper:
    """The token for one server, for all requests of a connection to it."""

    def __init__(
        self,
        name: str,
        url: str,
        auth: McpAuth | None = None,
        *,
        tokens: McpTokenStore | None = None,
        show_page: ShowPage | None = None,
    ) -> None:
        self.mask = TokenMask()
        self._name = name
        self._url = url
        self._server = server_name(url)
        self._auth: McpAuth = auth or McpSignIn()
        if tokens is None or isinstance(auth, McpCredentials):
            # A program can always get another token.
            tokens = MemoryTokens()
        self._tokens = tokens
        self._show_page = show_page
        self._requests = OAuthRequests(url, self._auth.issuer)
        self._token: McpToken | None = None
        self._was_loaded = False
        self._lock = asyncio.Lock()
        self._untried = ""
        """A token that was just given, and that the server has not taken yet."""
        self._asked_scope = ""
        self._step_ups = 0

    def covers(self, url: str) -> bool:
        """Whether the token may be sent to an address: only to the origin of its server."""
        return origin_of(url) == origin_of(self._url)

    @property
    def patience_s(self) -> float:
        """How much longer a connection may take because a person signs in first."""
        return 0.0 if self._show_page is None else SIGN_IN_S

    async def prepare(self, headers: Mapping[str, str]) -> None:
        """Let the person sign in before the connection is opened, if a page can be shown to them.

        The SDK waits for the first answer of a server for a few seconds only.
        """
        if self._show_page is None:
            return
        token = await self.find_token()
        if token is not None:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        check_encrypted(self._url)
        challenge = await self._requests.ask_challenge(self._url, headers)
        if challenge is not None and not challenge.needs_scope:
            await self.replace_token(token, challenge)

    async def find_token(self) -> str | None:
        """Return the token to send, renewed if it has expired; None without a token."""
        async with self._use():
            if not self._was_loaded:
                self._adopt(await asyncio.to_thread(self._tokens.load, self._server))
                self._was_loaded = True
            token = self._token
            if token is not None and not token.is_fresh and token.refresh_token:
                token = await self._renew(token)
            return None if token is None else token.access_token

    async def replace_token(self, refused: str | None, challenge: Challenge) -> str:
        """Return another token after the server refused one.

        Raises ConfigError if a person must act, and ToolUnavailable if it may work later.
        """
        async with self._use():
            if self._token is None or self._token.access_token == refused:
                # A person may have signed in or out, or another run may have renewed it.
                self._adopt(await asyncio.to_thread(self._tokens.load, self._server))
            token = self._token
            if token is not None and token.access_token != refused and token.is_fresh:
                return token.access_token
            check_encrypted(self._url)
            if challenge.needs_scope:
                token = await self._widen(challenge)
            else:
                token = await self._replace_refused(token, challenge)
            return token.access_token

    def note_accepted(self, token: str | None) -> None:
        """Remember that the server has taken a token."""
        if token == self._untried:
            self._untried = ""

    async def sign_in(self, headers: Mapping[str, str], scope: str = "") -> McpToken:
        """Let the person sign in now, with these scopes in addition to the server's own.

        `headers`: what else the server gets with each request. Raises NothingToDo if it does not
        ask for a sign-in.
        """
        async with self._use():
            check_encrypted(self._url)
            challenge = await self._requests.ask_challenge(self._url, headers)
            return await self._authorize(challenge, scope)

    async def sign_out(self) -> bool:
        """Forget the token, and tell the server that gave it. Return whether there was one."""
        token = await asyncio.to_thread(self._tokens.load, self._server)
        await asyncio.to_thread(self._tokens.delete, self._server)
        self._token = None
        if token is None:
            return False
        try:
            await revoke(self._requests, token)
        except WindlassError as error:
            _log.warning("%s", error)
        return True

    @asynccontextmanager
    async def _use(self) -> AsyncGenerator[None]:
        """One request at a time decides about the token. Errors say which server it is for."""
        server = f"MCP server {self._name!r}"
        async with self._lock:
            try:
                yield
            except ConfigError as error:
                raise ConfigError(f"{server}: {error}") from error
            except ToolUnavailable as error:
                raise ToolUnavailable(f"{server}: {error}") from error

    async def _replace_refused(self, token: McpToken | None, challenge: Challenge) -> McpToken:
        if token is not None and token.access_token == self._untried:
            raise self._problem("it refuses the token that it has just issued")
        if token is not None and token.refresh_token:
            renewed = await self._renew(token)
            if renewed is not None and renewed.access_token != token.access_token:
                return renewed
        return await self._authorize(challenge, "")

    async def _widen(self, challenge: Challenge) -> McpToken:
        """Ask for the rights that a request needs, besides those that were asked for before."""
        before = join_scopes(self._token.scope if self._token else "", self._asked_scope)
        wanted = join_scopes(before, challenge.scope)
        is_known = set(wanted.split()) <= set(self._asked_scope.split())
        if is_known or self._step_ups >= STEP_UPS_MAX:
            rights = printable_line(wanted, SCOPE_CHARS_MAX)
            raise self._problem(f"the sign-in does not cover what this needs ({rights})")
        self._step_ups += 1
        return await self._authorize(challenge, wanted)

    async def _renew(self, token: McpToken) -> McpToken | None:
        """Renew a token; None if the server that gave it does not take it any more."""
        async with self._tokens.lock(self._server):
            latest = await asyncio.to_thread(self._tokens.load, self._server)
            if latest is None or not latest.refresh_token:
                return None
            if latest.access_token != token.access_token and latest.is_fresh:
                self._adopt(latest)  # Another run has renewed it meanwhile.
                return latest
            try:
                form = {"grant_type": "refresh_token", "refresh_token": latest.refresh_token}
                renewed = await request_token(self._requests, latest, form)
            except TokenRefused as error:
                _log.warning("MCP server %s: the token was not renewed: %s", self._name, error)
                return None
            return await self._keep(renewed)

    async def _authorize(self, challenge: Challenge | None, scope: str) -> McpToken:
        auth = self._auth
        if isinstance(auth, McpSignIn) and self._show_page is None:
            reason = "it wants more rights" if scope else "it wants a token"
            raise self._problem(reason, scope=scope)
        found = await discover(self._requests, self._url, challenge or Challenge(), auth.issuer)
        if challenge is None and found.description is None:
            raise NothingToDo(f"MCP server {self._name!r} does not require a sign-in")
        challenge = challenge or Challenge()
        chosen = choose_scope(auth.scope, challenge, found.description, found.server)
        scope = join_scopes(chosen, scope)
        self._asked_scope = scope
        if isinstance(auth, McpCredentials):
            token = await request_by_credentials(self._requests, found, auth, scope)
            return await self._keep(token)
        assert self._show_page is not None  # noqa: S101 - checked above
        async with AsyncExitStack() as stack:
            redirect, known = await self._open_redirect(stack, auth, found)
            client = known or await find_client(self._requests, auth, found.server, redirect.uri)
            token = await authorize(self._requests, found, client, scope, redirect, self._show_page)
        return await self._keep(token)

    async def _open_redirect(
        self, stack: AsyncExitStack, auth: McpSignIn, found: Discovered
    ) -> tuple[RedirectServer, OAuthClient | None]:
        """Listen for the answer, at the address that a client of ours was registered with."""
        token = self._token
        if (
            token is not None
            and token.client.redirect_uri
            and is_same_issuer(token.issuer, found.server.issuer)
        ):
            port = urlsplit(token.client.redirect_uri).port
            with suppress(OSError):  # Another program may have the port by now.
                return await stack.enter_async_context(open_redirect(port)), token.client
        try:
            return await stack.enter_async_context(open_redirect(auth.redirect_port)), None
        except OSError:
            port = auth.redirect_port or "of the redirect"
            raise ConfigError(f"the port {port} on this machine is taken") from None

    async def _keep(self, token: McpToken) -> McpToken:
        self._adopt(token)
        self._untried = token.access_token
        await asyncio.to_thread(self._tokens.save, token)
        return token

    def _adopt(self, token: McpToken | None) -> None:
        self._token = token
        if token is not None:
            self.mask.remember(token)

    def _problem(self, reason: str, *, scope: str = "") -> ConfigError:
        if isinstance(self._auth, McpCredentials):
            return ConfigError(reason)
        # Words of others, which a person may copy to a shell.
        command = f"windlass mcp login {shlex.quote(printable_line(self._name))}"
        if scope:
            command += f" --scope {shlex.quote(printable_line(scope, SCOPE_CHARS_MAX))}"
        return ConfigError(f"{reason}. To sign in: {command}")
