"""Gemini's generateContent (P2).

The law: what the model signed goes back in the place where it stood, to the model that signed it
(S11): a call with its signature, a thought with its signature, and a signature that came with an
answer as an empty part behind it.
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
from windlass.models.dialect import Dialect, ModelOptions, ReplyReader, WireRequest
from windlass.models.fragments import EncodedHistories, HistoryFragment
from windlass.models.gemini.reader import GeminiReader
from windlass.models.gemini.thinking import requires_signatures, thinking_config
from windlass.models.turns import CallIds, TurnJoiner, as_json_object, build_body, encode_json

API_NAME = "the Gemini API"
ACCEPTED_MEDIA = "JPEG, PNG, WebP, HEIC and HEIF images, PDF, text, audio and video"

UNSIGNED_CALL = "skip_thought_signature_validator"
"""The API's own word for a call that was not made by the model that is shown it."""

_IMAGE_TYPES = frozenset(("image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"))
_FILE_TYPES = ("application/pdf", "text/", "audio/", "video/")
_RESULT_MEDIA_TYPES = frozenset(
    ("image/jpeg", "image/png", "image/webp", "application/pdf", "text/plain"),
)


class GeminiDialect(Dialect):
    """The dialect of `POST /models/{model}:streamGenerateContent`."""

    def __init__(self) -> None:
        self._history = EncodedHistories(GeminiEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        head: dict[str, Any] = {"generationConfig": _generation_config(prompt, model, options)}
        if options.service_tier is not None:
            head["serviceTier"] = options.service_tier
        if prompt.tools:
            head["toolConfig"] = {"functionCallingConfig": _encode_tool_choice(prompt.tool_choice)}
            head["tools"] = [{"functionDeclarations": _encode_tools(prompt)}]
        if prompt.system:
            head["systemInstruction"] = {"parts": [{"text": prompt.system}]}
        signed = requires_signatures(model)
        history = self._history.encode_messages(prompt.messages, prompt.model, signed=signed)
        encoded = build_body(head, options.extra_body, "contents", history)
        name = model if "/" in model else f"models/{model}"
        path = f"/{name}:streamGenerateContent?alt=sse"
        return WireRequest(path, encoded, dict(options.extra_headers))

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return GeminiReader()


def _generation_config(prompt: Prompt, model: str, options: ModelOptions) -> dict[str, Any]:
    settings: dict[str, Any] = {"maxOutputTokens": prompt.output_max}
    if options.temperature is not None:
        settings["temperature"] = options.temperature
    if options.top_p is not None:
        settings["topP"] = options.top_p
    if options.seed is not None:
        settings["seed"] = options.seed
    if options.stop:
        settings["stopSequences"] = options.stop
    config = thinking_config(model, options.effort, prompt.output_max)
    if config is not None:
        settings["thinkingConfig"] = config
    return settings


def _encode_tool_choice(choice: ToolChoice) -> dict[str, Any]:
    match choice:
        case "auto" | "none":
            return {"mode": choice.upper()}
        case "required":
            return {"mode": "ANY"}
        case name:
            return {"mode": "ANY", "allowedFunctionNames": [name]}


def _encode_tools(prompt: Prompt) -> list[dict[str, Any]]:
    """A tool without parameters has no schema here: the API refuses an empty one."""
    return [
        {
            "name": spec.name,
            "description": spec.description,
            **({"parametersJsonSchema": spec.parameters} if _has_fields(spec.parameters) else {}),
        }
        for spec in prompt.tools
    ]


def _has_fields(schema: dict[str, Any]) -> bool:
    return bool(schema) and not (schema.get("type") == "object" and not schema.get("properties"))


class GeminiEncoder:
    """Encodes one history for one model. `signed`: it refuses calls without a signature."""

    def __init__(self, model: str, *, signed: bool) -> None:
        self._model = model
        self._signed = signed
        self._ids = CallIds()
        self._calls_without_id: set[str] = set()
        """The calls to which the provider gave no id, and which go without one."""
        self._turns = TurnJoiner("parts")

    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        match message:
            case UserMessage(parts):
                given = [
                    encode_json(block) for part in parts for block in _encode_prompt_part(part)
                ]
                return self._turns.add_blocks("user", given)
            case AssistantMessage():
                return self._turns.add_blocks(
                    "model", [encode_json(part) for part in self._encode_reply(message)]
                )
            case ToolResults(items):
                return self._turns.add_blocks(
                    "user", [encode_json(self._encode_result(item)) for item in items]
                )

    def _encode_reply(self, reply: AssistantMessage) -> Iterable[dict[str, Any]]:
        native = bool(reply.model) and reply.model == self._model
        # Of calls that were made together only the first one is signed.
        missing = self._signed
        for part in reply.parts:
            for said in self._encode_reply_part(part, native):
                if "functionCall" in said and missing:
                    missing = False
                    said.setdefault("thoughtSignature", UNSIGNED_CALL)
                yield said

    def _encode_reply_part(self, part: ReplyPart, native: bool) -> Iterable[dict[str, Any]]:  # noqa: FBT001
        match part:
            case TextPart(text):
                if text.strip():
                    yield {"text": text}
            case ThinkingPart(text, signature):
                if native and (text or signature):
                    yield {
                        "text": text,
                        **({"thought": True} if text else {}),
                        **({"thoughtSignature": signature} if signature else {}),
                    }
            case ToolCall(signature=signature):
                yield {
                    "functionCall": self._encode_call(part, native=native),
                    **({"thoughtSignature": signature} if native and signature else {}),
                }

    def _encode_call(self, call: ToolCall, *, native: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"name": call.name, "args": as_json_object(call.arguments)}
        if native and not call.provider_id:
            self._calls_without_id.add(call.id)
            return made
        return {"id": self._ids.assign_id(call, native=native), **made}

    def _encode_result(self, item: CallOutcome) -> dict[str, Any]:
        result = item.result
        key = "output" if result.kind == "value" else "error"
        words, parts = self._split_result_content(result.content)
        response: dict[str, Any] = {"name": item.call.name, "response": {key: words}}
        if parts:
            response["parts"] = parts
        if item.call.id not in self._calls_without_id:
            response = {"id": self._ids.id_of(item.call), **response}
        return {"functionResponse": response}

    def _split_result_content(
        self, content: Iterable[ContentPart]
    ) -> tuple[str, list[dict[str, Any]]]:
        """The words of a result, and the media beside them. Only newer models take those."""
        words: list[str] = []
        parts: list[dict[str, Any]] = []
        for part in content:
            match part:
                case TextPart(text):
                    words.append(text)
                case ImagePart() | FilePart():
                    if (
                        self._signed
                        and part.data is not None
                        and part.media_type in _RESULT_MEDIA_TYPES
                    ):
                        parts.append(_inline_data(part, part.data))
                    else:
                        words.append(media.unsupported_media_note(part, API_NAME))
        return "".join(words), parts


def _encode_prompt_part(part: ContentPart) -> Iterable[dict[str, Any]]:
    match part:
        case TextPart(text):
            return ({"text": text},) if text.strip() else ()
        case ImagePart() | FilePart():
            block = _encode_media(part)
            if block is None:
                raise media.unsupported_media_error(part, API_NAME, ACCEPTED_MEDIA)
            return (block,)


def _encode_media(part: ImagePart | FilePart) -> dict[str, Any] | None:
    """The part, or None if the API cannot take it."""
    kind = part.media_type
    fits = kind in _IMAGE_TYPES if isinstance(part, ImagePart) else kind.startswith(_FILE_TYPES)
    if not fits:
        return None
    if part.data is not None:
        return _inline_data(part, part.data)
    return None if part.url is None else {"fileData": {"mimeType": kind, "fileUri": part.url}}


def _inline_data(part: ImagePart | FilePart, data: bytes) -> dict[str, Any]:
    return {"inlineData": {"mimeType": part.media_type, "data": media.encode_base64(data)}}
