"""Objects of the OpenAI API as clients read them. Names and fields are theirs, not ours.

Data that has no place in them is in a separate field, `windlass`.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from windlass.core.messages import Ledger


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


class ResponseFault(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str
    type: str = "server_error"
    param: None = None
    retryable: bool = False
    """Whether the same request may go better next time."""


class TextFormat(msgspec.Struct, frozen=True):
    type: Literal["text"] = "text"


class TextSettings(msgspec.Struct, frozen=True):
    format: TextFormat = TextFormat()


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
    text: TextSettings = TextSettings()
    tool_choice: Literal["auto"] = "auto"
    tools: tuple[str, ...] = ()
    top_p: None = None
    truncation: Literal["disabled"] = "disabled"
