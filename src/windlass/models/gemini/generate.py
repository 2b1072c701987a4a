"""Gemini's generateContent API.

Invariant: what the model signed goes back in the place where it stood, to the model that signed it:
a call with its signature, a thought with its signature, and a signature that came with an
answer as an empty part behind the answer.
"""

import re
from collections.abc import Iterable, Iterator

from typing_extensions import override

from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    ContentPart,
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
    as_json_object,
    build_body,
    drop_unset,
    encode_base64,
    unsupported_media_note,
)
from windlass.models.fragments import EncodedHistories
from windlass.models.gemini.reader import GeminiReader
from windlass.models.options import Effort, ModelOptions

UNSIGNED_CALL = "skip_thought_signature_validator"
"""The signature that the API wants for a call that another model made."""

_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"))
_FILE_TYPES = ("application/pdf", "text/", "audio/", "video/")
_RESULT_MEDIA_TYPES = frozenset(
    ("image/jpeg", "image/png", "image/webp", "application/pdf", "text/plain"),
)

_MODEL_NAME = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_FIRST_WITH_BUDGETS = (2, 5)
_FIRST_WITH_LEVELS = (3, 0)
_NEWEST = (99, 0)
_BUDGETS: dict[Effort, int] = {"low": 1_024, "medium": 8_192, "high": 24_576}
_BUDGET_MIN = 512


class GeminiDialect(Dialect):
    """The dialect of `POST /models/{model}:streamGenerateContent`."""

    def __init__(self) -> None:
        self._histories = EncodedHistories(GeminiEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        head: JsonObject = {"generationConfig": _generation_config(prompt, model, options)}
        if options.service_tier is not None:
            head["serviceTier"] = options.service_tier
        if prompt.tools:
            head["toolConfig"] = {"functionCallingConfig": _encode_tool_choice(prompt.tool_choice)}
            head["tools"] = [{"functionDeclarations": _encode_tools(prompt)}]
        if prompt.system:
            head["systemInstruction"] = {"parts": [{"text": prompt.system}]}
        history = self._histories.encode_messages(
            prompt.messages, prompt.model, signed=requires_signatures(model)
        )
        body = build_body(head, options.extra_body, "contents", history)
        # Tuned models have their own path, such as `tunedModels/x`.
        name = model if "/" in model else f"models/{model}"
        path = f"/{name}:streamGenerateContent?alt=sse"
        return WireRequest(path, body, dict(options.extra_headers))

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return GeminiReader()


def _generation_config(prompt: Prompt, model: str, options: ModelOptions) -> JsonObject:
    return drop_unset(
        {
            "maxOutputTokens": prompt.output_max,
            "temperature": options.temperature,
            "topP": options.top_p,
            "seed": options.seed,
            "stopSequences": options.stop or None,
            "thinkingConfig": thinking_config(model, options.effort, prompt.output_max),
        }
    )


def _encode_tool_choice(choice: ToolChoice) -> JsonObject:
    match choice:
        case "auto" | "none":
            return {"mode": choice.upper()}
        case "required":
            return {"mode": "ANY"}
        case name:
            return {"mode": "ANY", "allowedFunctionNames": [name]}


def _encode_tools(prompt: Prompt) -> list[JsonObject]:
    tools: list[JsonObject] = []
    for spec in prompt.tools:
        tool: JsonObject = {"name": spec.name, "description": spec.description}
        # The API refuses an empty schema, so a tool without parameters has none.
        schema = spec.parameters
        if schema and (schema.get("type") != "object" or schema.get("properties")):
            tool["parametersJsonSchema"] = schema
        tools.append(tool)
    return tools


def requires_signatures(model: str) -> bool:
    """Whether the model refuses calls without a signature. Those models take media in results."""
    version = _parse_version(model)
    return version is not None and version >= _FIRST_WITH_LEVELS


def thinking_config(model: str, effort: Effort | None, output_max: int) -> JsonObject | None:
    """Return how much to think: a level from Gemini 3 on, a budget in tokens at 2.5.

    Some models cannot stop thinking; for those, `off` is the least that they accept. Returns None
    if nothing is to be sent.
    """
    version = _parse_version(model)
    if effort is None or version is None or version < _FIRST_WITH_BUDGETS:
        return None
    is_pro = "-pro" in model
    config: JsonObject = {}
    if effort != "off":
        config["includeThoughts"] = True
    if version >= _FIRST_WITH_LEVELS:
        config["thinkingLevel"] = _thinking_level(effort, version, is_pro=is_pro)
    elif effort == "off":
        config["thinkingBudget"] = 128 if is_pro else 0
    else:
        # The output cap covers thoughts and answer; some of it must be left for the answer.
        budget = min(_BUDGETS[effort], output_max * 3 // 4)
        config["thinkingBudget"] = max(budget, _BUDGET_MIN)
    return config


def _thinking_level(effort: Effort, version: tuple[int, int], *, is_pro: bool) -> str:
    match effort:
        case "off":
            return "low" if is_pro else "minimal"
        case "medium" if is_pro and version == _FIRST_WITH_LEVELS:
            return "high"  # Gemini 3.0 Pro knows only two levels.
        case "low" | "medium" | "high":
            return effort


def _parse_version(model: str) -> tuple[int, int] | None:
    """Return the version in a model's name, or None if the name is not Gemini's.

    A name without a number, such as `gemini-flash-latest`, counts as the newest version.
    """
    if "gemini" not in model:
        return None
    found = _MODEL_NAME.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else _NEWEST


class GeminiEncoder(BlockEncoder):
    """Encodes one history for one model. `signed`: the model refuses calls without a signature."""

    content_key = "parts"
    reply_role = "model"

    def __init__(self, model: str, *, signed: bool) -> None:
        super().__init__(model, _CONTENT)
        self._signed = signed
        self._calls_without_id: set[str] = set()
        """The calls to which the provider gave no id. They and their results have none either."""

    @override
    def encode_reply(self, reply: AssistantMessage) -> Iterator[JsonObject]:
        # Of calls that were made together only the first one is signed.
        needs_signature = self._signed
        for block in super().encode_reply(reply):
            if "functionCall" in block and needs_signature:
                needs_signature = False
                block.setdefault("thoughtSignature", UNSIGNED_CALL)
            yield block

    @override
    def thinking_block(self, part: ThinkingPart) -> JsonObject | None:
        if not part.text and not part.signature:
            return None
        # Without text, it is the signature of an answer and not a thought.
        return drop_unset(
            {
                "text": part.text,
                "thought": bool(part.text) or None,
                "thoughtSignature": part.signature or None,
            }
        )

    @override
    def call_block(self, call: ToolCall, *, native: bool) -> JsonObject:
        fields: JsonObject = {"name": call.name, "args": as_json_object(call.arguments)}
        if native and not call.provider_id:
            self._calls_without_id.add(call.id)
        else:
            fields = {"id": self.ids.assign_id(call, native=native), **fields}
        block: JsonObject = {"functionCall": fields}
        if native and call.signature:
            block["thoughtSignature"] = call.signature
        return block

    @override
    def result_block(self, item: CallOutcome) -> JsonObject:
        key = "output" if item.result.kind == "value" else "error"
        text, media = self._split_result_content(item.result.content)
        response: JsonObject = {"name": item.call.name, "response": {key: text}}
        if media:
            response["parts"] = media
        if item.call.id not in self._calls_without_id:
            response = {"id": self.ids.id_of(item.call), **response}
        return {"functionResponse": response}

    def _split_result_content(self, content: Iterable[ContentPart]) -> tuple[str, list[JsonObject]]:
        """Return the text of a result, and the media next to it. Only newer models accept media."""
        texts: list[str] = []
        media: list[JsonObject] = []
        for part in content:
            if isinstance(part, TextPart):
                texts.append(part.text)
            elif self._signed and part.data is not None and part.media_type in _RESULT_MEDIA_TYPES:
                media.append(_inline_data(part, part.data))
            else:
                texts.append(unsupported_media_note(part, _CONTENT.api))
        return "".join(texts), media


def _text_block(text: str) -> JsonObject:
    return {"text": text}


def _media_block(part: MediaPart) -> JsonObject | None:
    media_type = part.media_type
    if isinstance(part, ImagePart):
        accepted = media_type in _IMAGE_TYPES
    else:
        accepted = media_type.startswith(_FILE_TYPES)
    if not accepted:
        return None
    if part.data is not None:
        return _inline_data(part, part.data)
    if part.url is not None:
        return {"fileData": {"mimeType": media_type, "fileUri": part.url}}
    return None


def _inline_data(part: MediaPart, data: bytes) -> JsonObject:
    return {"inlineData": {"mimeType": part.media_type, "data": encode_base64(data)}}


_CONTENT = ContentBlocks(
    api="the Gemini API",
    accepted="JPEG, PNG, WebP, HEIC and HEIF images, PDF, text, audio and video",
    text_block=_text_block,
    media_block=_media_block,
)
