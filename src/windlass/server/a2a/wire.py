"""The words of A2A 1.0 over JSON-RPC: what clients send and what the service replies.

A field that has no value is left out, as in the JSON form of Protocol Buffers, which the protocol
is defined by. An error is a JSON-RPC code with a reason for programs and what to do for people.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, error_headers

PROTOCOL_VERSION = "1.0"
VERSION_HEADER = "a2a-version"

TaskState = Literal[
    "TASK_STATE_SUBMITTED",
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


ERROR_DOMAIN = "a2a-protocol.org"
_ERROR_TYPE = "type.googleapis.com/google.rpc.ErrorInfo"


class RpcCode(NamedTuple):
    """How the protocol names a kind of error."""

    number: int
    reason: str


INTERNAL = RpcCode(-32603, "INTERNAL_ERROR")
INVALID_PARAMS = RpcCode(-32602, "INVALID_PARAMS")
CODES: Mapping[str, RpcCode] = {
    "invalid_json": RpcCode(-32700, "JSON_PARSE_ERROR"),
    "invalid_rpc": RpcCode(-32600, "INVALID_REQUEST"),
    "method_not_found": RpcCode(-32601, "METHOD_NOT_FOUND"),
    "task_not_found": RpcCode(-32001, "TASK_NOT_FOUND"),
    "session_not_found": RpcCode(-32001, "TASK_NOT_FOUND"),
    "question_not_found": RpcCode(-32001, "TASK_NOT_FOUND"),
    "task_not_cancelable": RpcCode(-32002, "TASK_NOT_CANCELABLE"),
    "push_not_supported": RpcCode(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "task_ended": RpcCode(-32004, "UNSUPPORTED_OPERATION"),
    "session_busy": RpcCode(-32004, "UNSUPPORTED_OPERATION"),
    "run_unfinished": RpcCode(-32004, "UNSUPPORTED_OPERATION"),
    "content_not_supported": RpcCode(-32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    "no_extended_card": RpcCode(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "version_not_supported": RpcCode(-32009, "VERSION_NOT_SUPPORTED"),
}
"""By the code of the service's own error. Others are distinguished by their HTTP status."""
KEPT_STATUSES = frozenset((401, 403, 405, 413, 415, 429, 503))
"""What HTTP itself has to say: clients and proxies act on these."""
CLIENT_FAULT = 400
SERVER_FAULT = 500


def make_error(error: ApiError) -> RpcError:
    """Return an error in the words of the protocol."""
    known = CODES.get(error.code)
    if known is None:
        known = INVALID_PARAMS if CLIENT_FAULT <= error.status < SERVER_FAULT else INTERNAL
    info = {
        "@type": _ERROR_TYPE,
        "reason": known.reason,
        "domain": ERROR_DOMAIN,
        "metadata": {"code": error.code, "hint": error.hint},
    }
    return RpcError(known.number, str(error), (info,))


def shape_error(error: ApiError, request_id: str | int | None = None) -> HttpReply:
    """Return an error as a reply. Its status is 200 unless HTTP itself refuses the request."""
    status = error.status if error.status in KEPT_STATUSES else 200
    body = RpcReply(jsonrpc="2.0", id=request_id, error=make_error(error))
    return HttpReply(status, body, error_headers(error))
