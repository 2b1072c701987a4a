"""What clients may ask for, and what they cannot have from an agent.

Invariant: a field that an agent cannot honour is refused if the answer would not be what was asked
for (tools, a format, several choices), and ignored if it only tunes the model (temperature), which
belongs to the agent.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from windlass.server.api.runs import RunCaps
from windlass.server.openai.openai_errors import OpenAIError

JsonDict = dict[str, Any]


class WindlassOptions(msgspec.Struct, frozen=True):
    """What their protocol has no words for: `extra_body={"windlass": {…}}` in their clients."""

    on_question: Literal["fail", "wait"] = "fail"
    """If the run must wait for a person: end the request with an error that links to the question,
    or keep it open until the question is answered. The run waits in either case."""
    limits: RunCaps | None = None
    """Stricter limits than the agent's: steps, tokens, usd, seconds."""


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True):
    """The body of a chat completion."""

    model: str
    messages: tuple[JsonDict, ...]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    windlass: WindlassOptions = WindlassOptions()
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    tools: tuple[JsonDict, ...] | None = None
    tool_choice: str | JsonDict | None = None
    functions: tuple[JsonDict, ...] | None = None
    response_format: JsonDict | None = None
    stop: str | tuple[str, ...] | None = None
    logprobs: bool | None = None
    modalities: tuple[str, ...] | None = None


class ResponseRequest(msgspec.Struct, frozen=True):
    """The body of a response."""

    model: str
    input: str | tuple[JsonDict, ...] = ()
    instructions: str | None = None
    previous_response_id: str | None = None
    background: bool | None = None
    stream: bool | None = None
    windlass: WindlassOptions = WindlassOptions()
    max_output_tokens: int | None = None
    tools: tuple[JsonDict, ...] | None = None
    tool_choice: str | JsonDict | None = None
    text: JsonDict | None = None
    conversation: str | JsonDict | None = None
    prompt: JsonDict | None = None


class RetrieveQuery(msgspec.Struct, frozen=True):
    """The query of a response that is read again."""

    stream: bool = False
    starting_after: int = -1
    """The `sequence_number` of the last event that the client has seen."""
    include: tuple[str, ...] = msgspec.field(default=(), name="include[]")
    include_obfuscation: bool = False


def check_chat_request(request: ChatRequest) -> None:
    """Raise OpenAIError for what an agent cannot do."""
    _refuse_tools(request.tools, request.tool_choice)
    _refuse_tools(request.functions, None, "functions")
    _refuse_format(request.response_format, "response_format")
    if request.n not in (None, 1):
        raise _unsupported("n", "A run has one answer.", "Leave `n` out, or send the request again")
    if request.stop:
        raise _unsupported("stop", "An agent ends its answer itself.", "Leave `stop` out")
    if request.logprobs:
        raise _unsupported("logprobs", "A run has no log probabilities.", "Leave it out")
    if any(kind != "text" for kind in request.modalities or ()):
        raise _unsupported("modalities", "An agent answers with text.", "Leave it out")


def check_response_request(request: ResponseRequest) -> None:
    """Raise OpenAIError for what an agent cannot do."""
    _refuse_tools(request.tools, request.tool_choice)
    _refuse_format((request.text or {}).get("format"), "text.format")
    if request.conversation is not None:
        raise _unsupported(
            "conversation", "Conversations are sessions here.", "Send `previous_response_id`"
        )
    if request.prompt is not None:
        raise _unsupported("prompt", "There are no prompt templates here.", "Send `input`")


def _refuse_tools(
    tools: Sequence[JsonDict] | None, choice: str | JsonDict | None, param: str = "tools"
) -> None:
    forced = isinstance(choice, dict) or choice == "required"
    if tools or forced:
        raise _unsupported(
            param,
            "A model of this service is an agent, and its own tools run in the service.",
            "Leave the tools out, or give them to the agent",
        )


def _refuse_format(wanted: JsonDict | None, param: str) -> None:
    if wanted is not None and wanted.get("type", "text") != "text":
        raise _unsupported(
            param,
            "The format of the answer belongs to the agent (its output type).",
            "Leave it out, or choose an agent with that output type",
        )


def _unsupported(param: str, why: str, hint: str) -> OpenAIError:
    message = f"`{param}` is not supported. {why}"
    return OpenAIError(400, "unsupported_parameter", message, f"{hint}.", param=param)
