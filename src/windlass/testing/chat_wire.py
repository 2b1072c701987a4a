"""Chat completions as an OpenAI-compatible server streams them, for the script of a `FaultServer`.

chat_answer(text_chunk("Hello"), text_chunk(" there"))
chat_answer(call_chunks("read", '{"path":', '"a.txt"}', id="call_1"))
"""

from typing import Any

import msgspec

from windlass.testing.wire import WireAct, WireAnswer, stream_answer

DONE = b"data: [DONE]\n\n"
USAGE: dict[str, Any] = {
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def sse_event(value: object, event: str = "") -> bytes:
    """Return one server-sent event."""
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + data + b"\n\n"


def chat_chunk(
    delta: dict[str, Any] | None = None,
    finish: str | None = None,
    **more: Any,  # noqa: ANN401
) -> bytes:
    """Return one chunk of a reply."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return sse_event(head | {"choices": [choice]} | more)


def text_chunk(text: str) -> bytes:
    return chat_chunk({"content": text})


def thinking_chunk(text: str, field: str = "reasoning_content") -> bytes:
    return chat_chunk({field: text})


def call_chunk(
    arguments: str = "",
    *,
    index: int | None = 0,
    id: str | None = None,  # noqa: A002 - the word of the wire
    name: str | None = None,
) -> bytes:
    """Return a chunk with a fragment of a tool call."""
    call: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        call["index"] = index
    if id is not None:
        call |= {"id": id, "type": "function"}
    if name is not None:
        call["function"]["name"] = name
    return chat_chunk({"tool_calls": [call]})


def call_chunks(
    name: str,
    *arguments: str,
    id: str | None = "call_1",  # noqa: A002 - the word of the wire
    index: int | None = 0,
) -> tuple[bytes, ...]:
    """Return the chunks of one tool call: its name, then its arguments in fragments."""
    head = call_chunk(index=index, id=id, name=name)
    return head, *(call_chunk(part, index=index) for part in arguments)


def finish_chunk(reason: str = "stop") -> bytes:
    return chat_chunk({}, reason)


def usage_chunk(**figures: Any) -> bytes:  # noqa: ANN401
    """Return the chunk that reports usage: it comes last and has no choices."""
    return sse_event({"id": "chatcmpl-1", "choices": [], "usage": USAGE | figures})


def chat_answer(*parts: bytes | tuple[bytes, ...], stop: str | None = None) -> WireAnswer:
    """Return a whole reply: the given parts, a finish reason, the usage and `[DONE]`."""
    acts: list[WireAct] = []
    for part in parts:
        acts.extend((part,) if isinstance(part, bytes) else part)
    calls = any(isinstance(part, tuple) for part in parts)
    reason = stop or ("tool_calls" if calls else "stop")
    return stream_answer(*acts, finish_chunk(reason), usage_chunk(), DONE)


def text_answer(text: str, chars: int = 4) -> WireAnswer:
    """Return a whole reply of text, in pieces of `chars` characters."""
    return chat_answer(*(text_chunk(text[at : at + chars]) for at in range(0, len(text), chars)))
