"""The floor over HTTP: a raw protocol, a C parser, typed decoding, and each message encoded once.

It has no journal, gate, limits, retries, time-outs, proxies or errors: the least that one can write
by hand to run an agent against a chat completions server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import msgspec
from typing_extensions import override

from windlass.core.messages import ToolSpec

OUTPUT_MAX = 8_192

Function = Callable[..., Awaitable[str]]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str = ""


class _CallDelta(msgspec.Struct):
    index: int
    function: _Function
    id: str | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


class WireCall(msgspec.Struct):
    """A call whose fragments are still arriving."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class WireReply(msgspec.Struct):
    """The part of a reply that has arrived."""

    text: list[str] = []
    calls: dict[int, WireCall] = {}


_decode = msgspec.json.Decoder(_Chunk).decode
_decode_arguments = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class FloorConnection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_text = on_text
        self._bodies: list[bytes] = []
        self._rest = b""
        self._reply = WireReply()
        self._whole = False
        self._done: asyncio.Future[WireReply] | None = None
        self.on_body = self._bodies.append
        self._parser = httptools.HttpResponseParser(self)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send_request(self, request: bytes) -> "asyncio.Future[WireReply]":
        self._reply = WireReply()
        self._whole = False
        self._done = self._loop.create_future()
        self._transport.write(request)
        return self._done

    def close(self) -> None:
        self._transport.close()

    def on_message_complete(self) -> None:
        self._whole = True

    @override
    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        *events, self._rest = (self._rest + b"".join(self._bodies)).split(b"\n\n")
        self._bodies.clear()
        for event in events:
            if event != b"data: [DONE]":
                self._read_chunk(_decode(event[6:]))
        if self._whole and self._done is not None:
            self._done.set_result(self._reply)
            self._done = None

    def _read_chunk(self, chunk: _Chunk) -> None:
        if not chunk.choices:
            return
        delta = chunk.choices[0].delta
        reply = self._reply
        if delta.content:
            reply.text.append(delta.content)
            self._on_text(delta.content)
        for part in delta.tool_calls or ():
            call = reply.calls.setdefault(part.index, WireCall())
            call.id = part.id or call.id
            call.name = part.function.name or call.name
            call.arguments += part.function.arguments


class WireFloor:
    """A server and the tools."""

    def __init__(
        self, url: str, specs: Sequence[ToolSpec], functions: Mapping[str, Function]
    ) -> None:
        self._functions = functions
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._head = (
            f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        ).encode()
        tools = [{"type": "function", "function": _encode_tool(spec)} for spec in specs]
        start = {"model": "m", "stream": True, "max_tokens": OUTPUT_MAX, "tools": tools}
        self._start = _encode(start)[:-1] + b',"messages":['

    async def run(self, prompt: str, on_text: Callable[[str], None]) -> str:
        """Ask until a reply has no calls, and return its text."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: FloorConnection(on_text), self._host, self._port
        )
        history = bytearray(_encode({"role": "user", "content": prompt}))
        while True:
            reply = await connection.send_request(self._build_request(history))
            if not reply.calls:
                connection.close()
                return "".join(reply.text)
            history += b"," + _encode(_encode_reply(reply))
            for call in reply.calls.values():
                result = await self._functions[call.name](**_decode_arguments(call.arguments))
                message = {"role": "tool", "tool_call_id": call.id, "content": result}
                history += b"," + _encode(message)

    def _build_request(self, history: bytearray) -> bytes:
        length = len(self._start) + len(history) + 2
        return b"".join((self._head % length, self._start, history, b"]}"))


def _encode_tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


def _encode_reply(reply: WireReply) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.calls.values()
    ]
    return {"role": "assistant", "content": "".join(reply.text) or None, "tool_calls": calls}
