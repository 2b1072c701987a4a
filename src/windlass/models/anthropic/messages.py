"""Anthropic's messages (P2).

The law: the history holds no cache marks. Marks that move would change bytes that were sent before,
so the moving one is the request's own `cache_control`, which the API puts on the last block by
itself, and the fixed one stands where tools and system prompt end (P5).

Thinking goes back as it came, to the model that made it (S11); its signatures are bound to all that
was said before, which is one more reason never to rewrite history.
"""

from collections.abc import Iterable
from typing import Any

from typing_extensions import override

from windlass.core.messages import (
    Assistant,
    CallResult,
    Content,
    File,
    Image,
    Message,
    Results,
    Said,
    Text,
    Thinking,
    ToolCall,
    User,
)
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models import media
from windlass.models.anthropic.reader import REDACTED, AnthropicReader
from windlass.models.anthropic.thinking import reasoning, takes_sampling
from windlass.models.dialect import Dialect, Options, Reader, WireRequest
from windlass.models.fragments import Fragment, Fragments
from windlass.models.turns import CallIds, Turns, as_object, body, encode

API = "Anthropic's messages API"
TAKES = "JPEG, PNG, GIF and WebP images, PDF and plain text"
VERSION = "2023-06-01"

_IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_MARK = {"type": "ephemeral"}


class AnthropicMessages(Dialect):
    """The dialect of `POST /messages`."""

    def __init__(self, *, cache_marks: bool = True) -> None:
        self._cache_marks = cache_marks
        self._history = Fragments(AnthropicEncoder)

    @override
    def encode(self, prompt: Prompt, model: str, options: Options) -> WireRequest:
        head: dict[str, Any] = {"model": model, "max_tokens": prompt.output_max, "stream": True}
        head |= _settings(prompt, model, options)
        marked = self._cache_marks
        if marked:
            head["cache_control"] = _MARK
        if prompt.tools:
            head["tools"] = _tools(prompt, marked=marked and not prompt.system)
        if prompt.system:
            mark = {"cache_control": _MARK} if marked else {}
            head["system"] = [{"type": "text", "text": prompt.system, **mark}]
        history = self._history.encoded(prompt.messages, prompt.model)
        encoded = body(head, options.extra_body, "messages", history)
        headers = {"anthropic-version": VERSION, **options.extra_headers}
        return WireRequest("/messages", encoded, headers)

    @override
    def reader(self, prompt: Prompt) -> Reader:
        return AnthropicReader()


def _settings(prompt: Prompt, model: str, options: Options) -> dict[str, Any]:
    """There is no seed here."""
    forced = bool(prompt.tools) and prompt.tool_choice not in {"auto", "none"}
    settings = reasoning(model, options.effort, prompt.output_max, forced=forced)
    if "thinking" not in settings and takes_sampling(model):
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.top_p is not None:
            settings["top_p"] = options.top_p
    if options.stop:
        settings["stop_sequences"] = options.stop
    if options.service_tier is not None:
        settings["service_tier"] = options.service_tier
    if prompt.tools and prompt.tool_choice != "auto":
        settings["tool_choice"] = _choice(prompt.tool_choice)
    return settings


def _choice(choice: ToolChoice) -> dict[str, str]:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case name:
            return {"type": "tool", "name": name}


def _tools(prompt: Prompt, *, marked: bool) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = [
        {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
        for spec in prompt.tools
    ]
    if marked:
        tools[-1]["cache_control"] = _MARK
    return tools


class AnthropicEncoder:
    """Encodes one history for one model."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ids = CallIds()
        self._turns = Turns("content")

    def add(self, message: Message) -> Iterable[Fragment]:
        match message:
            case User(parts):
                blocks = [encode(block) for part in parts for block in _prompted(part)]
                return self._turns.add("user", blocks)
            case Assistant(parts, model):
                native = bool(model) and model == self._model
                said = [encode(block) for part in parts for block in self._said(part, native)]
                return self._turns.add("assistant", said)
            case Results(items):
                return self._turns.add("user", [encode(self._result(item)) for item in items])

    def _said(self, part: Said, native: bool) -> Iterable[dict[str, Any]]:  # noqa: FBT001
        match part:
            case Text():
                yield from _text(part)
            case Thinking(text, signature):
                if native:
                    yield _thought(text, signature or "")
            case ToolCall(name=name, arguments=arguments):
                yield {
                    "type": "tool_use",
                    "id": self._ids.give(part, native=native),
                    "name": name,
                    "input": as_object(arguments),
                }

    def _result(self, item: CallResult) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._ids.of(item.call)}
        content = [shown for part in item.result.content for shown in _shown(part)]
        failed = item.result.kind != "value"
        if failed and not content:  # A failure without a word is refused.
            content = [{"type": "text", "text": item.result.kind}]
        if content:
            block["content"] = content
        if failed:
            block["is_error"] = True
        return block


def _prompted(part: Content) -> Iterable[dict[str, Any]]:
    match part:
        case Text():
            return _text(part)
        case Image() | File():
            block = _media(part)
            if block is None:
                raise media.refused(part, API, TAKES)
            return (block,)


def _shown(part: Content) -> Iterable[dict[str, Any]]:
    match part:
        case Text():
            return _text(part)
        case Image() | File():
            return (_media(part) or {"type": "text", "text": media.told(part, API)},)


def _text(part: Text) -> Iterable[dict[str, Any]]:
    """The API refuses a text of nothing but white space, which its own models sometimes say."""
    return ({"type": "text", "text": part.text},) if part.text.strip() else ()


def _thought(text: str, signature: str) -> dict[str, Any]:
    if signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}
    return {"type": "thinking", "thinking": text, "signature": signature}


def _media(part: Image | File) -> dict[str, Any] | None:
    """The part as a block, or None if the API cannot take it."""
    match part:
        case Image(media_type):
            source = _source(part) if media_type in _IMAGES else None
            return source and {"type": "image", "source": source}
        case File(media_type, name):
            source = _source(part) if media_type == "application/pdf" else _plain(part)
            return source and {"type": "document", "source": source, "title": name}


def _source(part: Image | File) -> dict[str, str] | None:
    if part.data is not None:
        data = media.base64_of(part.data)
        return {"type": "base64", "media_type": part.media_type, "data": data}
    return None if part.url is None else {"type": "url", "url": part.url}


def _plain(part: File) -> dict[str, str] | None:
    text = media.text_of(part)
    return None if not text else {"type": "text", "media_type": "text/plain", "data": text}
