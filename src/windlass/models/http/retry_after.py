"""How long a provider wants us to wait before the next attempt, in seconds, in all forms they use.

Most exact form first: `retry-after-ms`, `Retry-After` in seconds or as a date, Gemini's RetryInfo,
"try again in 1.2s" in the text, and the `x-ratelimit-reset-*` headers. A wait is never negative. A
form that cannot be parsed is ignored.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)(?![a-z])")
_RETRY_WORDS = re.compile(
    r"(?i:try again|retry)\s+(?:in|after)\s+((?:[\d.]+\s*(?:ms|d|h|m|s)\s*)+)"
)
_EPOCH_S = 1e9
"""A reset above this number is a point in time, and not a span."""
_EPOCH_MS = 1e12


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
