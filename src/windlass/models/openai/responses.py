"""OpenAI's responses (P2).

The law: nothing is kept on the server. Each request brings the whole history, and the model's own
reasoning goes back in it, encrypted, to the model that made it (S11).
"""

import re
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
from windlass.models.dialect import Dialect, Effort, ModelOptions, ReplyReader, WireRequest
from windlass.models.fragments import EncodedHistories, HistoryFragment
from windlass.models.openai.responses_reader import ResponsesReader
from windlass.models.turns import CallIds, build_body, encode_json

API_NAME = "OpenAI's responses API"
ACCEPTED_MEDIA = "JPEG, PNG, GIF and WebP images, and files, by value or by address"

_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))

_NOT_REASONING = re.compile(r"(?:^|/|ft:)(?:gpt-[34]|chatgpt-|gpt-5(?:\.\d+)?-chat)")
"""Models that refuse to be asked for reasoning. A name that is not known is taken to think."""
_LEAST_EFFORT: tuple[tuple[re.Pattern[str], str | None], ...] = (
    (re.compile(r"-pro\b"), None),
    (re.compile(r"codex|(?:^|/)o\d"), "low"),
    (re.compile(r"(?:^|/)gpt-5(?:-mini|-nano)?(?:-20\d\d.*)?$"), "minimal"),
)
"""The least effort of models that do not know `none`; None where the effort is not ours to set."""


class OpenAIResponses(Dialect):
    """The dialect of `POST /responses`."""

    def __init__(self) -> None:
        self._history = EncodedHistories(ResponsesEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        head: dict[str, Any] = {
            "model": model,
            "stream": True,
            "store": False,
            "max_output_tokens": prompt.output_max,
        }
        head |= _request_settings(model, options)
        if prompt.tools:
            head["tool_choice"] = _encode_tool_choice(prompt.tool_choice)
            head["tools"] = _encode_tools(prompt)
        if prompt.system:
            head["instructions"] = prompt.system
        history = self._history.encode_messages(prompt.messages, prompt.model)
        encoded = build_body(head, options.extra_body, "input", history)
        return WireRequest("/responses", encoded, dict(options.extra_headers))

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return ResponsesReader(prompt.output_max)


def _request_settings(model: str, options: ModelOptions) -> dict[str, Any]:
    """There is no seed and no stop text here."""
    settings: dict[str, Any] = {}
    effort = None
    if not _NOT_REASONING.search(model):
        settings["include"] = ["reasoning.encrypted_content"]
        effort = _wire_effort(model, options.effort)
        if effort is not None:
            settings["reasoning"] = {"effort": effort}
    if effort in {None, "none"}:  # A model that reasons refuses to be sampled.
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.top_p is not None:
            settings["top_p"] = options.top_p
    if options.service_tier is not None:
        settings["service_tier"] = options.service_tier
    return settings


def _wire_effort(model: str, effort: Effort | None) -> str | None:
    if effort != "off":
        return effort
    return next((least for named, least in _LEAST_EFFORT if named.search(model)), "none")


def _encode_tool_choice(choice: ToolChoice) -> str | dict[str, str]:
    if choice in {"auto", "none", "required"}:
        return choice
    return {"type": "function", "name": choice}


def _encode_tools(prompt: Prompt) -> list[dict[str, Any]]:
    """Not strict: the API would else demand a schema of a narrower kind than tools have."""
    return [
        {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
            "strict": False,
        }
        for spec in prompt.tools
    ]


class ResponsesEncoder:
    """Encodes one history for one model, item by item."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ids = CallIds()

    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        return [HistoryFragment(encode_json(item)) for item in self._encode_items(message)]

    def _encode_items(self, message: Message) -> Iterable[dict[str, Any]]:
        match message:
            case UserMessage(parts):
                content = [block for part in parts for block in _encode_prompt_part(part)]
                if content:
                    yield {"type": "message", "role": "user", "content": content}
            case AssistantMessage(parts, model):
                native = bool(model) and model == self._model
                for part in parts:
                    yield from self._encode_reply_part(part, native)
            case ToolResults(items):
                for item in items:
                    yield self._encode_result(item)

    def _encode_reply_part(self, part: ReplyPart, native: bool) -> Iterable[dict[str, Any]]:  # noqa: FBT001
        match part:
            case TextPart(text):
                if text.strip():
                    content = [{"type": "output_text", "text": text}]
                    yield {"type": "message", "role": "assistant", "content": content}
            case ThinkingPart(text, signature):
                if native and (text or signature):
                    yield _encode_thinking(text, signature)
            case ToolCall(name=name, arguments=arguments):
                yield {
                    "type": "function_call",
                    "call_id": self._ids.assign_id(part, native=native),
                    "name": name,
                    "arguments": arguments or "{}",
                }

    def _encode_result(self, item: CallOutcome) -> dict[str, Any]:
        content, output = item.result.content, item.result.text
        plain = all(isinstance(part, TextPart) for part in content)
        return {
            "type": "function_call_output",
            "call_id": self._ids.id_of(item.call),
            "output": output
            if plain
            else [block for part in content for block in _encode_result_part(part)],
        }


def _encode_thinking(text: str, signature: str | None) -> dict[str, Any]:
    """Without encryption it is some other server's, whose models read their own words again."""
    if signature is None:
        content = [{"type": "reasoning_text", "text": text}]
        return {"type": "reasoning", "summary": [], "content": content}
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "summary": summary, "encrypted_content": signature}


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
                or {"type": "input_text", "text": media.unsupported_media_note(part, API_NAME)},
            )


def _encode_text(part: TextPart) -> Iterable[dict[str, Any]]:
    return ({"type": "input_text", "text": part.text},) if part.text.strip() else ()


def _encode_media(part: ImagePart | FilePart) -> dict[str, Any] | None:
    """The part as a block, or None if the API cannot take it."""
    url = media.data_url(part)
    match part:
        case ImagePart(media_type):
            fits = url is not None and media_type in _IMAGE_TYPES
            return {"type": "input_image", "detail": "auto", "image_url": url} if fits else None
        case FilePart(name=name, data=data):
            if data is not None:
                return {"type": "input_file", "filename": name, "file_data": url}
            return None if url is None else {"type": "input_file", "file_url": url}
