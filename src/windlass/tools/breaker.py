"""A circuit breaker: calls to an endpoint that keeps failing are rejected for a while.

Invariant: only failures of the endpoint count, and only these are retried. The model's mistakes,
cancels and the breaker's own rejections do not: a path that does not exist is the model's mistake,
and a retry would not help. The time is passed in, so that tests can use virtual time.
"""

import errno
from typing import Literal

import msgspec

from windlass.core.errors import WindlassError

Admission = Literal["call", "probe"]
EndpointVerdict = Literal["worked", "failed", "nothing"]


class CircuitBreaker(msgspec.Struct):
    """Opens after `failures_max` failures in a row, and then admits one probe at a time.

    The first probe is admitted after `cool_s` seconds. A probe that works closes the breaker.
    """

    failures_max: int = 5
    cool_s: float = 30.0
    _failures: int = 0
    _open_until: float | None = None
    _probing: bool = False

    def admit(self, now: float) -> Admission | None:
        """Admit a call, or return None. An admission must be settled with `record_outcome`."""
        if self._open_until is None:
            return "call"
        if self._probing or now < self._open_until:
            return None
        self._probing = True
        return "probe"

    def record_outcome(self, admission: Admission, verdict: EndpointVerdict, now: float) -> None:
        """Record how an admitted call ended."""
        match admission, verdict:
            case "probe", "worked":
                self._failures = 0
                self._open_until = None
                self._probing = False
            case "probe", "failed":
                self._open_until = now + self.cool_s
                self._probing = False
            case "probe", "nothing":
                self._probing = False
            case "call", "worked":
                self._failures = 0
            case "call", "failed":
                # Calls that were running when it opened must not keep it open for longer.
                if self._open_until is None:
                    self._failures += 1
                    if self._failures >= self.failures_max:
                        self._open_until = now + self.cool_s
            case "call", "nothing":
                pass

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next probe is admitted."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now)


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
