"""Real HTTP, recorded once and played back in every test (V1).

    async with Cassette("hello.jsonl", upstream="https://api.openai.com/v1") as cassette:
        agent = Agent("openai:gpt-5", base_url=cassette.url)

If the file exists, it is played back over HTTP on this machine, with no network and no key. If it
does not, `record=True` passes the requests on to `upstream` and writes it (see `tape.py`); delete
the file to record it anew. `with` works too, for code that is not async.

The law: the test asks what was asked when the cassette was recorded, in that order, all of it and
nothing else. The first difference is the answer to that request, and fails the test at the end of
the block, whatever the code under test made of it.
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
    """What was asked is not what was recorded."""


class Cassette:
    """Recorded HTTP: enter it, and give `cassette.url` to the model as its `base_url`.

    `paced=True` plays back with the pauses of the recording; without it, nothing waits. A block
    that raises while it records leaves no file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        upstream: str = "",
        record: bool = False,
        paced: bool = False,
    ) -> None:
        self.path = Path(path)
        self.mode: Literal["replay", "record"] = "replay" if self.path.exists() else "record"
        self._thread: AbstractContextManager[FaultServer] | None = None
        if self.mode == "replay":
            self._server: _ReplayServer | _RecordingServer = _ReplayServer(self.path, paced=paced)
            return
        if not record:
            fix = "pass record=True once, with a key, and keep the file that it writes"
            raise ConfigError(f"there is no cassette {self.path}: {fix}.")
        if not upstream:
            raise ConfigError("record=True needs upstream=, such as https://api.openai.com/v1.")
        self._server = _RecordingServer(self.path, upstream.rstrip("/"))

    @property
    def url(self) -> str:
        """The base URL to ask."""
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
    """Answers with what was recorded, as long as that is what is asked."""

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

    def _next_answer(self, asked: ReceivedRequest) -> WireAnswer:
        at = len(self.requests) - 1
        if self._mismatch is None and at >= len(self._exchanges):
            self._mismatch = f"{self._path} has {_count_requests(at)}, and one more was made"
        elif self._mismatch is None and (differs := self._find_difference(asked, at)):
            fix = "Delete the file and record it anew if that is meant."
            self._mismatch = f"request {at + 1} is not the one in {self._path}: {differs}. {fix}"
        if self._mismatch is not None:
            return refuse_with(400, {"error": {"message": self._mismatch}})
        return _recorded_answer(self._exchanges[at], paced=self._paced)

    def _find_difference(self, asked: ReceivedRequest, at: int) -> str | None:
        recorded, made = self._exchanges[at].request, _tape_request(asked)[0]
        before, now = f"{recorded.method} {recorded.path}", f"{made.method} {made.path}"
        if before != now:
            return f"recorded {before}, asked {now}"
        return first_difference(recorded.body, made.body)

    def close(self, error: BaseException | None) -> None:
        """Fail the test if it did not ask what was recorded."""
        if isinstance(error, Exception | None):
            made, recorded = len(self.requests), len(self._exchanges)
            if error is None and self._mismatch is None and made < recorded:
                self._mismatch = (
                    f"{self._path} has {_count_requests(recorded)}, and {made} were made"
                )
            if self._mismatch is not None:
                raise CassetteMismatch(self._mismatch) from error


class _RecordingServer(FaultServer):
    """Passes requests on, and keeps what is said."""

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
        leaving = asyncio.ensure_future(reader.left.wait())
        try:
            with _hold_virtual_time():
                await asyncio.wait((relaying, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not relaying.done():
                http_request.client_left.set()
                raise ConnectionAbortedError
            if (refusal := await relaying) is not None:
                self._exchanges.remove(exchange)
                await super()._send_answer(refusal, http_request, reader, writer)
        finally:
            for task in (relaying, leaving):
                task.cancel()
            await asyncio.gather(relaying, leaving, return_exceptions=True)

    async def _relay_request(
        self, asked: ReceivedRequest, exchange: HttpExchange, writer: asyncio.StreamWriter
    ) -> WireAnswer | None:
        """Pass on one request, and what comes back; an answer if nothing can come back."""
        import aiohttp  # noqa: PLC0415 - only a recording needs it

        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        headers = end_to_end_headers(asked.headers) | {"Accept-Encoding": "identity"}
        began = time.monotonic()
        try:
            async with (
                aiohttp.ClientSession(timeout=limit, trust_env=True) as session,
                session.request(
                    asked.method,
                    self._upstream + _path_below_base(asked.path),
                    data=asked.body,
                    headers=headers,
                    allow_redirects=False,
                ) as response,
            ):
                kept, pause_s = kept_response_headers(response.headers), time.monotonic() - began
                exchange.response = TapeResponse(response.status, kept, round(pause_s, 3))
                await _copy_response_body(response, exchange, writer)
        except aiohttp.ClientError as error:
            if exchange.response is not None:
                exchange.how = "broken"
                raise ConnectionResetError from error
            told = f"the cassette cannot reach {mask_url_user(self._upstream)} ({type(error).__name__})"
            return refuse_with(502, {"error": {"message": told}})
        return None

    def close(self, error: BaseException | None) -> None:
        """Keep the recording of a test that passed."""
        if error is None and self._exchanges:
            save_tape(self._path, self._upstream, self._exchanges, self._secrets)


async def _copy_response_body(
    response: Any,  # noqa: ANN401 - aiohttp's, which is imported only to record
    exchange: HttpExchange,
    writer: asyncio.StreamWriter,
) -> None:
    """Each piece of a response, to the client and onto the tape."""
    assert exchange.response is not None
    head = _answer_head(exchange.response)
    writer.write(head.encode_head())
    last = time.monotonic()
    while not response.content.at_eof():
        content, _ = await response.content.readchunk()
        if content:
            now = time.monotonic()
            exchange.pieces.append(TapePiece.from_bytes(content, round(now - last, 3)))
            last = now
            writer.write(b"%x\r\n%b\r\n" % (len(content), content))
            await writer.drain()
    # Before the client can know: it may be gone, and the test over, at once.
    exchange.how = "whole"
    writer.write(b"0\r\n\r\n" if head.chunked else b"")
    await writer.drain()


def _hold_virtual_time() -> AbstractContextManager[None]:
    """A real server is waited for, and not jumped over, where time is virtual."""
    loop = asyncio.get_running_loop()
    return loop.clock.hold_time() if isinstance(loop, VirtualLoop) else nullcontext()


def _tape_request(asked: ReceivedRequest) -> tuple[TapeRequest, set[bytes]]:
    return record_request(asked.method, _path_below_base(asked.path), asked.headers, asked.body)


def _path_below_base(path: str) -> str:
    """The path below the base URL, which on this machine ends in /v1."""
    return path.removeprefix("/v1")


def _count_requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _answer_head(response: TapeResponse) -> WireAnswer:
    """The beginning of an answer; its body goes in chunks, if its status lets it have one."""
    chunked = response.status not in _STATUSES_WITHOUT_BODY
    return WireAnswer(
        status=response.status, headers=tuple(response.headers.items()), chunked=chunked
    )


def _recorded_answer(exchange: HttpExchange, *, paced: bool) -> WireAnswer:
    """The response as it came."""
    response = exchange.response
    if response is None:
        return hang_up(stall())
    acts: list[WireAct] = []
    for piece in exchange.pieces:
        acts += [*([wait(piece.after_s)] if paced else []), piece.content]
    if exchange.how != "whole":
        acts.append(drop() if exchange.how == "broken" else stall())
    before = (wait(response.after_s),) if paced else ()
    return replace(_answer_head(response), before=before, acts=tuple(acts))
