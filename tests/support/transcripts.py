"""Conversations for the tests of the wire dialects: one that has everything, and random ones."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from windlass.core.events import Piece, ReplyEnd, UsageDelta
from windlass.core.messages import (
    Assistant,
    CallResult,
    Content,
    File,
    Image,
    Message,
    Result,
    Results,
    Said,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
    User,
)
from windlass.core.reply_assembly import Assembly
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, Options, Reader
from windlass.models.http.sse import SseParser
from windlass.testing.prompts import check_prompt

STREAMS = Path(__file__).parent.parent / "models" / "streams"
"""Streams of the vendors' documented formats."""

HERE = "vendor:here"
PNG = b"\x89PNG\r\n"
TOOLS = (
    ToolSpec("look", "Look at a place.", {"type": "object", "properties": {"at": {}}}),
    ToolSpec("wait", "Wait a while.", {"type": "object", "properties": {}}),
)
LOOK = ToolCall("c1_0", "look", '{"at": "door"}', "wire_a", "sig-call")
WAIT = ToolCall("c1_1", "wait", "", "wire_b")
CONVERSATION: tuple[Message, ...] = (
    User((Text("What is there?"), Image("image/png", PNG))),
    Assistant((Thinking("Hmm.", "sig-thought"), Text("I look."), LOOK, WAIT), HERE),
    Results(
        (
            CallResult(LOOK, Result("value", (Text("A door."), Image("image/png", PNG)))),
            CallResult(WAIT, Result.say("denied", "Denied: no.")),
        )
    ),
    User((Text("Keep it short."),), note=True),
    Assistant((Text("A door."),), HERE),
    User((Text("And behind it?"),)),
)
"""Text, thinking, two calls at once, their results, an image, a note."""


def prompt(
    messages: Sequence[Message] = CONVERSATION,
    *,
    model: str = HERE,
    system: str = "",
    tools: tuple[ToolSpec, ...] = TOOLS,
    tool_choice: str = "auto",
    output_max: int = 4_096,
) -> Prompt:
    return Prompt(model, system, messages, tools, tool_choice, output_max)


def sent(
    dialect: Dialect, asked: Prompt, model: str = "here", options: Options | None = None
) -> Any:
    """The body of the request, decoded."""
    return msgspec.json.decode(dialect.encode(asked, model, options or Options()).body)


def pieces(reader: Reader, dialect: str, name: str) -> Iterator[Piece]:
    """What a reader makes of a stream, fed in chunks that fit nothing."""
    data = (STREAMS / dialect / f"{name}.sse").read_bytes()
    parser = SseParser()
    for at in range(0, len(data), 7):
        for event, payload in parser.feed(data[at : at + 7]):
            yield from reader.read(event, payload)


def content(read: Iterable[Piece]) -> list[Piece]:
    return [piece for piece in read if not isinstance(piece, UsageDelta)]


def assembled(read: Iterable[Piece]) -> Assembly:
    whole = Assembly()
    for piece in read:
        whole.add(piece)
    return whole


def ended(read: Iterable[Piece]) -> bool:
    return any(isinstance(piece, ReplyEnd) for piece in read)


def histories(
    dialect: Dialect, messages: Sequence[Message], key: str, closers: bytes
) -> list[bytes]:
    """The encoded history of each request of a growing session, without what closes it."""
    found: list[bytes] = []
    grown = Transcript()
    for at, message in enumerate(messages):
        grown = grown.append(message)
        if isinstance(message, Assistant):
            continue
        asked = prompt(grown)
        check_prompt(asked)
        body = dialect.encode(asked, "here", Options()).body
        fresh = dialect.encode(prompt(messages[: at + 1]), "here", Options()).body
        assert body == fresh, "what is kept differs from what is encoded afresh"
        start = body.index(b'"%b":[' % key.encode())
        found.append(body[start:].removesuffix(closers + b"]}"))
    return found


def assert_grows(found: Sequence[bytes]) -> None:
    """The history of a step is a byte prefix of the next one's (P5)."""
    for one, other in pairwise(found):
        assert other.startswith(one)
        assert len(other) > len(one)


_text = st.text(min_size=1, max_size=20).filter(str.strip)
_contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(Text, _text),
    st.just(Image("image/png", PNG)),
    st.just(Image("image/jpeg", url="https://pictures.example/a.jpg")),
    st.just(File("application/pdf", "a.pdf", b"%PDF-")),
)
_results: st.SearchStrategy[Result] = st.builds(
    Result,
    st.sampled_from(["value", "error", "denied", "timed_out", "cancelled"]),
    st.lists(
        st.one_of(_contents, st.just(Text("")), st.just(File("application/zip", "a.zip", b"PK"))),
        max_size=3,
    ).map(tuple),
)
_thoughts = st.builds(Thinking, st.text(max_size=9), st.sampled_from([None, "sig", "redacted:x"]))
_provider_ids = st.sampled_from([None, "", "same", "functions.look:0", "toolu_1", "x" * 80])
_arguments = st.sampled_from(["{}", '{"at": "ü", "n": [1, 2.5]}', '{ "a" : null }'])
_models = st.sampled_from([HERE, "vendor:other", ""])


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Any conversation that a session can come to, up to the next request."""
    messages: list[Message] = [User(tuple(draw(st.lists(_contents, min_size=1, max_size=3))))]
    for step in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            messages += _step(draw, step)
        else:
            messages.append(Assistant((Text(draw(_text)),), draw(_models)))
            messages.append(User((Text(draw(_text)),)))
        if draw(st.booleans()):
            messages.append(User((Text(draw(_text)),), note=True))
    return messages


def _step(draw: st.DrawFn, step: int) -> list[Message]:
    calls = [
        ToolCall(
            f"c{step}_{at}",
            draw(st.sampled_from(["look", "wait"])),
            draw(_arguments),
            draw(_provider_ids),
            draw(st.sampled_from([None, "sig"])),
        )
        for at in range(draw(st.integers(1, 3)))
    ]
    said: list[Said] = [*draw(st.lists(_thoughts, max_size=2)), *calls]
    if draw(st.booleans()):
        said.insert(draw(st.integers(0, len(said))), Text(draw(_text)))
    results = tuple(CallResult(call, draw(_results)) for call in calls)
    return [Assistant(tuple(said), draw(_models)), Results(results)]
