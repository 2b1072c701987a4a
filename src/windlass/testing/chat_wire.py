"""Chat completions as a server streams them: replies in words, responses in bytes.

chat(words("Hello"), words(" there"))
chat(called("read", '{"path":', '"a.txt"}', id="call_1"))
"""

from typing import Any

import msgspec

from windlass.testing.wire import Act, Answer, answer

DONE = b"data: [DONE]\n\n"
USAGE: dict[str, Any] = {
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def sse(value: object, event: str = "") -> bytes:
    """One server-sent event."""
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + data + b"\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:  # noqa: ANN401
    """One chunk of a reply."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return sse(head | {"choices": [choice]} | more)


def words(text: str) -> bytes:
    return chunk({"content": text})


def thought(text: str, field: str = "reasoning_content") -> bytes:
    return chunk({field: text})


def fragment(
    arguments: str = "",
    *,
    index: int | None = 0,
    id: str | None = None,  # noqa: A002 - the word of the wire
    name: str | None = None,
) -> bytes:
    """A fragment of a call."""
    call: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        call["index"] = index
    if id is not None:
        call |= {"id": id, "type": "function"}
    if name is not None:
        call["function"]["name"] = name
    return chunk({"tool_calls": [call]})


def called(
    name: str,
    *arguments: str,
    id: str | None = "call_1",  # noqa: A002 - the word of the wire
    index: int | None = 0,
) -> tuple[bytes, ...]:
    """One call: its name, then its arguments in fragments."""
    head = fragment(index=index, id=id, name=name)
    return head, *(fragment(part, index=index) for part in arguments)


def finish(reason: str = "stop") -> bytes:
    return chunk({}, reason)


def usage(**figures: Any) -> bytes:  # noqa: ANN401
    """The last chunk, which has no choices."""
    return sse({"id": "chatcmpl-1", "choices": [], "usage": USAGE | figures})


def chat(*said: bytes | tuple[bytes, ...], stop: str | None = None) -> Answer:
    """A whole reply: what is said, why it stops, what it cost, and the end."""
    parts: list[Act] = []
    for part in said:
        parts.extend((part,) if isinstance(part, bytes) else part)
    calls = any(isinstance(part, tuple) for part in said)
    reason = stop or ("tool_calls" if calls else "stop")
    return answer(*parts, finish(reason), usage(), DONE)


def say(text: str, chars: int = 4) -> Answer:
    """A whole reply of text, in pieces."""
    return chat(*(words(text[at : at + chars]) for at in range(0, len(text), chars)))
