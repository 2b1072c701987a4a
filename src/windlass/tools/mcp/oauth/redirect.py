"""The local end of a sign-in: a server on this machine to which the browser returns.

Invariant: it listens on 127.0.0.1 only, for one answer, and believes only one that has the state of
this sign-in. Anything else is refused, and it keeps waiting: a page in the browser could send it.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import msgspec

from windlass.core.errors import ConfigError

SIGN_IN_S = 300.0
"""How long a person may take."""
CALLBACK_PATH = "/callback"
_REQUEST_BYTES_MAX = 16 * 1024
_REQUEST_S = 10.0
_HOST = "127.0.0.1"
_DONE = "You are signed in. This page can be closed."
_FAILED = "The sign-in failed. The terminal says why. This page can be closed."
_UNKNOWN = "This is not the answer to a sign-in that is under way."


class RedirectAnswer(msgspec.Struct, frozen=True):
    """What the browser brought back."""

    code: str = ""
    issuer: str | None = None
    error: str = ""


class RedirectServer:
    """Waits for the one answer with the right state."""

    def __init__(self) -> None:
        self.port = 0
        self._state = ""
        self._answer: asyncio.Future[RedirectAnswer] = asyncio.get_running_loop().create_future()

    @property
    def uri(self) -> str:
        return f"http://{_HOST}:{self.port}{CALLBACK_PATH}"

    def make_state(self) -> str:
        """Return the state that an answer must have from now on."""
        self._state = secrets.token_urlsafe(32)
        return self._state

    async def wait(self) -> RedirectAnswer:
        """Return the answer. Raises ConfigError if it does not come in time."""
        try:
            async with asyncio.timeout(SIGN_IN_S):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            raise ConfigError(f"no one signed in within {SIGN_IN_S:g} s") from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of the browser."""
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._take(head.decode("latin-1"))
                writer.write(_render_page(status, text))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _take(self, head: str) -> tuple[str, str]:
        """Take a request; return the status and the text of its page."""
        line, _, rest = head.partition("\r\n")
        method, _, target = line.partition(" ")
        url = urlsplit(target.partition(" ")[0])
        pairs = (field.partition(":") for field in rest.split("\r\n"))
        fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
        # Another name for this machine would be a page that has its name resolved to it.
        hosts = (f"{_HOST}:{self.port}", f"localhost:{self.port}")
        if method != "GET" or url.path != CALLBACK_PATH or fields.get("host") not in hosts:
            return "404 Not Found", _UNKNOWN
        values = {name: found[0] for name, found in parse_qs(url.query).items()}
        state = values.get("state", "").encode()
        if not self._state or not secrets.compare_digest(state, self._state.encode()):
            return "400 Bad Request", _UNKNOWN
        self._state = ""  # It counts once.
        error = values.get("error", "")
        if error and "error_description" in values:
            error = f"{error}: {values['error_description']}"
        code = values.get("code", "")
        if not self._answer.done():
            self._answer.set_result(RedirectAnswer(code, values.get("iss"), error))
        return "200 OK", _DONE if code and not error else _FAILED


@asynccontextmanager
async def open_redirect(port: int | None) -> AsyncGenerator[RedirectServer]:
    """Listen for the answer of a sign-in, on this port or on any that is free.

    Raises OSError if the port is taken.
    """
    redirect = RedirectServer()
    server = await asyncio.start_server(redirect.serve, _HOST, port or 0, limit=_REQUEST_BYTES_MAX)
    try:
        redirect.port = server.sockets[0].getsockname()[1]
        yield redirect
    finally:
        server.close()
        await server.wait_closed()


def _render_page(status: str, text: str) -> bytes:
    body = f"<!doctype html><title>Windlass</title><p>{text}</p>".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\n\r\n"
    )
    return head.encode() + body
