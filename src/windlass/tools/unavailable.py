"""Which failures are the infrastructure's, and not the model's or the tool's own.

Only these are tried again, and only these open a circuit breaker: a path that does not exist is
the model's mistake, and trying again would not mend it.
"""

import errno
from http import HTTPStatus

from windlass.core.errors import WindlassError


class ToolUnavailable(WindlassError):
    """Raised by a tool: what it stands on does not answer; the same call may work later."""


_ARGUMENT_ERRORS = (
    ValueError,  # Some clients say so of an address that makes no sense.
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ProcessLookupError,
)
_PATH_ERRNOS = frozenset(
    (errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTEMPTY, errno.EXDEV)
)
_TEMPORARY_STATUSES = frozenset((HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS))


def is_unavailable(error: BaseException) -> bool:
    """Whether the infrastructure failed, so that the same call may work later."""
    if isinstance(error, ToolUnavailable | ConnectionError | TimeoutError):
        return True
    if not isinstance(error, OSError) or isinstance(error, _ARGUMENT_ERRORS):
        return False
    return error.errno not in _PATH_ERRNOS and not _is_client_error(error)


def _is_client_error(error: OSError) -> bool:
    """Whether an HTTP server answered, and said that the request was wrong."""
    response = getattr(error, "response", None)
    status = getattr(error, "code", getattr(response, "status_code", None))
    if not isinstance(status, int) or status in _TEMPORARY_STATUSES:
        return False
    return HTTPStatus(400) <= status < HTTPStatus(500)
