"""An MCP server whose answers do not end: a tool error, and no more memory (T15)."""

import gzip
import json
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from mcp_peers import open_servers, tool_caller
from windlass.tools.mcp import http
from windlass.tools.mcp.config import ANSWER_BYTES_MAX

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T15")]

LIMIT = 200_000
HOSTILE = Path(__file__).with_name("hostile_server.py")
TOOL = {"name": "dump", "description": "Dump.", "inputSchema": {"type": "object"}}


def _encode(request: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], **fields}).encode()


class Server(BaseHTTPRequestHandler):
    """Answers each request with JSON; `dump` with more than anybody wants."""

    kind = "json"
    sent = 0

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = request.get("method")
        if "id" not in request:
            self._answer(202, b"")
        elif method == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "own", "version": "1"}
            self._reply(
                request, protocolVersion=version, capabilities={"tools": {}}, serverInfo=info
            )
        elif method == "tools/list":
            self._reply(request, tools=[TOOL])
        elif method == "tools/call":
            self._dump(request)
        else:
            error = {"code": -32601, "message": "no such method"}
            self._answer(
                200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
            )

    def do_GET(self) -> None:
        self._answer(405, b"")

    def _reply(self, request: dict[str, Any], **result: Any) -> None:
        self._answer(
            200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        )

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _dump(self, request: dict[str, Any]) -> None:
        if self.kind == "gzip":
            self._answer(200, gzip.compress(b" " * 50_000_000), Content_Encoding="gzip")
            return
        self.send_response(200)
        event = self.kind == "sse"
        self.send_header("Content-Type", "text/event-stream" if event else "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(b"event: message\ndata: " if event else b"")
            while Server.sent < 1_000 * LIMIT:
                self.wfile.write(b" " * LIMIT)
                Server.sent += LIMIT

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(kind: str) -> Iterator[str]:
    handler = type("Kind", (Server,), {"kind": kind})
    Server.sent = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("json", "longer than"),
        ("sse", "SSE stream failed"),
        ("gzip", "compressed"),
    ],
)
async def test_an_answer_over_http_is_bounded(
    kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T15: what is too long is a tool error that says so, and the server is not read on."""
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", LIMIT)
    with serving(kind) as url:
        async with open_servers(own={"type": "http", "url": url, "timeout": 20}) as servers:
            result = await tool_caller(await servers.tools())("dump")
    assert result.kind == "error"
    assert words in result.text
    assert Server.sent < 100 * LIMIT


async def test_an_answer_over_stdio_is_bounded() -> None:
    """T15: a line that never ends is a tool error that says so, and the server is read no more."""
    tracemalloc.start()
    try:
        async with open_servers(
            own={"command": sys.executable, "args": [str(HOSTILE), "flood"]}
        ) as servers:
            result = await tool_caller(await servers.tools())("harmless")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.kind == "error"
    assert "longer than 16 MiB; ask for less" in result.text
    # The reader holds twice its limit at the most, and copies it once while the buffer grows.
    assert peak_bytes < 5 * ANSWER_BYTES_MAX
