"""When a provider wants to be asked again: every form in which they say it, in seconds.

`retry-after-ms`, `Retry-After` in seconds or as a date, Gemini's RetryInfo, "try again in 1.2s" in
words, and the `x-ratelimit-reset-*` headers, most exact first. A wait is never negative; a form
that cannot be read counts as not said.
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
"""A number above this is a moment, and not a span."""
_EPOCH_MS = 1e12


def retry_after_s(
    headers: Mapping[str, str], error: object = None, message: str = ""
) -> float | None:
    """The wait that the provider asks for; `headers` has lower-case names."""
    for found in _candidate_waits(headers, error, message):
        if found is not None and math.isfinite(found):
            return round(max(found, 0.0), 3)
    return None


def _candidate_waits(
    headers: Mapping[str, str], error: object, message: str
) -> Iterator[float | None]:
    now = _parse_date_s(headers.get("date", "")) or time.time()
    in_ms = _parse_number(headers.get("retry-after-ms", ""))
    yield None if in_ms is None else in_ms / 1000
    asked = headers.get("retry-after", "")
    yield _parse_number(asked)
    # Taken from the server's own clock, where it tells: ours may be wrong.
    moment = _parse_date_s(asked)
    yield None if moment is None else moment - now
    yield parse_span_s(asked)
    yield _retry_info_delay(error)
    words = _RETRY_WORDS.search(message)
    yield parse_span_s(words[1]) if words else None
    yield _exhausted_limit_wait(headers)
    reset = _parse_number(headers.get("x-ratelimit-reset", ""))
    yield None if reset is None else _wait_until(reset, now)


def parse_span_s(text: str) -> float | None:
    """`1.5s`, `120ms`, `6m0s`, `1h2m3.5s`."""
    text = text.strip().lower()
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip():
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parse_date_s(text: str) -> float | None:
    try:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - costs 2 ms

        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _exhausted_limit_wait(headers: Mapping[str, str]) -> float | None:
    """The longest wait among the limits of which nothing is left."""
    waits: list[float] = []
    for what in ("requests", "tokens"):
        reset = headers.get(f"x-ratelimit-reset-{what}", "")
        wait = _parse_number(reset) if parse_span_s(reset) is None else parse_span_s(reset)
        if headers.get(f"x-ratelimit-remaining-{what}") == "0" and wait is not None:
            waits.append(wait)
    return max(waits, default=None)


def _wait_until(reset: float, now: float) -> float:
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
