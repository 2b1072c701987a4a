"""What the headers of a response say about rate limits: requests and tokens, left and in all.

    x-ratelimit-limit-requests: 500            OpenAI, and most who speak its dialect
    x-ratelimit-remaining-requests: 499
    x-ratelimit-reset-requests: 120ms

    anthropic-ratelimit-requests-limit: 50     Anthropic
    anthropic-ratelimit-requests-remaining: 49
    anthropic-ratelimit-requests-reset: 2026-11-16T05:00:01Z

A reset is when the limit is full again: a span, a time, or seconds. Of several limits of tokens,
such as those for input and for output, the one of which the smallest part is left counts.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime

from windlass.core.rate_limits import LimitReport, RateLimits
from windlass.models.http.retry_after import parse_date_s, parse_number, parse_span_s, wait_until_s

_MARK = "ratelimit-"
_REQUEST_KINDS = ("requests",)
_TOKEN_KINDS = ("tokens", "input-tokens", "output-tokens")


def read_rate_limits(headers: Mapping[str, str]) -> RateLimits | None:
    """Return the limits that the headers of a response name; None if they name none.

    The names in `headers` may be in any case if it is a case-insensitive mapping.
    """
    if not any(_MARK in name.lower() for name in headers):
        return None
    requests = _tightest_limit(headers, _REQUEST_KINDS)
    tokens = _tightest_limit(headers, _TOKEN_KINDS)
    if requests is None and tokens is None:
        return None
    return RateLimits(requests, tokens)


def _tightest_limit(headers: Mapping[str, str], kinds: tuple[str, ...]) -> LimitReport | None:
    reports = [report for kind in kinds for report in _read_reports(headers, kind)]
    return min(reports, key=lambda report: report.remaining / report.limit, default=None)


def _read_reports(headers: Mapping[str, str], kind: str) -> Iterator[LimitReport]:
    names = (
        ("x-ratelimit-{}-" + kind).format,
        ("anthropic-ratelimit-" + kind + "-{}").format,
    )
    for name in names:
        limit = parse_number(headers.get(name("limit"), ""))
        remaining = parse_number(headers.get(name("remaining"), ""))
        if limit and limit > 0 and remaining is not None:
            reset_s = _parse_reset_s(headers.get(name("reset"), ""), headers.get("date", ""))
            yield LimitReport(limit, min(max(remaining, 0.0), limit), reset_s)


def _parse_reset_s(text: str, date: str) -> float | None:
    """Return the seconds until a reset, or None if the text does not say.

    `date` is when the server sent it, by its own clock: ours may be wrong.
    """
    span_s = parse_span_s(text)
    if span_s is not None:
        return span_s
    number = parse_number(text)
    if number is not None:
        return max(0.0, wait_until_s(number, parse_date_s(date) or time.time()))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    return max(0.0, at.timestamp() - (parse_date_s(date) or time.time()))
