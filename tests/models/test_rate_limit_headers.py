"""What the headers of a response say about rate limits."""

import time
from datetime import UTC, datetime

import pytest

from windlass.core.rate_limits import LimitReport, RateLimits
from windlass.models.http.rate_limits import read_rate_limits


def test_the_headers_of_openai() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "30000",
        "x-ratelimit-remaining-tokens": "29000",
        "x-ratelimit-reset-tokens": "1m2s",
    }
    assert read_rate_limits(headers) == RateLimits(
        LimitReport(500, 499, 0.12), LimitReport(30_000, 29_000, 62.0)
    )


def test_the_headers_of_anthropic() -> None:
    reset = datetime.fromtimestamp(time.time() + 30, UTC).isoformat()
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": reset.replace("+00:00", "Z"),
        "anthropic-ratelimit-input-tokens-limit": "40000",
        "anthropic-ratelimit-input-tokens-remaining": "39000",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "100",
    }
    limits = read_rate_limits(headers)
    assert limits is not None
    assert limits.requests is not None
    assert (limits.requests.limit, limits.requests.remaining) == (50, 0)
    assert limits.requests.reset_s == pytest.approx(30, abs=5)
    assert limits.tokens == LimitReport(8_000, 100)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/event-stream"},
        {"x-ratelimit-remaining-requests": "3"},
        {"x-ratelimit-limit-requests": "0", "x-ratelimit-remaining-requests": "0"},
        {"x-ratelimit-limit-requests": "many", "x-ratelimit-remaining-requests": "some"},
    ],
)
def test_headers_that_name_no_limit(headers: dict[str, str]) -> None:
    assert read_rate_limits(headers) is None


@pytest.mark.parametrize("reset", ["", "soon", "2026-11-16T05:00:01"])
def test_a_reset_that_cannot_be_read_is_left_out(reset: str) -> None:
    headers = {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "12",
        "x-ratelimit-reset-requests": reset,
    }
    assert read_rate_limits(headers) == RateLimits(LimitReport(10, 10))
