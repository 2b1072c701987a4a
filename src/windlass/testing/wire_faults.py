"""Everything that a network and a provider can do to a request, as one table.

Each row says how the failure must be classified, and what a watcher has seen by then. A test runs
over the rows, with a model alone or with a whole agent. Replies that only look broken are in
`wire_oddities.py`.
"""

from dataclasses import dataclass
from typing import Any

from windlass.core.faults import FaultKind
from windlass.testing.chat_wire import (
    DONE,
    called,
    finish,
    sse,
    words,
)
from windlass.testing.wire import (
    Answer,
    answer,
    drop,
    hang_up,
    refuse_with,
    reset,
    stall,
    wait,
)

PING = b": keep-alive\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault:
    """An answer that is none, and what must become of it."""

    name: str
    answer: Answer
    kind: FaultKind
    """`stalled` is not the model's to raise: its watchdog gives up on the silence."""
    text: str = ""
    """What a watcher has seen of the reply by then."""
    retryable: bool = True
    retry_after_s: float | None = None


def _error(message: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"error": {"message": message, **more}}


def _limited(headers: dict[str, str], body: dict[str, Any] | None = None) -> Answer:
    return refuse_with(429, body or _error("slow down"), headers)


_DATE = {"Date": "Mon, 01 Jan 2029 00:00:00 GMT", "Retry-After": "Mon, 01 Jan 2029 00:00:07 GMT"}
_RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}
_OPENAI_RESET = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"}
_LONG = "This model's maximum context length is 8192 tokens."


def _status(name: str, status: int, kind: FaultKind, message: str, **more: Any) -> WireFault:  # noqa: ANN401
    again = more.pop("retryable", True)
    body = _error(message, **more)
    return WireFault(name=name, answer=refuse_with(status, body), kind=kind, retryable=again)


def _after(name: str, answer: Answer, seconds: float) -> WireFault:
    return WireFault(name=name, answer=answer, kind="rate_limit", retry_after_s=seconds)


_HALF = (words("Hel"), words("lo"))

REFUSALS: tuple[WireFault, ...] = (
    _status("unauthorized", 401, "auth", "bad key", retryable=False),
    _status("forbidden", 403, "auth", "no access", retryable=False),
    _status("no_such_model", 404, "bad_request", "model does not exist", retryable=False),
    WireFault(
        name="no_such_page",
        answer=refuse_with(404, "<html>nginx</html>"),
        kind="bad_request",
        retryable=False,
    ),
    _status("bad_request", 400, "bad_request", "temperature?", retryable=False),
    _status("too_long", 400, "context_overflow", _LONG, retryable=False),
    _status("quota", 429, "rate_limit", "pay", code="insufficient_quota", retryable=False),
    _status("conflict", 409, "server", "conflict"),
    _status("request_timeout", 408, "server", "too slow"),
    _status("rate_limit", 429, "rate_limit", "slow down"),
    _status("server_error", 500, "server", "oops"),
    _status("unavailable", 503, "server", "loading model"),
    _status("overloaded", 529, "server", "overloaded"),
    _after("retry_after_seconds", _limited({"Retry-After": "2"}), 2.0),
    _after("retry_after_date", _limited(_DATE), 7.0),
    _after("retry_after_ms", _limited({"retry-after-ms": "1500", "Retry-After": "9"}), 1.5),
    _after("reset_tokens", _limited(_OPENAI_RESET), 62.5),
    _after("retry_info", _limited({}, _error("slow down", details=[_RETRY_INFO])), 2.5),
    _after("retry_in_words", _limited({}, _error("Please try again in 820ms.")), 0.82),
    WireFault(
        name="web_page",
        answer=refuse_with(200, "<html>Sign in</html>"),
        kind="bad_request",
        retryable=False,
    ),
)
BREAKS: tuple[WireFault, ...] = (
    WireFault(name="reset_at_once", answer=hang_up(reset()), kind="network"),
    WireFault(name="closed_at_once", answer=hang_up(drop()), kind="network"),
    WireFault(
        name="reset_after_head", answer=hang_up(reset(), after_head=True), kind="incomplete_stream"
    ),
    WireFault(
        name="reset_in_text",
        answer=answer(*_HALF, reset()),
        kind="incomplete_stream",
        text="Hello",
    ),
    WireFault(
        name="dropped_in_text",
        answer=answer(*_HALF, drop()),
        kind="incomplete_stream",
        text="Hello",
    ),
    WireFault(
        name="dropped_in_arguments",
        answer=answer(*called("read", '{"path":'), drop()),
        kind="incomplete_stream",
    ),
    WireFault(name="no_end_marker", answer=answer(*_HALF), kind="incomplete_stream", text="Hello"),
    WireFault(
        name="done_without_finish",
        answer=answer(*_HALF, DONE),
        kind="incomplete_stream",
        text="Hello",
    ),
    WireFault(name="nothing_at_all", answer=answer(), kind="incomplete_stream"),
    WireFault(
        name="broken_json",
        answer=answer(*_HALF, b'data: {"choices":[{"delta":\n\n', finish(), DONE),
        kind="malformed_stream",
        text="Hello",
    ),
    WireFault(
        name="broken_utf8",
        answer=answer(*_HALF, words("@").replace(b"@", b"\xff\xfe"), finish(), DONE),
        kind="malformed_stream",
        text="Hello",
    ),
    WireFault(
        name="error_in_stream",
        answer=answer(*_HALF, sse(_error("upstream broke", code=502)), DONE),
        kind="server",
        text="Hello",
    ),
    WireFault(
        name="overflow_in_stream",
        answer=answer(sse(_error(_LONG, code="context_length_exceeded")), DONE),
        kind="context_overflow",
        retryable=False,
    ),
    WireFault(
        name="finish_error",
        answer=answer(*_HALF, finish("error"), DONE),
        kind="server",
        text="Hello",
    ),
)
STALLS: tuple[WireFault, ...] = (
    WireFault(name="stall_before_head", answer=hang_up(stall()), kind="stalled"),
    WireFault(name="stall_after_head", answer=hang_up(stall(), after_head=True), kind="stalled"),
    WireFault(
        name="stall_after_text", answer=answer(*_HALF, stall()), kind="stalled", text="Hello"
    ),
    WireFault(
        name="stall_in_a_line",
        answer=answer(*_HALF, words("more")[:20], stall()),
        kind="stalled",
        text="Hello",
    ),
    WireFault(
        name="pings_only",
        answer=answer(*(part for _ in range(40) for part in (wait(30), PING)), stall()),
        kind="stalled",
    ),
    WireFault(
        name="empty_deltas_only",
        answer=answer(*(part for _ in range(40) for part in (wait(30), words(""))), stall()),
        kind="stalled",
    ),
)
FAULTS: tuple[WireFault, ...] = (*REFUSALS, *BREAKS, *STALLS)
