"""What a client of AG-UI sends, and what it asks the service to do.

The client sends the whole conversation each time. The journal has it already, so only what is new
counts: the messages of the user after the last message of the agent. The id of the last of them is
the key of the start, so a request that is sent again finds the run that it began.
"""

import mimetypes
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import msgspec

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)

CONTEXT_HEADING = "Context from the application:"
"""Begins the part of a prompt that holds the `context` of the input."""


class InputStruct(msgspec.Struct, frozen=True, rename="camel"):
    """Anything that a client sends. Fields that are not known here are ignored."""


class InputSource(InputStruct, frozen=True):
    """Where the bytes of an image or a file are."""

    type: str
    value: str
    mime_type: str = ""


class InputPart(InputStruct, frozen=True):
    """A part of a message."""

    type: str
    text: str = ""
    source: InputSource | None = None
    metadata: Any = None


class InputFunction(InputStruct, frozen=True):
    name: str
    arguments: str = ""


class InputCall(InputStruct, frozen=True):
    id: str
    function: InputFunction


class InputMessage(InputStruct, frozen=True):
    """A message of the conversation as the client has it."""

    id: str
    role: str
    content: str | tuple[InputPart, ...] | dict[str, Any] | None = None
    tool_calls: tuple[InputCall, ...] | None = None
    tool_call_id: str = ""
    error: str | None = None


class InputTool(InputStruct, frozen=True):
    name: str


class InputContext(InputStruct, frozen=True):
    """Something that the application wants the agent to know."""

    description: str
    value: str


class ResumeEntry(InputStruct, frozen=True):
    """The answer to one interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(InputStruct, frozen=True):
    """What a client sends to begin a run, to answer its questions, or to see it again."""

    thread_id: str
    run_id: str
    messages: tuple[InputMessage, ...]
    tools: tuple[InputTool, ...] | None = None
    context: tuple[InputContext, ...] | None = None
    forwarded_props: Any = None
    resume: tuple[ResumeEntry, ...] | None = None


class NewPrompt(msgspec.Struct, frozen=True):
    """What is new in an input."""

    parts: tuple[ContentPart, ...] = ()
    key: str = ""
    """The id of the last new message; empty if there is none."""
    earlier: tuple[InputMessage, ...] = ()
    """The messages before it."""
    warnings: tuple[str, ...] = ()
    """What the agent cannot use, in words."""


def read_prompt(run_input: RunInput, new: Sequence[InputMessage]) -> NewPrompt:
    """Return what is new in an input as a prompt, with what the application adds to it."""
    messages = run_input.messages
    warnings: list[str] = []
    parts: list[ContentPart] = []
    for message in new:
        parts += read_parts(message, warnings)
    if run_input.tools:
        names = ", ".join(tool.name for tool in run_input.tools)
        warnings.append(f"The tools of the client are not used: {names}.")
    if not parts:
        return NewPrompt(earlier=messages, warnings=tuple(warnings))
    if run_input.context:
        parts.append(TextPart(describe_context(run_input.context)))
    earlier = messages[: len(messages) - len(new)]
    return NewPrompt(tuple(parts), messages[-1].id, earlier, tuple(warnings))


def describe_context(context: Sequence[InputContext]) -> str:
    """Return what the application wants the agent to know, as text for the model."""
    lines = (f"- {entry.description}: {entry.value}" for entry in context)
    return "\n".join((CONTEXT_HEADING, *lines))


def read_parts(message: InputMessage, warnings: list[str]) -> Iterator[ContentPart]:
    """Yield the parts of a message that an agent can use; the rest is named in `warnings`."""
    if isinstance(message.content, str):
        if message.content.strip():
            yield TextPart(message.content)
        return
    if not isinstance(message.content, tuple):
        return
    for part in message.content:
        made = _read_part(part)
        if made is not None:
            yield made
        elif part.type != "text":
            kind = part.source.type if part.source else "no source"
            warnings.append(f"A part of type {part.type} ({kind}) cannot be used and was left out.")


def _read_part(part: InputPart) -> ContentPart | None:
    if part.type == "text":
        return TextPart(part.text) if part.text.strip() else None
    source = part.source
    if source is None or part.type not in ("image", "document"):
        return None
    media_type = source.mime_type
    data = None
    url = None
    match source.type:
        case "data":
            try:
                data = b64decode(source.value, validate=True)
            except (Base64Error, ValueError):
                return None
        case "url":
            url = source.value
            media_type = media_type or mimetypes.guess_type(url.partition("?")[0])[0] or ""
        case _:
            # A handle that only the provider which issued it can read.
            return None
    if part.type == "image":
        return ImagePart(media_type or "image/*", data, url)
    name = "document"
    metadata: object = part.metadata
    if isinstance(metadata, dict):
        name = str(cast("dict[str, Any]", metadata).get("filename") or name)
    return FilePart(media_type or "application/octet-stream", name, data, url)


def read_earlier(messages: Sequence[InputMessage], warnings: list[str]) -> Iterator[Message]:
    """Yield the conversation that a client brings along, for a session that begins with it.

    Instructions of a system or a developer are left out: the agent has its own. So are calls
    without a result, which no provider accepts.
    """
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    # A conversation begins with the user, as most models demand; chat pages like to greet first.
    has_begun = False
    for message in messages:
        match message.role:
            case "user":
                parts = tuple(read_parts(message, warnings))
                if parts:
                    has_begun = True
                    yield UserMessage(parts)
            case "assistant" if has_begun:
                calls = [call for call in message.tool_calls or () if call.id in answered]
                parts = (*_text_parts(message), *map(_read_call, calls))
                if parts:
                    yield AssistantMessage(parts)
            case "tool" if has_begun:
                kind = "error" if message.error else "value"
                content = tuple(read_parts(message, warnings)) or (TextPart(""),)
                call = ToolCall(message.tool_call_id, "")
                yield ToolResults((CallOutcome(call, ToolResult(kind, content)),))
            case "system" | "developer":
                warnings.append(f"A {message.role} message was left out: the agent has its own.")
            case _:
                pass


def _text_parts(message: InputMessage) -> tuple[TextPart, ...]:
    if isinstance(message.content, str) and message.content.strip():
        return (TextPart(message.content),)
    return ()


def _read_call(call: InputCall) -> ToolCall:
    return ToolCall(call.id, call.function.name, call.function.arguments)
