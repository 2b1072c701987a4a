"""The rate limit of the simulated provider, which all processes of a session share.

It refills all the time, reports what is left of it with each response, and refuses what is beyond
it. Its rule: whoever heeds the reports is hardly ever refused, so a limit never becomes a storm.
"""

import asyncio
from dataclasses import dataclass

from proof.simulate.plan import SessionPlan
from windlass.core.errors import ModelError
from windlass.core.rate_limits import LimitReport, RateLimits

REFUSED_S = 2.0
"""How long a refusal asks everyone to wait."""


@dataclass(slots=True)
class ProviderLimit:
    """A bucket of requests."""

    burst: int
    per_s: float
    left: float
    at: float = 0.0
    accepted: int = 0
    refused: int = 0

    @classmethod
    def of_plan(cls, plan: SessionPlan) -> "ProviderLimit | None":
        """Return the limit that a plan gives the provider; None if it has none."""
        burst = plan.more.requests_burst
        return None if burst is None else cls(burst, burst / 5.0, float(burst))

    def admit(self) -> RateLimits:
        """Count a request, and return what its response says. Raises ModelError to refuse it."""
        now = asyncio.get_running_loop().time()
        self.left = min(float(self.burst), self.left + (now - self.at) * self.per_s)
        self.at = now
        if self.left < 1:
            self.refused += 1
            raise ModelError(
                "rate_limit", "too many requests", retry_after_s=REFUSED_S, limits=self._report()
            )
        self.left -= 1
        self.accepted += 1
        return self._report()

    def _report(self) -> RateLimits:
        missing = self.burst - self.left
        return RateLimits(LimitReport(self.burst, max(0.0, self.left), missing / self.per_s))
