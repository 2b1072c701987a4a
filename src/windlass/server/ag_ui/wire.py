"""The words of AG-UI 1.0: what the service sends, as JSON.

Each class is one event or message of the protocol, with its field names. A field that has no value
is left out, because the protocol has no null for it.
"""

from typing import Any, Literal

import msgspec

PROTOCOL_VERSION = "1.0"


class AgUiStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Anything of the protocol; its names are in camel case."""


class AgUiEvent(AgUiStruct, frozen=True, kw_only=True, tag_field="type"):
    """An event. `metadata` is open to whatever a producer wants to add."""

    metadata: dict[str, Any] = {}


class AttributedEvent(AgUiEvent, frozen=True, kw_only=True):
    """An event that a sub-agent may have caused; empty if the agent itself did."""

    subagent_run_id: str = ""


# Messages.


class FunctionCall(AgUiStruct, frozen=True):
    """What a tool is called with. The arguments are JSON text."""

    name: str
    arguments: str


class MessageCall(AgUiStruct, frozen=True):
    """A call in a message of the agent. There is only one type, and it is always sent."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class AgUiMessage(AgUiStruct, frozen=True, kw_only=True):
    """A message of the conversation."""

    id: str
    role: Literal["user", "assistant", "tool", "reasoning"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: tuple[MessageCall, ...] = ()
    tool_call_id: str = ""
    error: str = ""
    """Why the tool failed, if it did."""


# Events of a run.


class RunStartedEvent(AgUiEvent, frozen=True, tag="RUN_STARTED"):
    """Opens the stream of a run."""

    thread_id: str
    run_id: str
    protocol_version: str


class AgUiInterrupt(AgUiStruct, frozen=True, kw_only=True):
    """What the run needs from a person before it can continue."""

    id: str
    reason: str
    message: str
    tool_call_id: str = ""
    subagent_run_id: str = ""
    response_schema: dict[str, Any]
    expires_at: str = ""
    metadata: dict[str, Any] = {}


class RunOutcome(AgUiStruct, frozen=True):
    """Why the stream of a run ended."""

    type: Literal["success", "interrupt", "cancelled"]
    interrupts: tuple[AgUiInterrupt, ...] = ()


class TokenUsage(AgUiStruct, frozen=True, kw_only=True):
    """The tokens of one model; the last three are parts of the first two."""

    provider: str = ""
    model: str = ""
    input_tokens: int
    output_tokens: int
    total_tokens: int
    reasoning_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0


class RunFinishedEvent(AgUiEvent, frozen=True, kw_only=True, tag="RUN_FINISHED"):
    """Closes the stream of a run that did not fail."""

    thread_id: str
    run_id: str
    result: Any = None
    outcome: RunOutcome
    usage: tuple[TokenUsage, ...] = ()


class RunErrorEvent(AgUiEvent, frozen=True, tag="RUN_ERROR"):
    """Closes the stream of a run that failed, or did not come to an answer."""

    message: str
    code: str
    usage: tuple[TokenUsage, ...] = ()


class StepStartedEvent(AttributedEvent, frozen=True, tag="STEP_STARTED"):
    step_name: str


class StepFinishedEvent(AttributedEvent, frozen=True, tag="STEP_FINISHED"):
    step_name: str


# Events of a reply.


class TextMessageStartEvent(AttributedEvent, frozen=True, tag="TEXT_MESSAGE_START"):
    message_id: str
    role: Literal["assistant"]


class TextMessageContentEvent(AttributedEvent, frozen=True, tag="TEXT_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class TextMessageEndEvent(AttributedEvent, frozen=True, tag="TEXT_MESSAGE_END"):
    message_id: str


class ReasoningStartEvent(AttributedEvent, frozen=True, tag="REASONING_START"):
    message_id: str


class ReasoningMessageStartEvent(AttributedEvent, frozen=True, tag="REASONING_MESSAGE_START"):
    message_id: str
    role: Literal["reasoning"]


class ReasoningMessageContentEvent(AttributedEvent, frozen=True, tag="REASONING_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class ReasoningMessageEndEvent(AttributedEvent, frozen=True, tag="REASONING_MESSAGE_END"):
    message_id: str


class ReasoningEndEvent(AttributedEvent, frozen=True, tag="REASONING_END"):
    message_id: str


class ToolCallStartEvent(AttributedEvent, frozen=True, tag="TOOL_CALL_START"):
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str


class ToolCallArgsEvent(AttributedEvent, frozen=True, tag="TOOL_CALL_ARGS"):
    tool_call_id: str
    delta: str


class ToolCallEndEvent(AttributedEvent, frozen=True, tag="TOOL_CALL_END"):
    tool_call_id: str


class ToolCallResultEvent(AttributedEvent, frozen=True, tag="TOOL_CALL_RESULT"):
    message_id: str
    tool_call_id: str
    content: str | list[dict[str, Any]]
    role: Literal["tool"]


# Everything else.


class MessagesSnapshotEvent(AgUiEvent, frozen=True, tag="MESSAGES_SNAPSHOT"):
    """The whole conversation, which replaces what the client shows."""

    messages: tuple[AgUiMessage, ...]


class CustomEvent(AgUiEvent, frozen=True, tag="CUSTOM"):
    """Something that the protocol has no word for."""

    name: str
    value: Any


class SubagentStartedEvent(AgUiEvent, frozen=True, kw_only=True, tag="SUBAGENT_STARTED"):
    subagent_run_id: str
    name: str
    parent_subagent_run_id: str = ""
    parent_tool_call_id: str = ""


class SubagentOutcome(AgUiStruct, frozen=True):
    """Why a sub-agent did not continue in this stream."""

    type: Literal["success", "suspended"]
    interrupt_ids: tuple[str, ...] = ()


class SubagentFinishedEvent(AgUiEvent, frozen=True, tag="SUBAGENT_FINISHED"):
    subagent_run_id: str
    outcome: SubagentOutcome


class SubagentErrorEvent(AgUiEvent, frozen=True, tag="SUBAGENT_ERROR"):
    subagent_run_id: str
    message: str
    code: str


def encode_frame(event: AgUiEvent) -> bytes:
    """Return an event as one SSE frame. It has no id: AG-UI does not resume by it."""
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
