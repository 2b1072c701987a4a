"""Messages of MCP servers with too many parts or values: an error, and the loop works on (T18)."""

import asyncio
import json
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult
from typing_extensions import override

import crowded_server
from mcp_peers import open_servers, tool_caller
from windlass.core.errors import ConfigError
from windlass.core.messages import ToolResult
from windlass.tools.mcp import message_bounds
from windlass.tools.mcp.http import EVENT_LINES_MAX, BodyRefused, PendingEvents
from windlass.tools.mcp.message_bounds import bound_message, find_excess
from windlass.tools.mcp.results import convert_call_result

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T18")]
SERVER = Path(crowded_server.__file__)
RATIO_MAX = 8
"""How much longer than for a plain text of the same length the loop may be blocked."""
TRANSPORTS = ("stdio", "json", "events")


class LoopGap:
    """The longest stretch of CPU time between two turns of the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - last)
            last = now


@asynccontextmanager
async def loop_gap() -> AsyncGenerator[LoopGap]:
    gap = LoopGap()
    watching = asyncio.create_task(gap.watch())
    try:
        yield gap
    finally:
        watching.cancel()


class Handler(BaseHTTPRequestHandler):
    kind = ""
    transport = "json"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request:
            self._send(202, "application/json", b"")
            return
        body = json.dumps(crowded_server.answer(self.kind, request), separators=(",", ":")).encode()
        _, _, charset = self.transport.partition("charset=")
        if charset and request["method"] == "tools/call":
            self._send(200, self.transport, f"data: {body.decode()}\n\n".encode(charset))
        elif self.transport == "events":
            event = b'event: message\r\n: "\r\ndata: ' + body + b"\r\n\r\n"
            self._send(200, "text/event-stream", event)
        else:
            self._send(200, "application/json", body)

    def do_GET(self) -> None:
        self._send(405, "application/json", b"")

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(kind: str, transport: str) -> Iterator[dict[str, Any]]:
    """Yield the settings of a server."""
    if transport == "stdio":
        yield {"command": sys.executable, "args": [str(SERVER), kind], "timeout": 60}
        return
    handler = type("Kind", (Handler,), {"kind": kind, "transport": transport})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        yield {"type": "http", "url": url, "timeout": 60}
        server.shutdown()


async def call_dump(kind: str, transport: str) -> tuple[ToolResult, float]:
    """Return the result of the call, and the longest gap in the loop meanwhile."""
    with serve(kind, transport) as settings:
        async with open_servers(own=settings) as servers:
            use = tool_caller(await servers.tools())
            async with loop_gap() as gap:
                return await use("dump"), gap.longest_s


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_answer_of_countless_values_does_not_block_the_loop(transport: str) -> None:
    """Not much longer than a plain text of the same length does."""
    text, usual_s = await call_dump("text", transport)
    assert text.kind == "value"
    for kind in ("parts", "nan", "keys", "deep"):
        result, gap_s = await call_dump(kind, transport)
        assert result.kind == "error", kind
        assert "more than 100000 keys and lists; ask for less" in result.text
        assert gap_s < RATIO_MAX * usual_s, kind


@pytest.mark.parametrize(
    ("charset", "reason"),
    [("utf-8", "it has 3000 parts, and 1000 is the limit"), ("cp037", "The connection to")],
)
async def test_events_that_call_themselves_otherwise_are_bounded_too(
    charset: str, reason: str
) -> None:
    """T18: the SDK knows the type in any case of letters, and would decode as the type says."""
    result, _ = await call_dump("few parts", f"Text/Event-Stream; charset={charset}")
    assert result.kind == "error"
    assert reason in result.text


def convert(kind: str) -> tuple[ToolResult, float]:
    """Return the result of an answer, and the memory that it took for each character of text."""
    answer = CallToolResult.model_validate(crowded_server.call_tool(kind))
    tracemalloc.start()
    try:
        result = convert_call_result(answer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return result, peak / len(result.text)


def test_values_in_the_text_of_an_answer_are_not_made_objects() -> None:
    """T18: a text is compared with the structured answer only if it may be as large."""
    result, memory = convert("text values")
    assert result.text.endswith('{"a":1}')
    assert memory < 5
    result, _ = convert("few values")
    assert result.text == '{"a": 1}'


async def test_the_pages_of_a_list_are_bounded_together() -> None:
    """T18: each page is within the bounds, and a hundred of them would fill the memory."""
    with serve("pages", "stdio") as settings:
        async with open_servers(own=settings) as servers:
            tools = await servers.tools()
    assert len(tools) == 3


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_short_answer_of_many_parts_is_refused(transport: str) -> None:
    result, _ = await call_dump("few parts", transport)
    assert result.kind == "error"
    assert "it has 3000 parts, and 1000 is the limit" in result.text


async def test_a_table_within_the_bounds_is_returned() -> None:
    """Long enough for a reader of its own, which finds nothing wrong with it."""
    result, _ = await call_dump("table", "stdio")
    assert result.kind == "value"
    assert "n9999" in result.text


async def test_a_list_of_countless_tools_is_refused() -> None:
    with serve("tools", "stdio") as settings:
        async with open_servers(own=settings) as servers, loop_gap() as gap:
            with pytest.raises(ConfigError, match="50000 items in lists, and 10000 is the limit"):
                await servers.tools()
    _, usual_s = await call_dump("text", "stdio")
    assert gap.longest_s < RATIO_MAX * usual_s


async def test_a_request_of_a_server_is_bounded_too() -> None:
    """The server is told that its request for a reply of the model is invalid, and continues."""
    with serve("asks", "stdio") as settings:
        async with open_servers(own={**settings, "sampling": True}) as servers:
            result = await tool_caller(await servers.tools())("dump")
    assert result.kind == "value"
    assert json.loads(result.text)["error"]["code"] == -32602


async def test_lines_that_are_no_messages_do_not_block_the_loop() -> None:
    result, gap_s = await call_dump("lines", "stdio")
    _, usual_s = await call_dump("text", "stdio")
    assert result.kind == "value"
    assert gap_s < RATIO_MAX * usual_s


async def test_a_reader_that_dies_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_bounds, "READER_BYTES", 2**20)
    result, _ = await call_dump("table", "stdio")
    assert result.kind == "error"
    assert "of memory; ask for less" in result.text


def encode(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


@pytest.mark.parametrize(
    "text",
    ["[,{" * 99_999, '\\"' * 99_999, '"[,' * 300_000, "\\" * 49_999, '[{"a": 1}, ' * 9_000],
    ids=["brackets", "escapes", "quotes", "backslashes", "json"],
)
async def test_what_is_in_a_text_does_not_count(text: str) -> None:
    message = encode(id=1, result={"content": [{"type": "text", "text": text}]})
    assert await bound_message(message) == message
    assert find_excess(message) == ""


async def test_a_replacement_goes_where_the_message_would_have_gone() -> None:
    crowd = {"content": [0] * 5_000}
    answered = json.loads(await bound_message(encode(result=crowd, id="a7")))
    assert (answered["id"], "refused" in answered["error"]["message"]) == ("a7", True)
    asked = json.loads(await bound_message(encode(id=3, method="roots/list", params=crowd)))
    assert asked == {"jsonrpc": "2.0", "id": 3, "method": "roots/list", "params": {}}
    assert await bound_message(encode(method="notifications/x", params=crowd)) == b""
    broken = encode(id=9, result=crowd)[:-2]
    assert json.loads(await bound_message(broken))["id"] == 9


EVENTS = (
    b"event: message\r\ndata: {}\r\n\r\n: note\n\nid: 1\rdata: [1,\rdata: 2]\r\r\n\n\ndata: x\n\r\n"
)


@pytest.mark.parametrize("size", range(1, 9))
async def test_events_come_out_as_they_went_in(size: int) -> None:
    """However they are cut into pieces. No unit ends within an event."""
    pending = PendingEvents()
    units = list[bytes]()
    for at in range(0, len(EVENTS), size):
        units += pending.add(EVENTS[at : at + size])
    units.append(pending.take_rest())
    assert b"".join(units) == EVENTS
    assert [await pending.bound(unit) for unit in units] == units
    assert not any(b"[1," in unit and b"2]" not in unit for unit in units)


async def test_an_event_in_many_lines_is_counted_as_one_message() -> None:
    """A quote in a comment hides nothing, and other fields of the event are kept."""
    message = encode(id=4, result={"content": [0] * 5_000})
    lines = b"".join(
        b"data: " + line + b"\n" for line in message.replace(b",", b",\n").split(b"\n")
    )
    pending = PendingEvents()
    (unit,) = pending.add(b': "\nid: 77\n' + lines + b"\n")
    bounded = await pending.bound(unit)
    head, _, data = bounded.partition(b"data: ")
    assert b"id: 77" in head
    assert json.loads(data)["id"] == 4
    (unit,) = pending.add(b"data:\n" * (EVENT_LINES_MAX + 1) + b"\n")
    with pytest.raises(BodyRefused, match="lines"):
        await pending.bound(unit)
