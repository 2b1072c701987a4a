"""Errors of A2A: JSON-RPC codes with a reason for programs and what to do for people."""

from collections.abc import Mapping
from typing import NamedTuple

from windlass.server.a2a.wire import RpcError, RpcReply
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, error_headers

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
