"""Errors in the shape that clients of OpenAI read.

Invariant: a client knows from the status whether to send the same request again. What only a person
can change is never 408, 409, 429 or 5xx: their clients would repeat the request, and each
repetition would be a new run.
"""

import msgspec

from windlass.server.messages import ApiError, HttpReply, error_headers
from windlass.server.openai.objects import RunDetails

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
