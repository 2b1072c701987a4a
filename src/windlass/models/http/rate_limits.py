"""What a provider says about its rate limits: what is left of them, and how long to wait.

    x-ratelimit-limit-requests: 500            OpenAI, and most who speak its dialect
    x-ratelimit-remaining-requests: 499
    x-ratelimit-reset-requests: 120ms

    anthropic-ratelimit-requests-limit: 50     Anthropic
    anthropic-ratelimit-requests-remaining: 49
    anthropic-ratelimit-requests-reset: 2026-11-16T05:00:01Z

A reset is when the limit is full again: a span, a time, or seconds. Of several limits of tokens,
such as those for input and for output, the one of which the smallest part is left counts.

The wait before the next attempt is in seconds and never negative. Of the forms that providers use,
the most exact one counts: `retry-after-ms`, `Retry-After` in seconds or as a date, Gemini's
RetryInfo, "try again in 1.2s" in the text, and the `x-ratelimit-reset-*` headers. A form that
cannot be parsed is ignored.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, cast

from windlass.core.rate_limits import LimitReport, RateLimits

_MARK = "ratelimit-"
_REQUEST_KINDS = ("requests",)
_TOKEN_KINDS = ("tokens", "input-tokens", "output-tokens")
_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)(?![a-z])")
_RETRY_WORDS = re.compile(
    r"(?i:try again|retry)\s+(?:in|after)\s+((?:[\d.]+\s*(?:ms|d|h|m|s)\s*)+)"
)
_EPOCH_S = 1e9
"""A reset above this number is a point in time, and not a span."""
_EPOCH_MS = 1e12


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


def retry_after_s(
    headers: Mapping[str, str], error: object = None, message: str = ""
) -> float | None:
    """Return the wait that the provider asks for, or None if it does not say.

    The names in `headers` are in lower case; `error` is the decoded error, `message` its text.
    """
    for wait_s in _candidate_waits(headers, error, message):
        if wait_s is not None and math.isfinite(wait_s):
            return round(max(wait_s, 0.0), 3)
    return None


def _candidate_waits(
    headers: Mapping[str, str], error: object, message: str
) -> Iterator[float | None]:
    # A date counts from the server's own clock where it sends one, because ours may be wrong.
    now = parse_date_s(headers.get("date", "")) or time.time()
    wait_ms = parse_number(headers.get("retry-after-ms", ""))
    if wait_ms is not None:
        yield wait_ms / 1000
    retry_after = headers.get("retry-after", "")
    yield parse_number(retry_after)
    date_s = parse_date_s(retry_after)
    if date_s is not None:
        yield date_s - now
    yield parse_span_s(retry_after)
    yield _retry_info_delay(error)
    words = _RETRY_WORDS.search(message)
    if words:
        yield parse_span_s(words[1])
    yield _exhausted_limit_wait(headers)
    reset = parse_number(headers.get("x-ratelimit-reset", ""))
    if reset is not None:
        yield wait_until_s(reset, now)


def parse_span_s(text: str) -> float | None:
    """Return the seconds of a text such as `1.5s`, `120ms`, `6m0s` or `1h2m3.5s`, or None."""
    text = text.strip().lower()
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip():
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def parse_number(text: str) -> float | None:
    """Return the number that a text is, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def parse_date_s(text: str) -> float | None:
    """Return the seconds since the epoch of a date as in HTTP, or None."""
    if not text:
        return None
    try:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - costs 2 ms

        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _exhausted_limit_wait(headers: Mapping[str, str]) -> float | None:
    """Return the longest wait among the limits of which nothing remains."""
    waits: list[float] = []
    for limit in ("requests", "tokens"):
        reset = headers.get(f"x-ratelimit-reset-{limit}", "")
        wait_s = parse_span_s(reset)
        if wait_s is None:
            wait_s = parse_number(reset)
        if headers.get(f"x-ratelimit-remaining-{limit}") == "0" and wait_s is not None:
            waits.append(wait_s)
    return max(waits, default=None)


def wait_until_s(reset: float, now: float) -> float:
    """Return the wait for a reset that is a time in ms or s since the epoch, or a span in s."""
    if reset >= _EPOCH_MS:
        return reset / 1000 - now
    return reset - now if reset >= _EPOCH_S else reset


def _retry_info_delay(error: object) -> float | None:
    if not isinstance(error, dict):
        return None
    details = cast("dict[str, Any]", error).get("details")
    if not isinstance(details, list):
        return None
    for detail in cast("list[Any]", details):
        if isinstance(detail, dict):
            delay = cast("dict[str, Any]", detail).get("retryDelay")
            if isinstance(delay, str):
                return parse_span_s(delay)
    return None
