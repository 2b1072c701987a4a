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
    ToolResults,
    UserMessage,
)
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models import media
from windlass.models.anthropic.reader import REDACTED_PREFIX, AnthropicReader
from windlass.models.anthropic.thinking import accepts_sampling, thinking_settings
from windlass.models.dialect import Dialect, ModelOptions, ReplyReader, WireRequest
from windlass.models.fragments import EncodedHistories, HistoryFragment
from windlass.models.turns import CallIds, TurnJoiner, as_json_object, build_body, encode_json

API_NAME = "Anthropic's messages API"
ACCEPTED_MEDIA = "JPEG, PNG, GIF and WebP images, PDF and plain text"
API_VERSION = "2023-06-01"

_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_CACHE_MARK = {"type": "ephemeral"}


class AnthropicMessages(Dialect):
    """The dialect of `POST /messages`."""

    def __init__(self, *, cache_marks: bool = True) -> None:
        self._cache_marks = cache_marks
        self._history = EncodedHistories(AnthropicEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        head: dict[str, Any] = {"model": model, "max_tokens": prompt.output_max, "stream": True}
        head |= _request_settings(prompt, model, options)
        marked = self._cache_marks
        if marked:
            head["cache_control"] = _CACHE_MARK
        if prompt.tools:
            head["tools"] = _encode_tools(prompt, marked=marked and not prompt.system)
        if prompt.system:
            mark = {"cache_control": _CACHE_MARK} if marked else {}
            head["system"] = [{"type": "text", "text": prompt.system, **mark}]
        history = self._history.encode_messages(prompt.messages, prompt.model)
        encoded = build_body(head, options.extra_body, "messages", history)
        headers = {"anthropic-version": API_VERSION, **options.extra_headers}
        return WireRequest("/messages", encoded, headers)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return AnthropicReader()


def _request_settings(prompt: Prompt, model: str, options: ModelOptions) -> dict[str, Any]:
    """There is no seed here."""
    forced = bool(prompt.tools) and prompt.tool_choice not in {"auto", "none"}
    settings = thinking_settings(model, options.effort, prompt.output_max, forced=forced)
    if "thinking" not in settings and accepts_sampling(model):
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.top_p is not None:
            settings["top_p"] = options.top_p
    if options.stop:
        settings["stop_sequences"] = options.stop
    if options.service_tier is not None:
        settings["service_tier"] = options.service_tier
    if prompt.tools and prompt.tool_choice != "auto":
        settings["tool_choice"] = _encode_tool_choice(prompt.tool_choice)
    return settings


def _encode_tool_choice(choice: ToolChoice) -> dict[str, str]:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case name:
            return {"type": "tool", "name": name}


def _encode_tools(prompt: Prompt, *, marked: bool) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = [
        {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
        for spec in prompt.tools
    ]
    if marked:
        tools[-1]["cache_control"] = _CACHE_MARK
    return tools


class AnthropicEncoder:
    """Encodes one history for one model."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ids = CallIds()
        self._turns = TurnJoiner("content")

    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        match message:
            case UserMessage(parts):
                blocks = [
                    encode_json(block) for part in parts for block in _encode_prompt_part(part)
                ]
                return self._turns.add_blocks("user", blocks)
            case AssistantMessage(parts, model):
                native = bool(model) and model == self._model
                said = [
                    encode_json(block)
                    for part in parts
                    for block in self._encode_reply_part(part, native)
                ]
                return self._turns.add_blocks("assistant", said)
            case ToolResults(items):
                return self._turns.add_blocks(
                    "user", [encode_json(self._encode_result(item)) for item in items]
                )

    def _encode_reply_part(self, part: ReplyPart, native: bool) -> Iterable[dict[str, Any]]:  # noqa: FBT001
        match part:
            case TextPart():
                yield from _encode_text(part)
            case ThinkingPart(text, signature):
                if native:
                    yield _encode_thinking(text, signature or "")
            case ToolCall(name=name, arguments=arguments):
                yield {
                    "type": "tool_use",
                    "id": self._ids.assign_id(part, native=native),
                    "name": name,
                    "input": as_json_object(arguments),
                }

    def _encode_result(self, item: CallOutcome) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._ids.id_of(item.call)}
        content = [shown for part in item.result.content for shown in _encode_result_part(part)]
        failed = item.result.kind != "value"
        if failed and not content:  # A failure without a word is refused.
            content = [{"type": "text", "text": item.result.kind}]
        if content:
            block["content"] = content
        if failed:
            block["is_error"] = True
        return block


def _encode_prompt_part(part: ContentPart) -> Iterable[dict[str, Any]]:
    match part:
        case TextPart():
            return _encode_text(part)
        case ImagePart() | FilePart():
            block = _encode_media(part)
            if block is None:
                raise media.unsupported_media_error(part, API_NAME, ACCEPTED_MEDIA)
            return (block,)


def _encode_result_part(part: ContentPart) -> Iterable[dict[str, Any]]:
    match part:
        case TextPart():
            return _encode_text(part)
        case ImagePart() | FilePart():
            return (
                _encode_media(part)
                or {"type": "text", "text": media.unsupported_media_note(part, API_NAME)},
            )


def _encode_text(part: TextPart) -> Iterable[dict[str, Any]]:
    """The API refuses a text of nothing but white space, which its own models sometimes say."""
    return ({"type": "text", "text": part.text},) if part.text.strip() else ()


def _encode_thinking(text: str, signature: str) -> dict[str, Any]:
    if signature.startswith(REDACTED_PREFIX):
        return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED_PREFIX)}
    return {"type": "thinking", "thinking": text, "signature": signature}


def _encode_media(part: ImagePart | FilePart) -> dict[str, Any] | None:
    """The part as a block, or None if the API cannot take it."""
    match part:
        case ImagePart(media_type):
            source = _media_source(part) if media_type in _IMAGE_TYPES else None
            return source and {"type": "image", "source": source}
        case FilePart(media_type, name):
            source = _media_source(part) if media_type == "application/pdf" else _text_source(part)
            return source and {"type": "document", "source": source, "title": name}


def _media_source(part: ImagePart | FilePart) -> dict[str, str] | None:
    if part.data is not None:
        data = media.encode_base64(part.data)
        return {"type": "base64", "media_type": part.media_type, "data": data}
    return None if part.url is None else {"type": "url", "url": part.url}


def _text_source(part: FilePart) -> dict[str, str] | None:
    text = media.decode_text_file(part)
    return None if not text else {"type": "text", "media_type": "text/plain", "data": text}
