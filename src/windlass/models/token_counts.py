"""How many tokens a prompt has: as the provider counts them, or as a close estimate.

Invariant: a count says whether it is exact. Vendors that have an endpoint for it are asked; for all
others the text is estimated by its characters. No tokenizer is shipped or fetched: what a model
was billed for calibrates the estimates of its later runs.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from windlass.core.errors import FaultKind, ModelError
from windlass.core.messages import ContentPart, Message, TextPart, ToolSpec, UserMessage
from windlass.core.view import Prompt
from windlass.http.client import send_request
from windlass.http.errors import HttpError
from windlass.models.anthropic.messages import AnthropicMessages
from windlass.models.bedrock.converse import BedrockConverse
from windlass.models.gemini.generate import GeminiDialect
from windlass.models.http.model import HttpModel
from windlass.models.http.provider_errors import mask_keys
from windlass.models.openai.responses import OpenAIResponses
from windlass.ports import Model

COUNT_S = 10.0
"""Seconds that a count by the provider may take as a whole."""
ANSWER_BYTES_MAX = 262_144
_STATUS_OK = range(200, 300)
_SERVER_ERRORS = range(500, 600)
_REFUSALS: dict[int, FaultKind] = {404: "bad_request", 405: "bad_request", 429: "rate_limit"}

# Tokens for each character, fitted to four tokenizers: `make bench-tokens` measures the error.
_WEIGHTS: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"[A-Za-z]"), 0.28),
    (re.compile(r"[0-9]"), 1.1),
    (re.compile(r"[!-/:-@\[-`{-~]"), 0.5),
    (re.compile(r"[\u0080-\u024f]"), 1.4),  # Latin letters with marks
    (re.compile(r"[\u0400-\u04ff]"), 0.48),  # Cyrillic
    (re.compile(r"[\u0590-\u06ff]"), 0.7),  # Hebrew and Arabic
    (re.compile(r"[^\x00-\u024f\u0400-\u04ff\u0590-\u06ff\s]"), 0.97),  # all other scripts
)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """The tokens of a prompt, and who counted them."""

    tokens: int
    source: Literal["provider", "estimate"]

    @property
    def is_exact(self) -> bool:
        """Whether the provider counted, so that nothing was estimated."""
        return self.source == "provider"


def estimate_text_tokens(text: str) -> int:
    """Return about how many tokens a text has, from its characters alone."""
    if not text:
        return 0
    return max(1, round(sum(weight * len(found.findall(text)) for found, weight in _WEIGHTS)))


async def count_tokens(
    model: Model,
    prompt: str | Sequence[ContentPart] | Sequence[Message],
    *,
    instructions: str = "",
    tools: Sequence[ToolSpec] = (),
) -> TokenCount:
    """Count the tokens of a prompt, or of a whole conversation, for a model.

    Asks the provider if it has an endpoint for that, which costs nothing: Anthropic, Gemini,
    OpenAI's responses, Bedrock, vLLM and llama.cpp. Otherwise, and if the server does not have the
    endpoint after all, it is an estimate. Raises ModelError if the provider fails.
    """
    messages = _as_messages(prompt)
    asked = Prompt(model.info.name, instructions, messages, tuple(tools), "auto", 1_024)
    if isinstance(model, HttpModel):
        tokens = await _ask_provider(model, asked)
        if tokens is not None:
            return TokenCount(tokens, "provider")
    texts = [instructions, *(msgspec.json.encode(spec.parameters).decode() for spec in tools)]
    texts += [spec.description for spec in tools]
    texts += [_message_text(message) for message in messages]
    return TokenCount(estimate_text_tokens("\n".join(texts)), "estimate")


def _as_messages(prompt: str | Sequence[ContentPart] | Sequence[Message]) -> list[Message]:
    if isinstance(prompt, str):
        return [UserMessage((TextPart(prompt),))]
    parts: list[ContentPart] = []
    messages: list[Message] = []
    for item in prompt:
        if isinstance(item, ContentPart):
            parts.append(item)
        else:
            messages.append(item)
    return [*messages, UserMessage(tuple(parts))] if parts else messages


def _message_text(message: Message) -> str:
    """Return all text of a message, with its calls and results as they are encoded."""
    if isinstance(message, UserMessage):
        return message.text
    return re.sub(r'"(?:type|id|provider_id)":"[^"]*",?', "", msgspec.json.encode(message).decode())


async def _ask_provider(model: HttpModel, prompt: Prompt) -> int | None:
    """Return what the provider counts; None if it lacks an endpoint for that."""
    count = _find_counter(model)
    if count is None:
        return None
    request = model.encode_request(prompt)
    body = msgspec.json.decode(request.body, type=dict[str, Any])
    path, fields, answer_field = count(request.path, body)
    url = model.url if not path.startswith("//") else model.url.removesuffix("/v1")
    url += path.removeprefix("/") if path.startswith("//") else path
    encoded = msgspec.json.encode(fields)
    headers = {**request.headers, **await model.sign_headers(url, encoded)}
    try:
        answer = await _fetch_object(model, url, headers, encoded)
    except ModelError as error:
        if error.fault.kind == "bad_request":
            return None
        raise
    found = answer.get(answer_field)
    if isinstance(found, list):
        return len(found)  # pyright: ignore[reportUnknownArgumentType]
    return found if isinstance(found, int) else None


async def _fetch_object(
    model: HttpModel, url: str, headers: Mapping[str, str], body: bytes
) -> dict[str, Any]:
    """Return the JSON object that the provider answers with, within COUNT_S.

    Raises ModelError, of one line that says which service failed. What was sent is never in it.
    """
    service = f"the token count of {model.info.name}"
    try:
        async with asyncio.timeout(COUNT_S):
            status, answer = await _exchange(url, headers, body, model.proxy)
    except TimeoutError:
        fault = ModelError("network", f"{service} did not answer within {COUNT_S:g} s")
    except HttpError as error:
        fault = ModelError("network", f"{service} cannot be reached ({error})")
    else:
        if status not in _STATUS_OK:
            raise _refusal_error(service, status, answer)
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except msgspec.DecodeError:
            message = f"{service} answered with something that is not a JSON object"
            raise ModelError("server", message) from None
    raise fault


async def _exchange(
    url: str, headers: Mapping[str, str], body: bytes, proxy: str | None
) -> tuple[int, bytes]:
    # No redirect is followed: a secret must not be sent to another host.
    response = await send_request(
        "POST", url, headers={"Accept": "application/json", **headers}, body=body, proxy=proxy
    )
    try:
        return response.status, await response.read_up_to(ANSWER_BYTES_MAX)
    finally:
        response.close()


def _refusal_error(service: str, status: int, body: bytes) -> ModelError:
    text = mask_keys(body.decode("utf-8", "replace"))
    if text.startswith("<"):
        text = "an HTML page"
    message = f"{service} refused the request ({status}): {text}".rstrip(": .")
    if status in _SERVER_ERRORS:
        return ModelError("server", message)
    return ModelError(_REFUSALS.get(status, "auth"), message)


_Body = dict[str, Any]
_Counter = Callable[[str, _Body], tuple[str, _Body, str]]
"""From the path and the body of a request: those of the count, and the field with the answer."""


def _find_counter(model: HttpModel) -> _Counter | None:
    match model.dialect:
        case AnthropicMessages() if model.vendor == "anthropic":
            return _count_anthropic
        case GeminiDialect():
            return _count_gemini
        case OpenAIResponses() if model.vendor == "openai":
            return _count_responses
        case BedrockConverse():
            return _count_bedrock
        case _ if model.vendor == "vllm":
            return _count_vllm
        case _ if model.vendor == "llamacpp":
            return _count_llamacpp
        case _:
            return None


def _pick(body: _Body, *names: str) -> _Body:
    return {name: body[name] for name in names if name in body}


def _count_anthropic(path: str, body: _Body) -> tuple[str, _Body, str]:
    fields = _pick(body, "model", "messages", "system", "tools", "tool_choice", "thinking")
    return f"{path}/count_tokens", fields, "input_tokens"


def _count_gemini(path: str, body: _Body) -> tuple[str, _Body, str]:
    name = path.removeprefix("/").split(":")[0]
    request = {"model": name, **_pick(body, "contents", "systemInstruction", "tools")}
    return f"/{name}:countTokens", {"generateContentRequest": request}, "totalTokens"


def _count_responses(path: str, body: _Body) -> tuple[str, _Body, str]:
    fields = _pick(body, "model", "input", "instructions", "tools", "tool_choice", "reasoning")
    return f"{path}/input_tokens", fields, "input_tokens"


def _count_bedrock(path: str, body: _Body) -> tuple[str, _Body, str]:
    asked = _pick(body, "messages", "system", "toolConfig", "additionalModelRequestFields")
    counting = path.removesuffix("/converse-stream") + "/count-tokens"
    return counting, {"input": {"converse": asked}}, "inputTokens"


def _count_vllm(path: str, body: _Body) -> tuple[str, _Body, str]:  # noqa: ARG001 - the endpoint is not below the API's path
    return "//tokenize", _pick(body, "model", "messages", "tools"), "count"


def _count_llamacpp(path: str, body: _Body) -> tuple[str, _Body, str]:  # noqa: ARG001 - as above
    text = "\n".join(str(message.get("content") or "") for message in body["messages"])
    return "//tokenize", {"content": text}, "tokens"
