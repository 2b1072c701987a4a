"""Gemini's generateContent (P2).

The law: what the model signed goes back in the place where it stood, to the model that signed it
(S11): a call with its signature, a thought with its signature, and a signature that came with an
answer as an empty part behind it.
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
from windlass.models.dialect import Dialect, Options, Reader, WireRequest
from windlass.models.fragments import Fragment, Fragments
from windlass.models.gemini.reader import GeminiReader
from windlass.models.gemini.thinking import signs_calls, thinking
from windlass.models.turns import CallIds, Turns, as_object, body, encode

API = "the Gemini API"
TAKES = "JPEG, PNG, WebP, HEIC and HEIF images, PDF, text, audio and video"

UNSIGNED = "skip_thought_signature_validator"
"""The API's own word for a call that was not made by the model that is shown it."""

_IMAGES = frozenset(("image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"))
_FILES = ("application/pdf", "text/", "audio/", "video/")
_IN_RESULTS = frozenset(
    ("image/jpeg", "image/png", "image/webp", "application/pdf", "text/plain"),
)


class Gemini(Dialect):
    """The dialect of `POST /models/{model}:streamGenerateContent`."""

    def __init__(self) -> None:
        self._history = Fragments(GeminiEncoder)

    @override
    def encode(self, prompt: Prompt, model: str, options: Options) -> WireRequest:
        head: dict[str, Any] = {"generationConfig": _settings(prompt, model, options)}
        if options.service_tier is not None:
            head["serviceTier"] = options.service_tier
        if prompt.tools:
            head["toolConfig"] = {"functionCallingConfig": _choice(prompt.tool_choice)}
            head["tools"] = [{"functionDeclarations": _declared(prompt)}]
        if prompt.system:
            head["systemInstruction"] = {"parts": [{"text": prompt.system}]}
        signed = signs_calls(model)
        history = self._history.encoded(prompt.messages, prompt.model, signed=signed)
        encoded = body(head, options.extra_body, "contents", history)
        name = model if "/" in model else f"models/{model}"
        path = f"/{name}:streamGenerateContent?alt=sse"
        return WireRequest(path, encoded, dict(options.extra_headers))

    @override
    def reader(self, prompt: Prompt) -> Reader:
        return GeminiReader()


def _settings(prompt: Prompt, model: str, options: Options) -> dict[str, Any]:
    settings: dict[str, Any] = {"maxOutputTokens": prompt.output_max}
    if options.temperature is not None:
        settings["temperature"] = options.temperature
    if options.top_p is not None:
        settings["topP"] = options.top_p
    if options.seed is not None:
        settings["seed"] = options.seed
    if options.stop:
        settings["stopSequences"] = options.stop
    config = thinking(model, options.effort, prompt.output_max)
    if config is not None:
        settings["thinkingConfig"] = config
    return settings


def _choice(choice: ToolChoice) -> dict[str, Any]:
    match choice:
        case "auto" | "none":
            return {"mode": choice.upper()}
        case "required":
            return {"mode": "ANY"}
        case name:
            return {"mode": "ANY", "allowedFunctionNames": [name]}


def _declared(prompt: Prompt) -> list[dict[str, Any]]:
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
        self._nameless: set[str] = set()
        """The calls to which the provider gave no id, and which go without one."""
        self._turns = Turns("parts")

    def add(self, message: Message) -> Iterable[Fragment]:
        match message:
            case User(parts):
                given = [encode(block) for part in parts for block in _prompted(part)]
                return self._turns.add("user", given)
            case Assistant():
                return self._turns.add("model", [encode(part) for part in self._reply(message)])
            case Results(items):
                return self._turns.add("user", [encode(self._result(item)) for item in items])

    def _reply(self, reply: Assistant) -> Iterable[dict[str, Any]]:
        native = bool(reply.model) and reply.model == self._model
        # Of calls that were made together only the first one is signed.
        missing = self._signed
        for part in reply.parts:
            for said in self._said(part, native):
                if "functionCall" in said and missing:
                    missing = False
                    said.setdefault("thoughtSignature", UNSIGNED)
                yield said

    def _said(self, part: Said, native: bool) -> Iterable[dict[str, Any]]:  # noqa: FBT001
        match part:
            case Text(text):
                if text.strip():
                    yield {"text": text}
            case Thinking(text, signature):
                if native and (text or signature):
                    yield {
                        "text": text,
                        **({"thought": True} if text else {}),
                        **({"thoughtSignature": signature} if signature else {}),
                    }
            case ToolCall(signature=signature):
                yield {
                    "functionCall": self._call(part, native=native),
                    **({"thoughtSignature": signature} if native and signature else {}),
                }

    def _call(self, call: ToolCall, *, native: bool) -> dict[str, Any]:
        made: dict[str, Any] = {"name": call.name, "args": as_object(call.arguments)}
        if native and not call.provider_id:
            self._nameless.add(call.id)
            return made
        return {"id": self._ids.give(call, native=native), **made}

    def _result(self, item: CallResult) -> dict[str, Any]:
        result = item.result
        key = "output" if result.kind == "value" else "error"
        words, parts = self._shown(result.content)
        response: dict[str, Any] = {"name": item.call.name, "response": {key: words}}
        if parts:
            response["parts"] = parts
        if item.call.id not in self._nameless:
            response = {"id": self._ids.of(item.call), **response}
        return {"functionResponse": response}

    def _shown(self, content: Iterable[Content]) -> tuple[str, list[dict[str, Any]]]:
        """The words of a result, and the media beside them. Only newer models take those."""
        words: list[str] = []
        parts: list[dict[str, Any]] = []
        for part in content:
            match part:
                case Text(text):
                    words.append(text)
                case Image() | File():
                    if self._signed and part.data is not None and part.media_type in _IN_RESULTS:
                        parts.append(_inline(part, part.data))
                    else:
                        words.append(media.told(part, API))
        return "".join(words), parts


def _prompted(part: Content) -> Iterable[dict[str, Any]]:
    match part:
        case Text(text):
            return ({"text": text},) if text.strip() else ()
        case Image() | File():
            block = _media(part)
            if block is None:
                raise media.refused(part, API, TAKES)
            return (block,)


def _media(part: Image | File) -> dict[str, Any] | None:
    """The part, or None if the API cannot take it."""
    kind = part.media_type
    fits = kind in _IMAGES if isinstance(part, Image) else kind.startswith(_FILES)
    if not fits:
        return None
    if part.data is not None:
        return _inline(part, part.data)
    return None if part.url is None else {"fileData": {"mimeType": kind, "fileUri": part.url}}


def _inline(part: Image | File, data: bytes) -> dict[str, Any]:
    return {"inlineData": {"mimeType": part.media_type, "data": media.base64_of(data)}}
