"""One connection, and the response that comes over it.

Invariant: a connection carries one exchange at a time. It is kept for another only when the request
was sent whole and the response was received to its end, with nothing behind it. A head, a trailer
or a chunk header beyond `HEAD_BYTES_MAX` breaks it. What waits to be read is bounded: the socket is
not read while more than `BUFFER_BYTES_MAX` wait, and a compressed body is inflated piece by piece,
as it is read.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from typing_extensions import override

from windlass.http.errors import HttpError
from windlass.http.inflating import Inflater

HEAD_BYTES_MAX = 65_536
BUFFER_BYTES_MAX = 262_144
PART_BYTES = 262_144
"""A longer request is sent in parts of this size, so that other tasks run in between."""
SUCCESS = range(200, 300)
_INTERIM = range(100, 200)
_SWITCHED = 101
_NO_BODY = (204, 304)
_TOO_LONG = f"the server sent a head of more than {HEAD_BYTES_MAX // 1024} kB"


class Response:
    """A response whose head has come. Read it to its end, or close it."""

    __slots__ = ("_waiter", "chunks", "connection", "error", "headers", "inflater", "status")

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """By name in lower case. Values of headers that came twice are joined by commas."""
        self.chunks: list[bytes] = []
        """What has come and was not read."""
        self.connection: Connection | None = connection
        """None once the response was received to its end, or closed."""
        self.error: HttpError | None = None
        self.inflater: Inflater | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Return what has come since the last read; nothing at the end. Raises HttpError."""
        if self.inflater is not None:
            return await self.inflater.read(self.read_chunks)
        chunks = await self.read_chunks()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def read_chunks(self) -> list[bytes]:
        """Return the same as `read`, divided as it was sent, and compressed if it was."""
        while not self.chunks:
            if self.connection is None and self.error is None:
                return []
            await self.wait()
        chunks, self.chunks = self.chunks, []
        if self.connection is not None:
            self.connection.resume_reading()
        return chunks

    async def read_up_to(self, bytes_max: int) -> bytes:
        """Return the body, and no more of it than `bytes_max`. Raises HttpError."""
        body = bytearray()
        while len(body) < bytes_max and (chunk := await self.read()):
            body += chunk
        return bytes(body[:bytes_max])

    def close(self) -> None:
        """Drop the connection, unless the response was received to its end."""
        if self.connection is not None:
            self.connection.abort()

    async def wait(self) -> None:
        """Wait until more has come. Raises HttpError if nothing comes any more."""
        if self.error is not None:
            raise self.error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Tell who waits that something has happened."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection(asyncio.Protocol):
    """A connection to a server, or to a proxy."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        """None before the connection is made, and after it was lost."""
        self.idle_since = 0.0
        self.on_idle: Callable[[Connection], None] = Connection.abort
        """Called when it can be used for another exchange."""
        self.on_lost: Callable[[Connection], object] | None = None
        self._response: Response | None = None
        self._method = ""
        self._fields: list[bytes] = []
        """Names and values of the headers that are being received, in turn."""
        self._overhead = 0
        """Bytes since the last byte of a body, or since the beginning."""
        self._buffered = 0
        self._body: list[bytes] = []
        """What the parser has found in the read at hand."""
        self.on_body = self._body.append  # Called for each chunk, and so without a call of Python.
        self._ends_with_connection = False
        self._is_sending = False
        self._is_paused = False
        self._drained: asyncio.Future[None] | None = None
        self.reset_parser()

    def reset_parser(self) -> None:
        import httptools  # noqa: PLC0415 - at the first request

        self._parser = httptools.HttpResponseParser(self)
        self._parser_error = httptools.HttpParserError

    async def exchange(self, method: str, head: bytes, body: bytes) -> Response:
        """Send a request, and return its response once the head is there. Raises HttpError."""
        response = self._response = Response(self)
        self._method = method
        self._overhead = self._buffered = 0
        self._ends_with_connection = False
        try:
            if len(body) <= PART_BYTES and self.transport is not None:
                self.transport.write(head + body)
            else:
                await self._send_in_parts(head, body, response)
            while not response.status:
                await response.wait()
        except BaseException:
            self.abort()
            raise
        return response

    async def _send_in_parts(self, head: bytes, body: bytes, response: Response) -> None:
        """Send a large request; stop if the server answers or leaves before it has all of it."""
        self._is_sending = True
        view = memoryview(body)
        for start in range(-PART_BYTES, len(body), PART_BYTES):
            if self.transport is None or response.status or response.connection is None:
                return
            self.transport.write(head if start < 0 else view[start : start + PART_BYTES])
            await (self._drained or asyncio.sleep(0))
        self._is_sending = False

    def abort(self, problem: str = "the connection was closed") -> None:
        """Close the connection at once, whatever was not sent."""
        has_head = self._response is not None and self._response.status
        self._end_response(HttpError("broken" if has_head else "lost", problem))
        if self.transport is not None:
            self.transport.abort()

    def resume_reading(self) -> None:
        """Read from the socket again: what was there is taken."""
        self._buffered = 0
        if self._is_paused and self.transport is not None:
            self._is_paused = False
            self.transport.resume_reading()

    def _end_response(self, error: HttpError | None = None) -> None:
        if self._drained is not None:
            self.resume_writing()
        if (response := self._response) is not None:
            response.chunks += self._body
            self._body.clear()
            self._response = response.connection = None
            response.error = error
            response.wake()

    # What the event loop calls.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.abort()  # Nothing was asked.
            return
        try:
            self._parser.feed_data(data)
        except self._parser_error:
            self.abort("the server sent something that is not HTTP")
            return
        if self._response is None:  # It has ended. What stands behind it is nothing.
            if self._body:
                self.abort()
        elif self._body:
            response.chunks += self._body
            self._body.clear()
            self._overhead = 0
            self._buffered += len(data)
            if self._buffered > BUFFER_BYTES_MAX and self.transport is not None:
                self._is_paused = True
                self.transport.pause_reading()
        else:
            self._overhead += len(data)
            if self._overhead > HEAD_BYTES_MAX:
                self.abort(_TOO_LONG)
        response.wake()

    @override
    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    @override
    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if exc is None and self._ends_with_connection:
            self._end_response()
        self.abort("the server closed the connection")
        del self._parser  # It holds methods of this object, and this object holds it.
        if self.on_lost is not None:
            self.on_lost(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._response is None:
            self.abort()  # A second response to one request.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += (name, value)

    def on_headers_complete(self) -> None:
        fields, self._fields = self._fields, []
        status = self._parser.get_status_code()
        if sum(map(len, fields)) > HEAD_BYTES_MAX:
            self.abort(_TOO_LONG)
        elif status < _INTERIM.start:
            self.abort(f"the server sent {status:03} as its status, which is none")
        elif status == _SWITCHED:
            self.abort("the server switched to another protocol")
        elif self._response is not None and status not in _INTERIM:
            self._response.status = status
            self._take_head(self._response, fields)

    def _take_head(self, response: Response, fields: list[bytes]) -> None:
        headers = response.headers
        for at in range(0, len(fields), 2):
            name = fields[at].decode("ascii", "replace").lower()
            value = fields[at + 1].decode("utf-8", "replace")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        coding = headers.get("transfer-encoding", "chunked").strip().lower()
        self._ends_with_connection = (
            "content-length" not in headers and "transfer-encoding" not in headers
        )
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity") and response.status not in _NO_BODY:
            response.inflater = Inflater(encoding)
        if coding != "chunked":
            self.abort(f"the server used the transfer coding {coding[:40]!r}")
        elif self._method == "CONNECT" and response.status in SUCCESS:
            self._end_response()
        elif self._method == "HEAD":
            self._end_exchange(is_reusable=False)

    def on_message_complete(self) -> None:
        # What comes before a response, such as "100 Continue", has no status here.
        if self._response is not None and self._response.status:
            self._end_exchange(is_reusable=self._parser.should_keep_alive())

    def _end_exchange(self, *, is_reusable: bool) -> None:
        self._fields.clear()  # Trailers.
        self._end_response()
        if is_reusable and not self._is_sending:
            self.resume_reading()
            self.on_idle(self)
        else:
            self.abort()
