"""The words of A2A 1.0 over JSON-RPC: what clients send and what the service replies.

A field that has no value is left out, as in the JSON form of Protocol Buffers, which the protocol
is defined by.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

PROTOCOL_VERSION = "1.0"
VERSION_HEADER = "a2a-version"

TaskState = Literal[
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
]


class A2aStruct(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Anything of the protocol. Fields that are not known here are ignored."""


class A2aPart(A2aStruct, frozen=True, kw_only=True):
    """A part of a message or an artifact: one of text, raw, url and data."""

    text: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    """Bytes in Base64."""
    url: str | UnsetType = UNSET
    data: Any = UNSET
    filename: str = ""
    media_type: str = ""


class A2aMessage(A2aStruct, frozen=True, kw_only=True):
    """A message of the client or of the agent."""

    message_id: str
    role: str
    parts: tuple[A2aPart, ...]
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}


class TaskStatus(A2aStruct, frozen=True, kw_only=True):
    """How far a task has come."""

    state: TaskState
    message: A2aMessage | None = None
    timestamp: str


class A2aArtifact(A2aStruct, frozen=True, kw_only=True):
    """What a task has produced."""

    artifact_id: str
    name: str = ""
    parts: tuple[A2aPart, ...]


class A2aTask(A2aStruct, frozen=True, kw_only=True):
    """A run, as the protocol sees it."""

    id: str
    context_id: str
    status: TaskStatus
    artifacts: tuple[A2aArtifact, ...] = ()
    history: tuple[A2aMessage, ...] = ()
    metadata: dict[str, Any] = {}


class StatusUpdate(A2aStruct, frozen=True):
    """The status of a task has changed."""

    task_id: str
    context_id: str
    status: TaskStatus


class ArtifactUpdate(A2aStruct, frozen=True):
    """More of an artifact; without `append` it replaces what was there."""

    task_id: str
    context_id: str
    artifact: A2aArtifact
    append: bool = False
    last_chunk: bool = False


class StreamItem(A2aStruct, frozen=True, kw_only=True):
    """One item of a stream, and the reply to a message: exactly one of these."""

    task: A2aTask | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class TaskPage(msgspec.Struct, frozen=True, rename="camel"):
    """A page of tasks. All of its fields are always sent."""

    tasks: tuple[A2aTask, ...]
    next_page_token: str
    page_size: int
    total_size: int


# What clients send.


class SendConfiguration(A2aStruct, frozen=True):
    """How a client wants the reply."""

    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    return_immediately: bool = False
    task_push_notification_config: dict[str, Any] | None = None


class SendParams(A2aStruct, frozen=True):
    """The parameters of SendMessage and SendStreamingMessage."""

    message: A2aMessage
    configuration: SendConfiguration | None = None


class TaskParams(A2aStruct, frozen=True):
    """The parameters of GetTask, CancelTask and SubscribeToTask."""

    id: str
    history_length: int | None = None


class ListParams(A2aStruct, frozen=True):
    """The parameters of ListTasks."""

    context_id: str = ""
    status: str = ""
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    include_artifacts: bool = False


class RpcRequest(msgspec.Struct, frozen=True):
    """A request of JSON-RPC 2.0."""

    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | None = None
    params: Any = {}


class RpcError(A2aStruct, frozen=True):
    """Why a request was refused."""

    code: int
    message: str
    data: tuple[dict[str, Any], ...] = ()


class RpcReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reply of JSON-RPC 2.0: a result or an error."""

    jsonrpc: Literal["2.0"]
    id: str | int | None
    result: Any = UNSET
    error: RpcError | UnsetType = UNSET
