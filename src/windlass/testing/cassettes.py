"""Real HTTP, recorded once and played back in every test.

    async with Cassette("hello.jsonl", upstream="https://api.openai.com/v1") as cassette:
        agent = Agent("openai:gpt-5", base_url=cassette.url)

If the file exists, it is played back over HTTP on this machine, without network and without a key.
If it does not exist, `record=True` forwards the requests to `upstream` and writes the file (its
format is in `tape.py`). Delete the file to record it again. `with` works too, for synchronous code.

Invariant: the test makes exactly the recorded requests, in the recorded order. The first request
that differs is answered with an error that names the difference, and the block then fails the test,
even if the code under test swallowed that error.
"""

import asyncio
import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.environ import read_process_environment
from windlass.http.client import send_request
from windlass.http.connection import Response
from windlass.http.errors import HttpError
from windlass.http.urls import find_proxy
from windlass.testing.clock import VirtualLoop
from windlass.testing.fault_server import FaultServer, ReceivedRequest, serve_in_thread
from windlass.testing.tape import (
    HttpExchange,
    TapePiece,
    TapeRequest,
    TapeResponse,
    end_to_end_headers,
    first_difference,
    kept_response_headers,
    load_tape,
    mask_url_user,
    record_request,
    save_tape,
)
from windlass.testing.wire import WireAct, WireAnswer, drop, hang_up, refuse_with, stall, wait

CONNECT_TIMEOUT_S = 30.0
_STATUSES_WITHOUT_BODY = frozenset((HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))


class CassetteMismatch(AssertionError):
    """The requests of a test are not the recorded ones. The message names the first difference."""


class Cassette:
    """HTTP traffic that is recorded once and then replayed.

    Enter it with `with` or `async with`, and pass `cassette.url` to the model as its `base_url`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        upstream: str = "",
        record: bool = False,
        paced: bool = False,
    ) -> None:
        """Open a recording, or prepare to make one.

        Args:
            path: the file of the recording.
            upstream: the real base URL; needed only to record.
            record: whether to record if the file does not exist. A block that raises while it
                records writes no file.
            paced: replay with the pauses of the recording. By default nothing waits.

        Raises:
            ConfigError: the file does not exist and `record` or `upstream` is missing, or the file
                is not a cassette.
        """
        self.path = Path(path)
        self.mode: Literal["replay", "record"] = "replay" if self.path.exists() else "record"
        self._thread: AbstractContextManager[FaultServer] | None = None
        if self.mode == "replay":
            self._server: _ReplayServer | _RecordingServer = _ReplayServer(self.path, paced=paced)
            return
        if not record:
            fix = "Pass record=True once, with a key, and commit the file that it writes."
            raise ConfigError(f"The cassette {self.path} does not exist. {fix}")
        if not upstream:
            raise ConfigError("record=True needs upstream=, such as https://api.openai.com/v1.")
        self._server = _RecordingServer(self.path, upstream.rstrip("/"))

    @property
    def url(self) -> str:
        """The base URL to pass to the model. It is known once the cassette is entered."""
        return self._server.url

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.stop()
        self._server.close(error)

    def __enter__(self) -> Self:
        self._thread = serve_in_thread(self._server)
        self._thread.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.__exit__(None, None, None)
        self._server.close(error)


class _ReplayServer(FaultServer):
    """Answers with the recorded responses while the requests match the recording."""

    def __init__(self, path: Path, *, paced: bool) -> None:
        super().__init__()
        self._path = path
        self._paced = paced
        self._exchanges = load_tape(path)
        self._mismatch: str | None = None

    @override
    async def _send_answer(
        self,
        answer: WireAnswer,
        http_request: ReceivedRequest,
        reader: Any,
        writer: asyncio.StreamWriter,
    ) -> None:
        await super()._send_answer(self._next_answer(http_request), http_request, reader, writer)

    def _next_answer(self, request: ReceivedRequest) -> WireAnswer:
        """Return the recorded answer, or the mismatch as an HTTP error."""
        at = len(self.requests) - 1
        if self._mismatch is None and at >= len(self._exchanges):
            self._mismatch = f"{self._path} has {_count_requests(at)}, and one more was made"
        elif self._mismatch is None and (differs := self._find_difference(request, at)):
            fix = "If the change is intended, delete the file and record it again."
            self._mismatch = (
                f"request {at + 1} differs from the one in {self._path}: {differs}. {fix}"
            )
        # After a mismatch every request gets the same error: later ones would only differ more.
        if self._mismatch is not None:
            return refuse_with(400, {"error": {"message": self._mismatch}})
        return _recorded_answer(self._exchanges[at], paced=self._paced)

    def _find_difference(self, request: ReceivedRequest, at: int) -> str | None:
        recorded = self._exchanges[at].request
        made, _ = _tape_request(request)
        if (recorded.method, recorded.path) != (made.method, made.path):
            return f"recorded {recorded.method} {recorded.path}, asked {made.method} {made.path}"
        return first_difference(recorded.body, made.body)

    def close(self, error: BaseException | None) -> None:
        """Raise CassetteMismatch if the test did not make the recorded requests."""
        # A cancel or an interrupt of the test is not hidden behind a mismatch.
        if isinstance(error, Exception | None):
            made = len(self.requests)
            recorded = len(self._exchanges)
            if error is None and self._mismatch is None and made < recorded:
                self._mismatch = (
                    f"{self._path} has {_count_requests(recorded)}, but {made} were made"
                )
            if self._mismatch is not None:
                raise CassetteMismatch(self._mismatch) from error


class _RecordingServer(FaultServer):
    """Forwards requests to the real server and keeps both sides of the conversation."""

    def __init__(self, path: Path, upstream: str) -> None:
        super().__init__()
        self._path = path
        self._upstream = upstream
        self._exchanges: list[HttpExchange] = []
        self._secrets: set[bytes] = set()

    @override
    async def _send_answer(
        self,
        answer: WireAnswer,
        http_request: ReceivedRequest,
        reader: Any,
        writer: asyncio.StreamWriter,
    ) -> None:
        request, secrets = _tape_request(http_request)
        self._secrets |= secrets
        exchange = HttpExchange(request)
        self._exchanges.append(exchange)
        relaying = asyncio.ensure_future(self._relay_request(http_request, exchange, writer))
        leaving = asyncio.ensure_future(reader.client_left.wait())
        try:
            with _hold_virtual_time():
                await asyncio.wait((relaying, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not relaying.done():
                http_request.client_left.set()
                raise ConnectionAbortedError
            if (refusal := await relaying) is not None:
                # The real server was not reached, so there is nothing to record.
                self._exchanges.remove(exchange)
                await super()._send_answer(refusal, http_request, reader, writer)
        finally:
            for task in (relaying, leaving):
                task.cancel()
            await asyncio.gather(relaying, leaving, return_exceptions=True)

    async def _relay_request(
        self, request: ReceivedRequest, exchange: HttpExchange, writer: asyncio.StreamWriter
    ) -> WireAnswer | None:
        """Forward one request and copy the response back.

        Returns an answer to send instead if the real server could not be reached.
        """
        # Uncompressed, so that the file can be read and secrets in it can be found.
        headers = end_to_end_headers(request.headers) | {"accept-encoding": "identity"}
        began = time.monotonic()
        try:
            response = await send_request(
                request.method,
                self._upstream + _path_below_base(request.path),
                headers=headers,
                body=request.body or None,
                connect_s=CONNECT_TIMEOUT_S,
                proxy=find_proxy(self._upstream, read_process_environment()),
            )
            try:
                after_s = round(time.monotonic() - began, 3)
                kept = kept_response_headers(response.headers)
                exchange.response = TapeResponse(response.status, kept, after_s)
                await _copy_response_body(response, exchange, writer)
            finally:
                response.close()
        except (HttpError, TimeoutError) as error:
            if exchange.response is not None:
                exchange.how = "broken"
                raise ConnectionResetError from error
            upstream = mask_url_user(self._upstream)
            reason = str(error) or f"no connection within {CONNECT_TIMEOUT_S:g} s"
            message = f"The cassette cannot reach {upstream}: {reason}."
            return refuse_with(502, {"error": {"message": message}})
        return None

    def close(self, error: BaseException | None) -> None:
        """Write the file, if the test passed."""
        if error is None and self._exchanges:
            save_tape(self._path, self._upstream, self._exchanges, self._secrets)


async def _copy_response_body(
    response: Response, exchange: HttpExchange, writer: asyncio.StreamWriter
) -> None:
    """Copy each piece of a response to the client and into the recording."""
    assert exchange.response is not None
    head = _answer_head(exchange.response)
    writer.write(head.encode_head())
    last = time.monotonic()
    while chunks := await response.read_chunks():
        for content in chunks:
            now = time.monotonic()
            exchange.pieces.append(TapePiece.from_bytes(content, round(now - last, 3)))
            last = now
            writer.write(b"%x\r\n%b\r\n" % (len(content), content))
        await writer.drain()
    # Set before the client sees the end: it may close, and the test may end, at that moment.
    exchange.how = "whole"
    writer.write(b"0\r\n\r\n" if head.chunked else b"")
    await writer.drain()


def _hold_virtual_time() -> AbstractContextManager[None]:
    """Make virtual time wait for the real server, so that no time-out of the test jumps ahead."""
    loop = asyncio.get_running_loop()
    return loop.clock.hold_time() if isinstance(loop, VirtualLoop) else nullcontext()


def _tape_request(request: ReceivedRequest) -> tuple[TapeRequest, set[bytes]]:
    path = _path_below_base(request.path)
    return record_request(request.method, path, request.headers, request.body)


def _path_below_base(path: str) -> str:
    """Return the path below the base URL, which ends in /v1 on this machine."""
    return path.removeprefix("/v1")


def _count_requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _answer_head(response: TapeResponse) -> WireAnswer:
    """Return an answer without a body yet. It is chunked if its status may have a body."""
    chunked = response.status not in _STATUSES_WITHOUT_BODY
    return WireAnswer(
        status=response.status, headers=tuple(response.headers.items()), chunked=chunked
    )


def _recorded_answer(exchange: HttpExchange, *, paced: bool) -> WireAnswer:
    """Return the response as it was recorded, including how it broke off."""
    response = exchange.response
    if response is None:
        return hang_up(stall())
    acts: list[WireAct] = []
    for piece in exchange.pieces:
        if paced:
            acts.append(wait(piece.after_s))
        acts.append(piece.content)
    if exchange.how == "broken":
        acts.append(drop())
    elif exchange.how == "left":
        acts.append(stall())
    before = (wait(response.after_s),) if paced else ()
    return replace(_answer_head(response), before=before, acts=tuple(acts))
