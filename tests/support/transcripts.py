"""Conversations for the tests of the wire dialects: one that has everything, and random ones."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from windlass.core.events import ReplyEnd, ReplyPiece, UsageDelta
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.reply_assembly import ReplyAssembly
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader
from windlass.models.http.sse import SseParser
from windlass.models.options import ModelOptions
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
    UserMessage((TextPart("What is there?"), ImagePart("image/png", PNG))),
    AssistantMessage((ThinkingPart("Hmm.", "sig-thought"), TextPart("I look."), LOOK, WAIT), HERE),
    ToolResults(
        (
            CallOutcome(
                LOOK, ToolResult("value", (TextPart("A door."), ImagePart("image/png", PNG)))
            ),
            CallOutcome(WAIT, ToolResult.from_text("denied", "Denied: no.")),
        )
    ),
    UserMessage((TextPart("Keep it short."),), note=True),
    AssistantMessage((TextPart("A door."),), HERE),
    UserMessage((TextPart("And behind it?"),)),
)
"""Text, thinking, two calls at once, their results, an image, a note."""


def make_prompt(
    messages: Sequence[Message] = CONVERSATION,
    *,
    model: str = HERE,
    system: str = "",
    tools: tuple[ToolSpec, ...] = TOOLS,
    tool_choice: str = "auto",
    output_max: int = 4_096,
) -> Prompt:
    return Prompt(model, system, messages, tools, tool_choice, output_max)


def request_body(
    dialect: Dialect, asked: Prompt, model: str = "here", options: ModelOptions | None = None
) -> Any:
    """The body of the request, decoded."""
    return msgspec.json.decode(dialect.encode_request(asked, model, options or ModelOptions()).body)


def read_pieces(reader: ReplyReader, dialect: str, name: str) -> Iterator[ReplyPiece]:
    """What a reader makes of a stream, fed in chunks that fit nothing."""
    data = (STREAMS / dialect / f"{name}.sse").read_bytes()
    parser = SseParser()
    for at in range(0, len(data), 7):
        for event, payload in parser.feed(data[at : at + 7]):
            yield from reader.read_event(event, payload)


def without_usage(read: Iterable[ReplyPiece]) -> list[ReplyPiece]:
    return [piece for piece in read if not isinstance(piece, UsageDelta)]


def assemble_reply(read: Iterable[ReplyPiece]) -> ReplyAssembly:
    whole = ReplyAssembly()
    for piece in read:
        whole.add_piece(piece)
    return whole


def reply_end(read: Iterable[ReplyPiece]) -> bool:
    return any(isinstance(piece, ReplyEnd) for piece in read)


def encoded_histories(
    dialect: Dialect, messages: Sequence[Message], key: str, closers: bytes
) -> list[bytes]:
    """The encoded history of each request of a growing session, without what closes it."""
    found: list[bytes] = []
    grown = Transcript()
    for at, message in enumerate(messages):
        grown = grown.append(message)
        if isinstance(message, AssistantMessage):
            continue
        asked = make_prompt(grown)
        check_prompt(asked)
        body = dialect.encode_request(asked, "here", ModelOptions()).body
        fresh = dialect.encode_request(make_prompt(messages[: at + 1]), "here", ModelOptions()).body
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
_contents: st.SearchStrategy[ContentPart] = st.one_of(
    st.builds(TextPart, _text),
    st.just(ImagePart("image/png", PNG)),
    st.just(ImagePart("image/jpeg", url="https://pictures.example/a.jpg")),
    st.just(FilePart("application/pdf", "a.pdf", b"%PDF-")),
)
_results: st.SearchStrategy[ToolResult] = st.builds(
    ToolResult,
    st.sampled_from(["value", "error", "denied", "timed_out", "cancelled"]),
    st.lists(
        st.one_of(
            _contents, st.just(TextPart("")), st.just(FilePart("application/zip", "a.zip", b"PK"))
        ),
        max_size=3,
    ).map(tuple),
)
_thoughts = st.builds(
    ThinkingPart, st.text(max_size=9), st.sampled_from([None, "sig", "redacted:x"])
)
_provider_ids = st.sampled_from([None, "", "same", "functions.look:0", "toolu_1", "x" * 80])
_arguments = st.sampled_from(["{}", '{"at": "ü", "n": [1, 2.5]}', '{ "a" : null }'])
_models = st.sampled_from([HERE, "vendor:other", ""])


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Any conversation that a session can come to, up to the next request."""
    messages: list[Message] = [
        UserMessage(tuple(draw(st.lists(_contents, min_size=1, max_size=3))))
    ]
    for step in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            messages += _step(draw, step)
        else:
            messages.append(AssistantMessage((TextPart(draw(_text)),), draw(_models)))
            messages.append(UserMessage((TextPart(draw(_text)),)))
        if draw(st.booleans()):
            messages.append(UserMessage((TextPart(draw(_text)),), note=True))
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
    said: list[ReplyPart] = [*draw(st.lists(_thoughts, max_size=2)), *calls]
    if draw(st.booleans()):
        said.insert(draw(st.integers(0, len(said))), TextPart(draw(_text)))
    results = tuple(CallOutcome(call, draw(_results)) for call in calls)
    return [AssistantMessage(tuple(said), draw(_models)), ToolResults(results)]
