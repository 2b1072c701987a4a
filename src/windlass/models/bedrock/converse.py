"""Amazon Bedrock's Converse API, which is the same for the models of all its vendors.

Invariant: the encoded history holds no cache marks, because a mark that moves would change bytes
that were sent before. The moving mark is put behind the last block when a request is built.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote

from typing_extensions import override

from windlass.core.messages import (
    CallOutcome,
    ContentPart,
    ImagePart,
    ThinkingPart,
    ToolCall,
)
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.anthropic.reader import REDACTED_PREFIX
from windlass.models.anthropic.thinking import accepts_sampling, thinking_settings
from windlass.models.bedrock.event_stream import FrameParser
from windlass.models.bedrock.reader import BedrockReader
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

_CACHE_MARK = b'{"cachePoint":{"type":"default"}}'
# Models that accept cache marks; all others refuse a request with one.
_CACHES = re.compile(r"claude-(?:3-7|3-5-haiku|(?:[a-z]+-)?[4-9])|amazon\.nova")
_IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
_OFFICE_TYPE = "application/vnd.openxmlformats-officedocument."
_DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    f"{_OFFICE_TYPE}wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE_TYPE}spreadsheetml.sheet": "xlsx",
}
_NAME_CHARS_MAX = 200
_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}
_NO_TOOL: JsonObject = {
    "toolSpec": {
        "name": "no_tool",
        "description": "Not available. Never call it.",
        "inputSchema": {"json": _NO_PARAMETERS},
    }
}


class BedrockConverse(Dialect):
    """The dialect of `POST /model/{model}/converse-stream`."""

    def __init__(self) -> None:
        self._histories = EncodedHistories(BedrockEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        caches = _CACHES.search(model) is not None
        head: JsonObject = _request_settings(prompt, model, options)
        if prompt.tools:
            head["toolConfig"] = _encode_tools(prompt)
        if prompt.system:
            mark = [{"cachePoint": {"type": "default"}}] if caches else []
            head["system"] = [{"text": prompt.system}, *mark]
        history = self._histories.encode_messages(prompt.messages, prompt.model)
        if not prompt.tools and b'{"toolUse":' in history:
            # The API refuses a history with calls unless a tool is on offer.
            head["toolConfig"] = {"tools": [_NO_TOOL]}
        if caches and history:
            # Into the last turn, behind its last block.
            history = history.removesuffix(b"]}") + b"," + _CACHE_MARK + b"]}"
        body = build_body(head, options.extra_body, "messages", history)
        # The name of a model may be an ARN, with colons and slashes.
        path = f"/model/{quote(model, safe='')}/converse-stream"
        return WireRequest(path, body, dict(options.extra_headers), FrameParser)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return BedrockReader()


def _request_settings(prompt: Prompt, model: str, options: ModelOptions) -> JsonObject:
    """Return the fields for the output, sampling and thinking. The API has no seed."""
    more: JsonObject = {}
    if "claude" in model:
        forced_call = bool(prompt.tools) and prompt.tool_choice not in {"auto", "none"}
        more = thinking_settings(model, options.effort, prompt.output_max, forced=forced_call)
    inference: JsonObject = {"maxTokens": prompt.output_max}
    if "thinking" not in more and accepts_sampling(model):
        inference |= drop_unset({"temperature": options.temperature, "topP": options.top_p})
    if options.stop:
        inference["stopSequences"] = options.stop
    settings: JsonObject = {"inferenceConfig": inference}
    # The effort has its own field in this API; how to think is passed on as it is.
    if effort := more.pop("output_config", None):
        settings["outputConfig"] = effort
    if more:
        settings["additionalModelRequestFields"] = more
    if options.service_tier is not None:
        settings["serviceTier"] = {"type": options.service_tier}
    return settings


def _encode_tools(prompt: Prompt) -> JsonObject:
    tools = [
        {
            "toolSpec": {
                "name": spec.name,
                "description": spec.description or spec.name,
                "inputSchema": {"json": spec.parameters or _NO_PARAMETERS},
            }
        }
        for spec in prompt.tools
    ]
    settings: JsonObject = {"tools": tools}
    if choice := _encode_tool_choice(prompt.tool_choice):
        settings["toolChoice"] = choice
    return settings


def _encode_tool_choice(choice: ToolChoice) -> JsonObject | None:
    match choice:
        case "auto" | "none":
            # The API has no word for "none". The tools stay: the history may hold their calls.
            return None
        case "required":
            return {"any": {}}
        case name:
            return {"tool": {"name": name}}


class BedrockEncoder(BlockEncoder):
    """Encodes one history for one model."""

    def __init__(self, model: str) -> None:
        self._document_count = 0
        content = ContentBlocks(
            api="Amazon Bedrock",
            accepted="JPEG, PNG, GIF and WebP images, PDF, Word, Excel, CSV and plain text",
            text_block=_text_block,
            media_block=self._media_block,
        )
        super().__init__(model, content)

    @override
    def encode_prompt(self, parts: Iterable[ContentPart]) -> list[JsonObject]:
        blocks = super().encode_prompt(parts)
        has_document = any("document" in block for block in blocks)
        if has_document and not any("text" in block for block in blocks):
            # The API refuses a document without any text next to it.
            blocks.append(_text_block("See above."))
        return blocks

    @override
    def thinking_block(self, part: ThinkingPart) -> JsonObject:
        signature = part.signature or ""
        if signature.startswith(REDACTED_PREFIX):
            thought: JsonObject = {"redactedContent": signature.removeprefix(REDACTED_PREFIX)}
        else:
            fields = {"text": part.text, "signature": signature or None}
            thought = {"reasoningText": drop_unset(fields)}
        return {"reasoningContent": thought}

    @override
    def call_block(self, call: ToolCall, *, native: bool) -> JsonObject:
        call_id = self.ids.assign_id(call, native=native)
        arguments = as_json_object(call.arguments)
        return {"toolUse": {"toolUseId": call_id, "name": call.name, "input": arguments}}

    @override
    def result_block(self, item: CallOutcome) -> JsonObject:
        content = self.content.encode_result(item.result.content)
        result: JsonObject = {
            "toolUseId": self.ids.id_of(item.call),
            "content": content or [_text_block(item.result.kind)],
        }
        if item.result.kind != "value":
            result["status"] = "error"
        return {"toolResult": result}

    def _media_block(self, part: MediaPart) -> JsonObject | None:
        if isinstance(part, ImagePart):
            image_format = _IMAGE_FORMATS.get(part.media_type)
            if image_format is None or part.data is None:
                return None
            return {"image": {"format": image_format, "source": _bytes_source(part.data)}}
        text = decode_text_file(part)
        document_format = _DOCUMENT_FORMATS.get(part.media_type)
        if document_format is not None and part.data is not None:
            source = _bytes_source(part.data)
        elif text is not None:
            return _text_block(f"{part.name}:\n{text}")
        else:
            return None
        # No two documents may share one.
        self._document_count += 1
        plain = re.sub(r"[^a-zA-Z0-9()\[\]-]+", " ", part.name).strip() or "document"
        name = f"{plain[: _NAME_CHARS_MAX - 8]} {self._document_count}"
        return {"document": {"format": document_format, "name": name, "source": source}}


def _text_block(text: str) -> JsonObject:
    return {"text": text}


def _bytes_source(data: bytes) -> JsonObject:
    return {"bytes": encode_base64(data)}
