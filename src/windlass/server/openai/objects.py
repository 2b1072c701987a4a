"""Objects, errors and ids of the OpenAI API as clients read them. Names and fields are theirs.

Data that has no place in them is in a separate field, `windlass`.

Invariant: a client knows from the status whether to send the same request again. What only a person
can change is never 408, 409, 429 or 5xx: their clients would repeat the request, and each
repetition would be a new run.

The run of a response, chat completion or message is found again from its id. An id is only a name:
the caller must still own the session that it leads to.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from windlass.core.messages import Ledger
from windlass.server.messages import ApiError, HttpReply, error_headers


class ModelObject(msgspec.Struct, frozen=True):
    """An agent, as a client lists models."""

    id: str
    created: int = 0
    owned_by: str = "windlass"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True):
    data: tuple[ModelObject, ...]
    object: Literal["list"] = "list"


class LinkedQuestion(msgspec.Struct, frozen=True):
    """A question that a run waits for, and where it can be answered."""

    call_id: str
    tool: str
    question: str
    session: str
    url: str


class RunDetails(msgspec.Struct, frozen=True):
    """What is known about a run beyond the fields of the protocol."""

    session: str
    run: int
    response_id: str
    """Gives the run again by `GET /v1/responses/{id}`."""
    state: str
    """How it ended, or `running`, `waiting` (for a person) or `paused`."""
    reason: str = ""
    questions: tuple[LinkedQuestion, ...] = ()


class InputDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True):
    """Tokens and money of a run, as a response reports them."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails
    cost: float | None = None
    """US dollars; None if a price is unknown."""


class CompletionUsage(msgspec.Struct, frozen=True):
    """Tokens and money of a run, as a chat completion reports them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: InputDetails
    completion_tokens_details: OutputDetails
    cost: float | None = None
    """US dollars; None if a price is unknown."""


def response_usage(ledger: Ledger) -> ResponseUsage | None:
    """Return what a run has used, or None if nothing is known."""
    usage = ledger.usage
    if usage is None:
        return None
    return ResponseUsage(
        usage.input,
        usage.output,
        usage.total,
        InputDetails(usage.cache_read),
        OutputDetails(usage.reasoning),
        # Their clients read money as a number. The exact amount is in the session.
        None if ledger.usd is None else float(ledger.usd),
    )


def chat_usage(usage: ResponseUsage | None) -> CompletionUsage | None:
    """Return the usage of a response in the words of chat completions."""
    if usage is None:
        return None
    return CompletionUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        usage.input_tokens_details,
        usage.output_tokens_details,
        usage.cost,
    )


class OutputText(msgspec.Struct, frozen=True):
    text: str
    annotations: tuple[str, ...] = ()
    logprobs: tuple[str, ...] = ()
    type: Literal["output_text"] = "output_text"


ItemStatus = Literal["in_progress", "completed", "incomplete"]
ItemPhase = Literal["commentary", "final_answer"]


class OutputItem(msgspec.Struct, frozen=True):
    """One reply of the model. The calls of an agent run here, so a client is not shown them."""

    id: str
    status: ItemStatus
    content: tuple[OutputText, ...] = ()
    phase: ItemPhase | None = None
    """`commentary`: text beside calls, after which the run went on."""
    role: Literal["assistant"] = "assistant"
    type: Literal["message"] = "message"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content)


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


FINAL_CODE_END = "_invalid_to_repeat"
"""Ends the code of a failure that is final. Of a streamed failure, the AI SDK decides by the words
of the code alone whether to send the request again: `invalid` stops it, an unknown one does not."""


class ResponseFault(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str
    type: str = "server_error"
    param: None = None
    retryable: bool = False
    """Whether the same request may go better next time."""


def make_response_fault(code: str, message: str, *, retryable: bool) -> ResponseFault:
    """Return a failure that looks like an error of the server only if it may go better next time.

    A request that is sent again begins another run, with its effects.
    """
    if retryable:
        return ResponseFault(code, message, retryable=True)
    return ResponseFault(code + FINAL_CODE_END, message, "invalid_request_error")


class TextFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The format of the answer: text, or JSON of a schema."""

    type: str
    name: str = ""
    schema: Mapping[str, Any] | None = None


class TextSettings(msgspec.Struct, frozen=True):
    format: TextFormat


def text_settings(schema: Mapping[str, Any] | None) -> TextSettings:
    """Return the format of an answer that must fit this schema; None: any text."""
    if schema is None:
        return TextSettings(TextFormat("text"))
    return TextSettings(TextFormat("json_schema", "answer", schema))


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: str


class ResponseObject(msgspec.Struct, frozen=True):
    """A run, as the responses API shows it."""

    id: str
    created_at: int
    model: str
    status: ResponseStatus
    windlass: RunDetails
    output: tuple[OutputItem, ...] = ()
    usage: ResponseUsage | None = None
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    previous_response_id: str | None = None
    completed_at: int | None = None
    object: Literal["response"] = "response"
    # What a client cannot choose here, because it belongs to the agent.
    background: bool = True
    instructions: None = None
    max_output_tokens: None = None
    metadata: Mapping[str, str] = {}
    parallel_tool_calls: bool = True
    store: bool = True
    temperature: None = None
    text: TextSettings = text_settings(None)
    tool_choice: Literal["auto"] = "auto"
    tools: tuple[str, ...] = ()
    top_p: None = None
    truncation: Literal["disabled"] = "disabled"


IdKind = Literal["resp", "chatcmpl", "msg"]


class RunReference(NamedTuple):
    """What an id leads to."""

    kind: IdKind
    session: str
    number: int
    """Of the run in its session; for a message, of the fact that began its attempt."""


def make_id(kind: IdKind, session: str, number: int) -> str:
    """Return the id of a run or message, such as `resp_1_c2Vzc2lvbg`."""
    # The name of a session is any text, and an id is used in URLs.
    name = urlsafe_b64encode(session.encode()).rstrip(b"=").decode()
    mark = "-" if kind == "chatcmpl" else "_"
    return f"{kind}{mark}{number}_{name}"


def read_id(text: str) -> RunReference | None:
    """Return what an id leads to, or None if it is not one of ours."""
    for kind in ("resp", "chatcmpl", "msg"):
        mark = "-" if kind == "chatcmpl" else "_"
        number, found, name = text.removeprefix(f"{kind}{mark}").partition("_")
        if not text.startswith(f"{kind}{mark}") or not found or not number.isascii():
            continue
        if not number.isdigit() or len(number) > 15:  # noqa: PLR2004 - no session has as many facts
            return None
        try:
            session = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        except ValueError:
            return None
        reference = RunReference(kind, session, int(number))
        # Base64 has several spellings of one text. An id has one.
        return reference if make_id(*reference) == text else None
    return None


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class ErrorDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong, in their words."""

    message: str
    type: str
    code: str
    param: str | None = None
    windlass: RunDetails | None = None
    """The run that the error is about, with the questions that it waits for."""


class OpenAIErrorReply(msgspec.Struct, frozen=True):
    """The body of an error."""

    error: ErrorDetails


class OpenAIError(ApiError):
    """A request that is refused, with the field that is wrong or the run that it is about."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        *,
        param: str | None = None,
        details: RunDetails | None = None,
    ) -> None:
        super().__init__(status, code, message, hint)
        self.param = param
        self.details = details


def describe_error(error: ApiError) -> ErrorDetails:
    """Return an error as the value of their field `error`."""
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP
    kind = _TYPES.get(error.status, fallback)
    details = ErrorDetails(str(error), kind, error.code)
    if isinstance(error, OpenAIError):
        details = msgspec.structs.replace(details, param=error.param, windlass=error.details)
    return details


def openai_error_reply(error: ApiError) -> HttpReply:
    """Return an error of any part of the service in their shape."""
    headers = error_headers(error)
    if isinstance(error, OpenAIError) and error.details is not None:
        # The run has been paid for. Asking again would pay for another one.
        headers["x-should-retry"] = "false"
    status = error.status
    return HttpReply(status, OpenAIErrorReply(describe_error(error)), headers)
