"""A circuit breaker: an endpoint that keeps failing is left alone for a while.

The law: only what the endpoint did counts. The model's mistakes, cancels and the breaker's own
rejections are nothing to it. Time is handed in, so that it may be virtual.
"""

from dataclasses import dataclass
from typing import Literal

Admission = Literal["call", "probe"]
EndpointVerdict = Literal["worked", "failed", "nothing"]


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after so many failures in a row; then lets one probe at a time through."""

    failures_max: int = 5
    cool_s: float = 30.0
    _failures: int = 0
    _open_until: float | None = None
    _probing: bool = False

    def admit(self, now: float) -> Admission | None:
        """Ask to go through. Whoever is let through must `settle`."""
        if self._open_until is None:
            return "call"
        if self._probing or now < self._open_until:
            return None
        self._probing = True
        return "probe"

    def record_outcome(self, passed: Admission, verdict: EndpointVerdict, now: float) -> None:
        """Say what became of it."""
        match passed, verdict:
            case "probe", "worked":
                self._failures, self._open_until, self._probing = 0, None, False
            case "probe", "failed":
                self._open_until, self._probing = now + self.cool_s, False
            case "probe", "nothing":
                self._probing = False
            case "call", "worked":
                self._failures = 0
            case "call", "failed":
                self._count_failure(now)
            case "call", "nothing":
                pass

    def _count_failure(self, now: float) -> None:
        # Calls that were under way when it opened must not keep it open for longer.
        if self._open_until is None:
            self._failures += 1
            if self._failures >= self.failures_max:
                self._open_until = now + self.cool_s

    def wait_s(self, now: float) -> float:
        """Seconds until the next probe may go through."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now)
