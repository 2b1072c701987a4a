"""Anthropic's messages API.

Invariant: the encoded history holds no cache marks. A mark that moves would change bytes that were
sent before. So the moving mark is the request's own `cache_control` field, which the API itself
applies to the last block, and a fixed mark follows the tools and the system prompt.

Thinking goes back unchanged to the model that produced it. Its signatures cover everything
that was said before, which is one more reason never to rewrite history.
"""

from typing import Literal

from typing_extensions import override

from windlass.core.messages import CallOutcome, FilePart, ImagePart, ThinkingPart, ToolCall
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.anthropic.reader import REDACTED_PREFIX, AnthropicReader
from windlass.models.anthropic.thinking import accepts_sampling, thinking_settings
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.encoding import (
    BlockEncoder,
    ContentBlocks,
    JsonObject,
    MediaPart,
    as_json_object,
    build_body,
    decode_text_file,
    drop_unset,
    encode_base64,
)
from windlass.models.fragments import EncodedHistories
from windlass.models.options import ModelOptions

# A version pins the shapes of requests and replies, and the service keeps those that it has. This
# dialect is written for, and tested with, the versions below. Anthropic's Python SDK sent the same
# two up to 1.17. Since 2.0 it sends 2026-10-21 to its own API, and the same date in the body to
# Vertex; the events that it declares for a stream are those that are read here, so nothing here
# needs the newer one. To send it, set the header in `ModelOptions(extra_headers=…)`, or for Vertex
# the field `anthropic_version` in `extra_body`: both win over these.
API_VERSION = "2023-06-01"
VERTEX_VERSION = "vertex-2023-10-16"

_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_CACHE_MARK = {"type": "ephemeral"}


class AnthropicMessages(Dialect):
    """The dialect of `POST /messages`."""

    def __init__(
        self, *, cache_marks: bool = True, host: Literal["anthropic", "vertex"] = "anthropic"
    ) -> None:
        self._cache_marks = cache_marks
        self._on_vertex = host == "vertex"
        self._histories = EncodedHistories(AnthropicEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        head: JsonObject = {"model": model, "max_tokens": prompt.output_max, "stream": True}
        head |= _request_settings(prompt, model, options)
        if self._on_vertex:
            # There, the path names the model, and only fixed marks are known.
            head["anthropic_version"] = VERTEX_VERSION
            del head["model"]
        elif self._cache_marks:
            head["cache_control"] = _CACHE_MARK
        if prompt.tools:
            # The fixed mark follows the tools only if there is no system prompt after them.
            head["tools"] = _encode_tools(prompt, marked=self._cache_marks and not prompt.system)
        if prompt.system:
            mark = {"cache_control": _CACHE_MARK} if self._cache_marks else {}
            head["system"] = [{"type": "text", "text": prompt.system, **mark}]
        history = self._histories.encode_messages(prompt.messages, prompt.model)
        body = build_body(head, options.extra_body, "messages", history)
        if self._on_vertex:
            path = f"/models/{model}:streamRawPredict"
            return WireRequest(path, body, dict(options.extra_headers))
        headers = {"anthropic-version": API_VERSION, **options.extra_headers}
        return WireRequest("/messages", body, headers)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return AnthropicReader()


def _request_settings(prompt: Prompt, model: str, options: ModelOptions) -> JsonObject:
    """Return the fields for thinking, sampling and tool choice. The API has no seed."""
    forced_call = bool(prompt.tools) and prompt.tool_choice not in {"auto", "none"}
    settings = thinking_settings(model, options.effort, prompt.output_max, forced=forced_call)
    # The API refuses sampling parameters beside thinking.
    if "thinking" not in settings and accepts_sampling(model):
        settings |= drop_unset({"temperature": options.temperature, "top_p": options.top_p})
    settings |= drop_unset(
        {"stop_sequences": options.stop or None, "service_tier": options.service_tier}
    )
    is_single = not prompt.parallel_tool_calls and prompt.tool_choice != "none"
    if prompt.tools and (prompt.tool_choice != "auto" or is_single):
        settings["tool_choice"] = _encode_tool_choice(prompt.tool_choice)
        if is_single:
            settings["tool_choice"]["disable_parallel_tool_use"] = True
    return settings


def _encode_tool_choice(choice: ToolChoice) -> JsonObject:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case name:
            return {"type": "tool", "name": name}


def _encode_tools(prompt: Prompt, *, marked: bool) -> list[JsonObject]:
    tools: list[JsonObject] = [
        {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
        for spec in prompt.tools
    ]
    if marked:
        tools[-1]["cache_control"] = _CACHE_MARK
    return tools


class AnthropicEncoder(BlockEncoder):
    """Encodes one history for one model."""

    def __init__(self, model: str) -> None:
        super().__init__(model, _CONTENT)

    @override
    def thinking_block(self, part: ThinkingPart) -> JsonObject:
        signature = part.signature or ""
        if signature.startswith(REDACTED_PREFIX):
            return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED_PREFIX)}
        return {"type": "thinking", "thinking": part.text, "signature": signature}

    @override
    def call_block(self, call: ToolCall, *, native: bool) -> JsonObject:
        return {
            "type": "tool_use",
            "id": self.ids.assign_id(call, native=native),
            "name": call.name,
            "input": as_json_object(call.arguments),
        }

    @override
    def result_block(self, item: CallOutcome) -> JsonObject:
        block: JsonObject = {"type": "tool_result", "tool_use_id": self.ids.id_of(item.call)}
        content = _CONTENT.encode_result(item.result.content)
        failed = item.result.kind != "value"
        if failed and not content:  # The API refuses a failure without text.
            content = [_text_block(item.result.kind)]
        if content:
            block["content"] = content
        if failed:
            block["is_error"] = True
        return block


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _media_block(part: MediaPart) -> JsonObject | None:
    source = _media_source(part)
    if source is None:
        return None
    if isinstance(part, ImagePart):
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": part.name}


def _media_source(part: MediaPart) -> dict[str, str] | None:
    media_type = part.media_type
    if isinstance(part, FilePart) and media_type != "application/pdf":
        text = decode_text_file(part)
        return {"type": "text", "media_type": "text/plain", "data": text} if text else None
    if isinstance(part, ImagePart) and media_type not in _IMAGE_TYPES:
        return None
    if part.data is not None:
        return {"type": "base64", "media_type": media_type, "data": encode_base64(part.data)}
    if part.url is not None:
        return {"type": "url", "url": part.url}
    return None


_CONTENT = ContentBlocks(
    api="Anthropic's messages API",
    accepted="JPEG, PNG, GIF and WebP images, PDF and plain text",
    text_block=_text_block,
    media_block=_media_block,
)
