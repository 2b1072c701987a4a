"""OpenAI's responses API.

Invariant: nothing is kept on the server. Each request brings the whole history, and the model's own
reasoning goes back in it, encrypted, to the model that produced it.
"""

import re
from collections.abc import Iterable

from typing_extensions import override

from windlass.core.messages import (
    CallOutcome,
    ContentPart,
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.encoding import (
    BlockEncoder,
    ContentBlocks,
    JsonObject,
    MediaPart,
    build_body,
    data_url,
    drop_unset,
    encode_json,
)
from windlass.models.fragments import EncodedHistories, HistoryFragment
from windlass.models.openai.responses_reader import ResponsesReader
from windlass.models.options import ModelOptions

_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))

_NOT_REASONING = re.compile(r"(?:^|/|ft:)(?:gpt-[34]|chatgpt-|gpt-5(?:\.\d+)?-chat)")
"""Models that refuse to be asked for reasoning. An unknown name is taken for a reasoning model."""
_LEAST_EFFORT: tuple[tuple[re.Pattern[str], str | None], ...] = (
    (re.compile(r"-pro\b"), None),
    (re.compile(r"codex|(?:^|/)o\d"), "low"),
    (re.compile(r"(?:^|/)gpt-5(?:-mini|-nano)?(?:-20\d\d.*)?$"), "minimal"),
)
"""The least effort of models that do not know `none`; None where the effort cannot be set."""


class OpenAIResponses(Dialect):
    """The dialect of `POST /responses`."""

    def __init__(self) -> None:
        self._histories = EncodedHistories(ResponsesEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        head: JsonObject = {
            "model": model,
            "stream": True,
            "store": False,  # Nothing is kept on the server.
            "max_output_tokens": prompt.output_max,
        }
        head |= _request_settings(model, options)
        if prompt.tools:
            head["tool_choice"] = _encode_tool_choice(prompt.tool_choice)
            head["tools"] = _encode_tools(prompt)
            if not prompt.parallel_tool_calls:
                head["parallel_tool_calls"] = False
        if prompt.system:
            head["instructions"] = prompt.system
        history = self._histories.encode_messages(prompt.messages, prompt.model)
        body = build_body(head, options.extra_body, "input", history)
        return WireRequest("/responses", body, dict(options.extra_headers))

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return ResponsesReader(prompt.output_max)


def _request_settings(model: str, options: ModelOptions) -> JsonObject:
    """Return the fields for reasoning and sampling. The API has no seed and no stop texts."""
    settings = drop_unset({"service_tier": options.service_tier})
    effort: str | None = None
    if not _NOT_REASONING.search(model):
        settings["include"] = ["reasoning.encrypted_content"]
        effort = options.effort
        if effort == "off":
            effort = next((least for name, least in _LEAST_EFFORT if name.search(model)), "none")
        if effort is not None:
            settings["reasoning"] = {"effort": effort}
    # A model that reasons refuses sampling parameters.
    if effort in {None, "none"}:
        settings |= drop_unset({"temperature": options.temperature, "top_p": options.top_p})
    return settings


def _encode_tool_choice(choice: ToolChoice) -> str | dict[str, str]:
    if choice in {"auto", "none", "required"}:
        return choice
    return {"type": "function", "name": choice}


def _encode_tools(prompt: Prompt) -> list[JsonObject]:
    return [
        {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
            # Strict mode demands a narrower kind of schema than tools have.
            "strict": False,
        }
        for spec in prompt.tools
    ]


class ResponsesEncoder(BlockEncoder):
    """Encodes one history for one model, item by item."""

    def __init__(self, model: str) -> None:
        super().__init__(model, _CONTENT)

    @override
    def add_blocks(self, role: str, blocks: Iterable[JsonObject]) -> Iterable[HistoryFragment]:
        """Each block is its own item: this API has no turns."""
        return [HistoryFragment(encode_json(block)) for block in blocks]

    @override
    def encode_prompt(self, parts: Iterable[ContentPart]) -> list[JsonObject]:
        content = super().encode_prompt(parts)
        return [{"type": "message", "role": "user", "content": content}] if content else []

    @override
    def reply_text_block(self, text: str) -> JsonObject:
        content = [{"type": "output_text", "text": text}]
        return {"type": "message", "role": "assistant", "content": content}

    @override
    def thinking_block(self, part: ThinkingPart) -> JsonObject | None:
        text, signature = part.text, part.signature
        if not text and not signature:
            return None
        # Reasoning without encryption comes from another server with this API, whose models read
        # their own text again.
        if signature is None:
            content = [{"type": "reasoning_text", "text": text}]
            return {"type": "reasoning", "summary": [], "content": content}
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"type": "reasoning", "summary": summary, "encrypted_content": signature}

    @override
    def call_block(self, call: ToolCall, *, native: bool) -> JsonObject:
        return {
            "type": "function_call",
            "call_id": self.ids.assign_id(call, native=native),
            "name": call.name,
            "arguments": call.arguments or "{}",
        }

    @override
    def result_block(self, item: CallOutcome) -> JsonObject:
        output: str | list[JsonObject] = item.result.text
        if not all(isinstance(part, TextPart) for part in item.result.content):
            output = _CONTENT.encode_result(item.result.content)
        call_id = self.ids.id_of(item.call)
        return {"type": "function_call_output", "call_id": call_id, "output": output}


def _text_block(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _media_block(part: MediaPart) -> JsonObject | None:
    url = data_url(part)
    match part:
        case ImagePart(media_type):
            if url is None or media_type not in _IMAGE_TYPES:
                return None
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case FilePart(name=name, data=data):
            if data is not None:
                return {"type": "input_file", "filename": name, "file_data": url}
            if url is not None:
                return {"type": "input_file", "file_url": url}
            return None


_CONTENT = ContentBlocks(
    api="OpenAI's responses API",
    accepted="JPEG, PNG, GIF and WebP images, and files, by value or by URL",
    text_block=_text_block,
    media_block=_media_block,
)
