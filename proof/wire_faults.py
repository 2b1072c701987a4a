"""A table of everything that a network and a provider can do to a request.

Each row says how the failure must be classified, and what a watcher has seen by then. Parametrize a
test over the rows, with a model alone or with a whole agent. Replies that only look broken are in
`wire_oddities.py`.
"""

from dataclasses import dataclass
from typing import Any

from windlass.core.errors import FaultKind
from windlass.testing.chat_wire import (
    DONE,
    call_chunks,
    finish_chunk,
    sse_event,
    text_chunk,
)
from windlass.testing.wire import (
    WireAnswer,
    drop,
    hang_up,
    refuse_with,
    reset,
    stall,
    stream_answer,
    wait,
)

PING = b": keep-alive\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault:
    """An answer that fails, and how the failure must be reported."""

    name: str
    answer: WireAnswer
    kind: FaultKind
    """A model does not raise `stalled` itself: the watchdog of the attempt does."""
    text: str = ""
    """The text of the reply that a watcher has seen by then."""
    retryable: bool = True
    retry_after_s: float | None = None


def _error_body(message: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"error": {"message": message, **more}}


def _rate_limit_answer(headers: dict[str, str], body: dict[str, Any] | None = None) -> WireAnswer:
    return refuse_with(429, body or _error_body("slow down"), headers)


_DATE = {"Date": "Mon, 01 Jan 2029 00:00:00 GMT", "Retry-After": "Mon, 01 Jan 2029 00:00:07 GMT"}
_RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}
_OPENAI_RESET = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"}
_LONG = "This model's maximum context length is 8192 tokens."


def _status_fault(name: str, status: int, kind: FaultKind, message: str, **more: Any) -> WireFault:  # noqa: ANN401
    again = more.pop("retryable", True)
    body = _error_body(message, **more)
    return WireFault(name=name, answer=refuse_with(status, body), kind=kind, retryable=again)


def _retry_after_fault(name: str, answer: WireAnswer, seconds: float) -> WireFault:
    return WireFault(name=name, answer=answer, kind="rate_limit", retry_after_s=seconds)


_HALF_A_TEXT = (text_chunk("Hel"), text_chunk("lo"))

REFUSALS: tuple[WireFault, ...] = (
    _status_fault("unauthorized", 401, "auth", "bad key", retryable=False),
    _status_fault("forbidden", 403, "auth", "no access", retryable=False),
    _status_fault("no_such_model", 404, "bad_request", "model does not exist", retryable=False),
    WireFault(
        name="no_such_page",
        answer=refuse_with(404, "<html>nginx</html>"),
        kind="bad_request",
        retryable=False,
    ),
    _status_fault("bad_request", 400, "bad_request", "temperature?", retryable=False),
    _status_fault("too_long", 400, "context_overflow", _LONG, retryable=False),
    _status_fault("quota", 429, "rate_limit", "pay", code="insufficient_quota", retryable=False),
    _status_fault("conflict", 409, "server", "conflict"),
    _status_fault("request_timeout", 408, "server", "too slow"),
    _status_fault("rate_limit", 429, "rate_limit", "slow down"),
    _status_fault("server_error", 500, "server", "oops"),
    _status_fault("unavailable", 503, "server", "loading model"),
    _status_fault("overloaded", 529, "server", "overloaded"),
    _retry_after_fault("retry_after_seconds", _rate_limit_answer({"Retry-After": "2"}), 2.0),
    _retry_after_fault("retry_after_date", _rate_limit_answer(_DATE), 7.0),
    _retry_after_fault(
        "retry_after_ms", _rate_limit_answer({"retry-after-ms": "1500", "Retry-After": "9"}), 1.5
    ),
    _retry_after_fault("reset_tokens", _rate_limit_answer(_OPENAI_RESET), 62.5),
    _retry_after_fault(
        "retry_info", _rate_limit_answer({}, _error_body("slow down", details=[_RETRY_INFO])), 2.5
    ),
    _retry_after_fault(
        "retry_in_words", _rate_limit_answer({}, _error_body("Please try again in 820ms.")), 0.82
    ),
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
        answer=stream_answer(*_HALF_A_TEXT, reset()),
        kind="incomplete_stream",
        text="Hello",
    ),
    WireFault(
        name="dropped_in_text",
        answer=stream_answer(*_HALF_A_TEXT, drop()),
        kind="incomplete_stream",
        text="Hello",
    ),
    WireFault(
        name="dropped_in_arguments",
        answer=stream_answer(*call_chunks("read", '{"path":'), drop()),
        kind="incomplete_stream",
    ),
    WireFault(
        name="no_end_marker",
        answer=stream_answer(*_HALF_A_TEXT),
        kind="incomplete_stream",
        text="Hello",
    ),
    WireFault(name="nothing_at_all", answer=stream_answer(), kind="incomplete_stream"),
    WireFault(
        name="broken_json",
        answer=stream_answer(
            *_HALF_A_TEXT, b'data: {"choices":[{"delta":\n\n', finish_chunk(), DONE
        ),
        kind="malformed_stream",
        text="Hello",
    ),
    WireFault(
        name="broken_utf8",
        answer=stream_answer(
            *_HALF_A_TEXT, text_chunk("@").replace(b"@", b"\xff\xfe"), finish_chunk(), DONE
        ),
        kind="malformed_stream",
        text="Hello",
    ),
    WireFault(
        name="error_in_stream",
        answer=stream_answer(
            *_HALF_A_TEXT, sse_event(_error_body("upstream broke", code=502)), DONE
        ),
        kind="server",
        text="Hello",
    ),
    WireFault(
        name="overflow_in_stream",
        answer=stream_answer(sse_event(_error_body(_LONG, code="context_length_exceeded")), DONE),
        kind="context_overflow",
        retryable=False,
    ),
    WireFault(
        name="finish_error",
        answer=stream_answer(*_HALF_A_TEXT, finish_chunk("error"), DONE),
        kind="server",
        text="Hello",
    ),
)
STALLS: tuple[WireFault, ...] = (
    WireFault(name="stall_before_head", answer=hang_up(stall()), kind="stalled"),
    WireFault(name="stall_after_head", answer=hang_up(stall(), after_head=True), kind="stalled"),
    WireFault(
        name="stall_after_text",
        answer=stream_answer(*_HALF_A_TEXT, stall()),
        kind="stalled",
        text="Hello",
    ),
    WireFault(
        name="stall_in_a_line",
        answer=stream_answer(*_HALF_A_TEXT, text_chunk("more")[:20], stall()),
        kind="stalled",
        text="Hello",
    ),
    WireFault(
        name="pings_only",
        answer=stream_answer(*(part for _ in range(40) for part in (wait(30), PING)), stall()),
        kind="stalled",
    ),
    WireFault(
        name="empty_deltas_only",
        answer=stream_answer(
            *(part for _ in range(40) for part in (wait(30), text_chunk(""))), stall()
        ),
        kind="stalled",
    ),
)
FAULTS: tuple[WireFault, ...] = (*REFUSALS, *BREAKS, *STALLS)
