"""Which failures are failures of the infrastructure, and not of the model or the tool.

Only these are retried, and only these open a circuit breaker. A path that does not exist is the
model's mistake, and a retry would not help.
"""

import errno

from windlass.core.errors import WindlassError


class ToolUnavailable(WindlassError):
    """Raised by a tool if something that it needs is down. The same call may work later."""


_ARGUMENT_ERRORS = (
    ValueError,  # Some HTTP clients raise it, as an OSError, for an invalid URL.
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
# Numbers, because the names would load the package `http` with every import of Windlass.
_TEMPORARY_STATUSES = frozenset((408, 429))
_CLIENT_ERRORS = range(400, 500)


def is_unavailable(error: BaseException) -> bool:
    """Whether the infrastructure failed, so that the same call may work later."""
    if isinstance(error, ToolUnavailable | ConnectionError | TimeoutError):
        return True
    if not isinstance(error, OSError) or isinstance(error, _ARGUMENT_ERRORS):
        return False
    return error.errno not in _PATH_ERRNOS and not _is_client_error(error)


def _is_client_error(error: OSError) -> bool:
    """Whether an HTTP server answered with a 4xx status that a retry would not change."""
    response = getattr(error, "response", None)
    status = getattr(error, "code", getattr(response, "status_code", None))
    if not isinstance(status, int) or status in _TEMPORARY_STATUSES:
        return False
    return status in _CLIENT_ERRORS
