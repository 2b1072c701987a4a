"""A provider that keeps a rate limit, as the answers of a `FaultServer`.

    provider = LimitedProvider(text_answer("Hello"), requests_per_s=10, burst=20)
    async with FaultServer(always=provider) as server: ...
    assert provider.rejected <= 20

It refuses requests beyond its limit with status 429, and says what is left of it in the headers of
OpenAI or Anthropic, or says nothing.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Literal

from windlass.testing.fault_server import ReceivedRequest
from windlass.testing.wire import WireAnswer, refuse_with

LimitDialect = Literal["openai", "anthropic", "silent"]


class LimitedProvider:
    """Answers requests as long as its bucket holds; its bucket refills all the time."""

    def __init__(
        self,
        answer: WireAnswer | Callable[[ReceivedRequest], WireAnswer],
        *,
        requests_per_s: float,
        burst: int,
        dialect: LimitDialect = "openai",
        retry_after_s: float | None = 1.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Make a provider that gives `answer`, up to `burst` times at once.

        `retry_after_s` is what a refusal asks for; None: a refusal does not say.
        """
        self._answer = answer
        self._per_s = requests_per_s
        self._burst = burst
        self._dialect: LimitDialect = dialect
        self._retry_after_s = retry_after_s
        self._now = now
        self._left = float(burst)
        self._left_at = now()
        self.accepted = 0
        self.rejected = 0

    def __call__(self, request: ReceivedRequest) -> WireAnswer:
        """Answer a request, or refuse it."""
        now = self._now()
        self._left = min(float(self._burst), self._left + (now - self._left_at) * self._per_s)
        self._left_at = now
        if self._left < 1:
            self.rejected += 1
            return self._refuse()
        self._left -= 1
        self.accepted += 1
        answer = self._answer
        if not isinstance(answer, WireAnswer):
            answer = answer(request)
        return replace(answer, headers=(*answer.headers, *self._describe_limit()))

    def _refuse(self) -> WireAnswer:
        headers = dict(self._describe_limit())
        if self._retry_after_s is not None:
            headers["Retry-After"] = f"{self._retry_after_s:g}"
        return refuse_with(429, {"error": {"message": "Rate limit reached."}}, headers=headers)

    def _describe_limit(self) -> tuple[tuple[str, str], ...]:
        full_in_s = (self._burst - self._left) / self._per_s
        left = str(int(self._left))
        match self._dialect:
            case "openai":
                return (
                    ("x-ratelimit-limit-requests", str(self._burst)),
                    ("x-ratelimit-remaining-requests", left),
                    ("x-ratelimit-reset-requests", f"{full_in_s * 1000:.0f}ms"),
                )
            case "anthropic":
                full_at = datetime.fromtimestamp(self._now() + full_in_s, UTC)
                return (
                    ("Date", formatdate(self._now(), usegmt=True)),
                    ("anthropic-ratelimit-requests-limit", str(self._burst)),
                    ("anthropic-ratelimit-requests-remaining", left),
                    ("anthropic-ratelimit-requests-reset", full_at.isoformat()),
                )
            case "silent":
                return ()
