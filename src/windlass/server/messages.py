"""Requests and replies as handlers see them, whichever server carries them.

Invariant: a handler never sees aiohttp or ASGI. A reply that streams is an iterator of bytes; when
the client goes away the iterator is closed, and nothing else happens.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import msgspec
from msgspec import UNSET

from windlass.core.json_repair.strict import has_many_keys
from windlass.server.access import Caller
from windlass.server.errors import ApiError, ErrorBody, ErrorReply
from windlass.server.session_directory import OwnedSession

__all__ = [
    "JSON_TYPE",
    "SSE_TYPE",
    "ApiError",
    "ErrorBody",
    "ErrorReply",
    "HttpReply",
    "HttpRequest",
    "Reply",
    "StreamReply",
    "check_keys",
    "close_unread",
    "convert_query",
    "decode_json",
    "encode_json",
    "error_headers",
    "error_reply",
]

T = TypeVar("T")
BODY_KEYS_MAX = 100_000
"""Keys, objects and lists in the body of a request."""
JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream"
_TRACE_PARENT = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
"""A header `traceparent` of W3C that names a trace."""
CountBytes = Callable[[int], None]
ReadBody = Callable[[int, CountBytes], Awaitable[bytes]]


def _count_nothing(_size: int) -> None:
    """Count a body that has no caller: its route takes little."""


def _encode_sequence(value: object) -> object:
    """Return a sequence of ours as a list: the logs of a projection are such."""
    if isinstance(value, Sequence):
        return list(cast("Sequence[object]", value))
    raise NotImplementedError


encode_json = msgspec.json.Encoder(decimal_format="string", enc_hook=_encode_sequence).encode


class HttpReply(msgspec.Struct, frozen=True):
    """A whole reply. `body` is bytes, or anything that has a JSON form."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = {}
    content_type: str = JSON_TYPE
    on_close: Callable[[], None] | None = None
    """Called once when the reply was sent, or its client is gone."""

    async def close(self) -> None:
        """Notify the waiters for the end of the reply."""
        if self.on_close is not None:
            self.on_close()

    def encode_body(self) -> bytes:
        """Return the bytes of the body."""
        if isinstance(self.body, bytes):
            return self.body
        # A terminal shows its prompt on a line of its own.
        return encode_json(self.body) + b"\n"


@runtime_checkable
class ClosableChunks(Protocol):
    """An iterator that has to be closed, as generators have."""

    async def aclose(self) -> None: ...


class StreamReply(msgspec.Struct, frozen=True):
    """A reply that is written piece by piece. Closing the client closes `chunks`."""

    chunks: AsyncIterator[bytes]
    status: int = 200
    content_type: str = SSE_TYPE
    headers: Mapping[str, str] = {}
    keep_alive: bytes = b":\n\n"
    """What is written when nothing else was for a while: by default a comment."""
    on_close: Callable[[], None] | None = None
    """Called once when the reply is over, even if nothing of it was sent."""

    async def close(self) -> None:
        """End the iterator, and notify its waiters."""
        try:
            if isinstance(self.chunks, ClosableChunks):
                await self.chunks.aclose()
        finally:
            if self.on_close is not None:
                self.on_close()


Reply = HttpReply | StreamReply
_closing: set["asyncio.Future[None]"] = set()


def close_unread(answering: "asyncio.Task[Reply]") -> None:
    """Close a reply that was made for a client that is not there any more."""
    if answering.cancelled() or answering.exception() is not None:
        return
    _closing.add(task := asyncio.ensure_future(answering.result().close()))
    task.add_done_callback(_closing.discard)


def error_reply(error: ApiError) -> HttpReply:
    """Return an error in the shape of this API."""
    decision = error.decision or UNSET
    body = ErrorReply(ErrorBody(error.code, error.message, error.hint, decision))
    return HttpReply(error.status, body, error_headers(error))


def error_headers(error: ApiError) -> dict[str, str]:
    """Return the headers of an error, in whichever shape its body is."""
    headers = dict(error.headers)
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.status == 401:  # noqa: PLR2004 - the status that asks for credentials
        headers.setdefault("WWW-Authenticate", 'Bearer realm="windlass"')
    return headers


class HttpRequest:
    """A request. Path parameters and the caller are filled in before the handler sees it."""

    prefix: str = ""
    """The path under which clients reach the service, such as `/ai`; empty at the root."""
    public_url: str = ""
    """The address that the operator gave the service, if there is one."""

    def __init__(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, list[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        read_body: ReadBody | None = None,
        remote: str = "",
        scheme: str = "http",
        target_host: str = "",
    ) -> None:
        """Make a request. `path` is percent-encoded; the names of `headers` are in lower case.

        `read_body` reads at most the given number of bytes, and counts them as they arrive.
        """
        self.method = method
        self.path = path
        """Within the service, without `prefix`; empty if the target is the prefix itself."""
        self.params: dict[str, str] = {}
        """Parameters of the path, decoded."""
        self.query_lists: Mapping[str, list[str]] = query or {}
        self.headers: Mapping[str, str] = headers or {}
        self.remote = remote
        self.scheme = scheme
        self.target_host = target_host
        """The host and port in the target of the request, if it is a whole address."""
        self.body_bytes_max = 0
        """What the service takes of the body, by its route."""
        self.count_bytes: CountBytes = _count_nothing
        """Counts the bytes of the body for its caller. Raises ApiError 429 if it has too many."""
        self.check_caller: Callable[[], Awaitable[None]] | None = None
        """Raises ApiError 401 if the token of the caller ended while the body arrived."""
        self.request_id = ""
        self._caller: Caller | None = None
        self._session: OwnedSession | None = None
        self._read_body = read_body
        self._body: bytes | None = None
        self._disconnected = asyncio.Event()
        self._body_read = asyncio.Event()

    @property
    def caller(self) -> Caller:
        """On whose behalf the request is made. Raises RuntimeError where no token is needed."""
        if self._caller is None:
            raise RuntimeError("this route needs no token, so its requests have no caller")
        return self._caller

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def has_caller(self) -> bool:
        return self._caller is not None

    @property
    def session(self) -> OwnedSession:
        """The session that the path names. Raises RuntimeError on routes of another scope."""
        if self._session is None:
            raise RuntimeError("this route names no session in its path")
        return self._session

    @session.setter
    def session(self, session: OwnedSession) -> None:
        self._session = session

    @property
    def session_name(self) -> str:
        """The full name of that session; what the path says before it was found, or nothing."""
        return self._session.name if self._session is not None else self.params.get("session", "")

    @property
    def query(self) -> Mapping[str, str]:
        """The query; of a parameter that is given twice, the last value."""
        return {name: values[-1] for name, values in self.query_lists.items()}

    def header(self, name: str, default: str = "") -> str:
        """Return a header by its name in any case."""
        return self.headers.get(name.lower(), default)

    @property
    def trace(self) -> str:
        """The trace that the client belongs to, as a `traceparent`; empty if it names none.

        A header that cannot be used is ignored, as the standard says.
        """
        header = self.header("traceparent").strip().lower()
        return header if _TRACE_PARENT.fullmatch(header) else ""

    @property
    def base_url(self) -> str:
        """Where people reach the service: its public address, or that of this request."""
        host = self.header("host", "localhost")
        return self.public_url.rstrip("/") or f"{self.scheme}://{host}{self.prefix}"

    def accepts(self, content_type: str) -> bool:
        """Return whether the client names this type in its `Accept` header."""
        return content_type in self.header("accept")

    async def read_body(self) -> bytes:
        """Return the body. Raises ApiError 413 if it is longer than the service takes.

        Also raises ApiError 401 if the token of the caller ended while the body arrived.
        """
        if self._body is None:
            if self._read_body is None:
                self._body = b""
            else:
                body = await self._read_body(self.body_bytes_max, self.count_bytes)
                if self.check_caller is not None:
                    await self.check_caller()
                self._body = body
            self._body_read.set()
        return self._body

    def skip_body(self) -> None:
        """Mark the body as one that will not be read."""
        self._body_read.set()

    async def decode(self, kind: type[T]) -> T:
        """Return the body as a value of a type. Raises ApiError 400, 413, 415 or 422."""
        content_type = self.header("content-type", JSON_TYPE).partition(";")[0].strip().lower()
        if content_type != JSON_TYPE:
            raise ApiError(
                415,
                "json_expected",
                f"The body has the type {content_type[:100]!r}, and this route reads JSON.",
                "Send it with the header Content-Type: application/json.",
            )
        body = await self.read_body()
        return decode_json(body or b"{}", kind)

    def decode_query(self, kind: type[T]) -> T:
        """Return the query as a value of a type. Raises ApiError 422 if it does not fit."""
        return convert_query(self.query_lists, kind)

    async def wait_body(self) -> None:
        """Return when the body was read, or when it will not be read."""
        await self._body_read.wait()

    async def wait_disconnect(self) -> None:
        """Return when the client has gone away."""
        await self._disconnected.wait()

    async def outlast(self, work: Coroutine[Any, Any, None]) -> bool:
        """Wait for work to be done; if the client goes away first, cancel it and return False."""
        working = asyncio.create_task(work)
        leaving = asyncio.create_task(self.wait_disconnect())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            return working.done()
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    def mark_disconnected(self) -> None:
        """Say that the client has gone away; for the server that carries the request."""
        self._disconnected.set()


def check_keys(body: bytes) -> None:
    """Raise ApiError 413 if JSON has more keys, objects and lists than the service decodes."""
    if has_many_keys(body, BODY_KEYS_MAX):
        # Decoding it would stop all other requests for seconds.
        raise ApiError(
            413,
            "too_many_keys",
            f"The body has more than {BODY_KEYS_MAX} keys and lists.",
            "Send less at once, or send it as text.",
        )


def decode_json(body: bytes, kind: type[T]) -> T:
    """Return JSON as a value of a type. Raises ApiError 400, 413 or 422."""
    check_keys(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ApiError(
            422,
            "invalid_request",
            f"The body does not fit: {error}.",
            "Compare it with the schema of this route in /openapi.json.",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(
            400, "invalid_json", f"The body is not JSON: {error}.", "Send a JSON object."
        ) from None


def convert_query(query: Mapping[str, list[str]], kind: type[T]) -> T:
    """Return the parameters of a query as a struct. Raises ApiError 422 if they do not fit."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}  # pyright: ignore[reportArgumentType] - always a struct
    values: dict[str, Any] = {}
    for name, given in query.items():
        if name not in fields:
            known = ", ".join(sorted(fields)) or "none"
            raise ApiError(
                422,
                "unknown_parameter",
                f"There is no query parameter {name[:100]!r} here.",
                f"Known parameters: {known}.",
            )
        takes_many = msgspec.inspect.type_info(fields[name].type)
        is_list = isinstance(takes_many, msgspec.inspect.VarTupleType | msgspec.inspect.ListType)
        values[name] = given if is_list else given[-1]
    try:
        return msgspec.convert(values, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(
            422, "invalid_parameter", f"The query does not fit: {error}.", "See /openapi.json."
        ) from None
