"""What providers say when they refuse, as one classified error (S2)."""

from typing import Any

import msgspec
import pytest

from windlass.core.errors import ModelError
from windlass.models.http.provider_errors import (
    PROVIDER_TEXT_CHARS_MAX,
    RequestTarget,
    error_from_response,
    error_from_stream,
    mask_keys,
)
from windlass.models.http.rate_limits import parse_span_s, retry_after_s

TARGET = RequestTarget(
    vendor="acme", url="https://api.acme.ai/v1", model="big-1", key_env="ACME_API_KEY"
)


def refusal_error(status: int, body: Any = "", headers: dict[str, str] | None = None) -> ModelError:
    raw = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
    return error_from_response(status, headers or {}, raw, TARGET)


def openai_error(message: str, code: str | None = None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic_error(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def gemini_error(code: int, status: str, message: str, *details: Any) -> Any:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return {"error": error}


OVERFLOWS: list[tuple[str, int, Any]] = [
    ("openai code", 400, openai_error("too long", "context_length_exceeded")),
    (
        "openai words",
        400,
        openai_error(
            "This model's maximum context length is 128000 tokens. However, your messages resulted "
            "in 130001 tokens. Please reduce the length of the messages."
        ),
    ),
    ("openai responses", 400, openai_error("Your input exceeds the context window of this model.")),
    (
        "openai too large",
        429,
        openai_error(
            "Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 40000.",
            "rate_limit_exceeded",
        ),
    ),
    (
        "anthropic",
        400,
        anthropic_error(
            "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
        ),
    ),
    (
        "anthropic cap",
        400,
        anthropic_error(
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
        ),
    ),
    (
        "anthropic size",
        413,
        anthropic_error("request_too_large", "Request exceeds the maximum size"),
    ),
    (
        "gemini",
        400,
        gemini_error(
            400,
            "INVALID_ARGUMENT",
            "The input token count (337807) exceeds the maximum number of tokens allowed (65536).",
        ),
    ),
    (
        "gemini list",
        400,
        [gemini_error(400, "INVALID_ARGUMENT", "input token count exceeds the maximum")],
    ),
    (
        "vllm",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you "
            "requested 122946 tokens (112946 in the messages, 10000 in the completion).",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    (
        "llamacpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 1407,
                "n_ctx": 256,
            }
        },
    ),
    (
        "llamacpp 500",
        500,
        {"error": {"code": 500, "message": "the request exceeds the available context size."}},
    ),
    ("ollama", 400, {"error": "input length exceeds the context length"}),
    (
        "mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with "
            "32768 maximum context length",
            "type": "invalid_request_error",
            "code": "3051",
        },
    ),
    ("dashscope", 400, openai_error("Range of input length should be [1, 30720]")),
    (
        "groq",
        413,
        openai_error("Request too large for model `x` on tokens per minute", "rate_limit"),
    ),
    (
        "openrouter",
        400,
        {
            "error": {
                "code": 400,
                "message": "Provider returned error",
                "metadata": {"raw": "prompt is too long", "provider_name": "X"},
            }
        },
    ),
    ("413 without words", 413, "<html>413</html>"),
]


@pytest.mark.parametrize(
    ("status", "body"), [row[1:] for row in OVERFLOWS], ids=[row[0] for row in OVERFLOWS]
)
def test_a_prompt_that_is_too_long_is_recognised(status: int, body: Any) -> None:
    """S13 depends on it: only an overflow is worth a forced compaction."""
    fault = refusal_error(status, body).fault
    assert (fault.kind, fault.retryable, fault.retry_after_s) == ("context_overflow", False, None)


NOT_OVERFLOWS: list[tuple[str, int, Any]] = [
    (
        "rate limit in tokens",
        429,
        openai_error("Rate limit reached: too many requests, limit 3 / min"),
    ),
    ("max_tokens", 400, openai_error("max_tokens must be at least 1")),
    ("a word of it", 400, openai_error("context: unknown field")),
]


@pytest.mark.parametrize(
    ("status", "body"), [row[1:] for row in NOT_OVERFLOWS], ids=[row[0] for row in NOT_OVERFLOWS]
)
def test_other_refusals_are_not_taken_for_an_overflow(status: int, body: Any) -> None:
    assert refusal_error(status, body).fault.kind != "context_overflow"


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (401, openai_error("Incorrect API key provided: sk-abc", "invalid_api_key"), "auth", False),
        (403, anthropic_error("permission_error", "no"), "auth", False),
        (
            400,
            gemini_error(400, "INVALID_ARGUMENT", "API key not valid. Please pass one."),
            "auth",
            False,
        ),
        (400, openai_error("Unsupported value: temperature"), "bad_request", False),
        (
            404,
            openai_error("The model `big-1` does not exist", "model_not_found"),
            "bad_request",
            False,
        ),
        (404, "<html>nope</html>", "bad_request", False),
        (405, "", "bad_request", False),
        (422, {"detail": [{"msg": "Extra inputs are not permitted"}]}, "bad_request", False),
        (501, openai_error("not supported"), "bad_request", False),
        (402, openai_error("Insufficient Balance"), "rate_limit", False),
        (
            429,
            openai_error("You exceeded your current quota", "insufficient_quota"),
            "rate_limit",
            False,
        ),
        (429, openai_error("slow down"), "rate_limit", True),
        (408, "", "server", True),
        (409, "", "server", True),
        (425, "", "server", True),
        (500, openai_error("oops"), "server", True),
        (502, "<html>bad gateway</html>", "server", True),
        (503, {"error": {"code": 503, "message": "Loading model"}}, "server", True),
        (504, "", "server", True),
        (529, anthropic_error("overloaded_error", "Overloaded"), "server", True),
        (599, "", "server", True),
        (999, "", "other", False),
    ],
)
def test_a_status_has_its_class(status: int, body: Any, kind: str, retryable: object) -> None:
    fault = refusal_error(status, body).fault
    assert (fault.kind, fault.retryable) == (kind, retryable), fault
    assert str(status) in fault.message
    assert fault.message.startswith("acme: ")


def test_gemini_says_quota_for_what_time_alone_will_mend() -> None:
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
    message = "You exceeded your current quota, please check your plan and billing details."
    fault = refusal_error(429, gemini_error(429, "RESOURCE_EXHAUSTED", message, retry)).fault
    assert (fault.kind, fault.retryable, fault.retry_after_s) == ("rate_limit", True, 34.07)


@pytest.mark.parametrize(
    ("status", "body", "fix"),
    [
        (401, openai_error("no"), "Check ACME_API_KEY."),
        (404, openai_error("The model `big-1` does not exist"), "no model big-1"),
        (404, {"error": {"message": 'model "big-1" not found, try pulling it'}}, "no model big-1"),
        (404, {"error": "model 'big-1' not found"}, "no model big-1"),
        (400, openai_error("big-1 is not a valid model ID"), "no model big-1"),
        (
            404,
            gemini_error(404, "NOT_FOUND", "models/big-1 is not found for API v1"),
            "no model big-1",
        ),
        (404, anthropic_error("not_found_error", "model: big-1"), "no model big-1"),
        (
            400,
            openai_error("Unsupported parameter: 'x' is not supported with this model."),
            "rejected (400)",
        ),
        (
            404,
            {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}},
            "Check base_url",
        ),
        (404, {"detail": "Not Found"}, "https://api.acme.ai/v1. Check base_url"),
        (404, "<html>", "Check base_url"),
    ],
)
def test_an_error_names_the_fix(status: int, body: Any, fix: str) -> None:
    """The wrong key, the wrong model and the wrong base URL each give one line with the fix."""
    message = str(refusal_error(status, body))
    assert fix in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"code": 502, "message": "upstream"}}, "server"),
        ({"error": {"code": 429, "message": "slow"}}, "rate_limit"),
        (anthropic_error("overloaded_error", "Overloaded"), "server"),
        (anthropic_error("rate_limit_error", "slow"), "rate_limit"),
        (gemini_error(503, "UNAVAILABLE", "busy"), "server"),
        (openai_error("too long", "context_length_exceeded"), "context_overflow"),
        ({"error": "just words"}, "server"),
        (b'{"error":{"message":"as bytes","type":"server_error"}}', "server"),
        (None, "server"),
    ],
)
def test_an_error_inside_a_stream_is_classified_as_well(error: Any, kind: str) -> None:
    assert error_from_stream(error).fault.kind == kind


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcDEF0123456789",
        "sk-ant-api03-abc_DEF-123",
        "gsk_abcdef0123456789",
        "xai-abcdef0123456789",
        "AIzaSyA0123456789abcdef",
        "hf_abcdefABCDEF0123",
    ],
)
def test_a_key_never_reaches_an_error(secret: str) -> None:
    """P3."""
    for said in (f"Incorrect API key provided: {secret}.", f"header Bearer {secret}", secret):
        assert secret not in str(refusal_error(401, openai_error(said)))
        assert secret not in mask_keys(said)
    assert "hunter2" not in mask_keys("https://ann:hunter2@host/v1?key=abc")
    assert "abc" not in mask_keys("https://host/v1?key=abc")


def test_what_a_provider_says_is_bounded() -> None:
    said = str(refusal_error(400, openai_error("long\nwords " * 10_000)))
    assert len(said) < PROVIDER_TEXT_CHARS_MAX + 200
    assert "\n" not in said


DATE = "Mon, 01 Jan 2029 00:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 01 Jan 2029 00:00:30 GMT", "date": DATE}, 30.0),
        ({"retry-after": "Sun, 31 Dec 2028 23:59:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, None),
        ({"x-ratelimit-reset": "1861920010000", "date": DATE}, 10.0),
        ({"x-ratelimit-reset": "1861920005", "date": DATE}, 5.0),
        ({"x-ratelimit-reset": "4"}, 4.0),
        ({}, None),
    ],
)
def test_every_form_of_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_retry_after_date_is_read_without_the_servers_clock() -> None:
    assert retry_after_s({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0.0


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Please try again in 1.242s. Visit", 1.242),
        ("Please try again in 6m12.5s.", 372.5),
        ("Please retry in 38.5s", 38.5),
        ("Try again in 20ms", 0.02),
        ("Please try again in a while", None),
    ],
)
def test_a_wait_in_words_is_read(said: str, seconds: float | None) -> None:
    assert retry_after_s({}, None, said) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h2m3.5s", 3723.5), ("2d", 172_800.0), ("", None), ("5", None), ("1s later", None)],
)
def test_a_span_is_all_of_the_text(text: str, seconds: float | None) -> None:
    assert parse_span_s(text) == seconds
