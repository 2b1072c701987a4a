"""Turns the error of a provider into one classified ModelError.

Invariant: one line of limited length, with the fix where there is one, and never a key. Some errors
can be classified only by their text. That text is searched for the phrases of every provider,
because a vendor's server may pass on the error of another one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from windlass.core.errors import RETRYABLE_KINDS, FaultKind, ModelError
from windlass.models.http.rate_limits import read_rate_limits, retry_after_s
from windlass.models.prices import suggest_models
from windlass.models.reading import refused_call_note

PROVIDER_TEXT_CHARS_MAX = 300
"""How much of a provider's own text an error repeats."""
_REDIRECTS = range(300, 400)
_REFUSALS = range(300, 500)
_SERVER_ERRORS = range(500, 600)

# A prompt that is too long. Only this class of error makes the loop compact the conversation, so a
# missed phrase ends runs that could have continued.
_OVERFLOW_WORDS = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large|string_above_max_length"
    r"|model_max_prompt_tokens_exceeded"
    r"|maximum (?:context|sequence|model|input|prompt) length"
    r"|context length(?: is)? (?:only|exceed)"
    r"|exceeds? (?:the )?(?:available |maximum |model'?s? )*(?:context|prompt|input) "
    r"?(?:size|length|window|limit)"
    r"|prompt (?:is )?too long|input (?:is )?too long|too many (?:input )?tokens"
    r"|input length and `?max_tokens`? exceed|input token count.{0,40}exceeds"
    r"|exceeds the (?:maximum|max) (?:number of )?tokens|longer than the (?:model's )?context"
    r"|range of input length should be|reduce the length of|prompt contains \d+ tokens"
    r"|requested tokens .{0,20}exceed context window|request too large for"
    r"|larger than the maximum context|context window (?:exceeded|is full|limit)",
    re.IGNORECASE,
)
# The account is out of money, which has the status of a rate limit.
_QUOTA_WORDS = re.compile(
    r"insufficient_quota|exceeded your current quota|billing|insufficient (?:balance|credits|funds)"
    r"|credit balance is too low|requires more credits|arrearage|quota_exceeded_permanently",
    re.IGNORECASE,
)
# Gemini answers a wrong key with status 400.
_BAD_KEY_WORDS = re.compile(
    r"api[_ ]key[_ ](?:not valid|invalid|is invalid|expired)|invalid[_ ]api[_ ]key"
    r"|incorrect api key|authentication_error",
    re.IGNORECASE,
)
# A wrong model name, apart from a wrong base URL: both have status 404.
_UNKNOWN_MODEL_WORDS = re.compile(
    r"model_not_found|not_found_error model|models?/\S+ is not found|no endpoints found"
    r"|model[\w\s:/.,@`'\"-]{0,100}?(?:not found|does not exist|not exist|not available)"
    r"|(?:no such|unknown|invalid|not a valid) model|model identifier is invalid",
    re.IGNORECASE,
)
# Credentials, the common prefixes of keys, keys in query strings and passwords in URLs.
_KEY_SHAPES = re.compile(
    r"(?i:bearer|basic)\s+[\w.~+/=-]{6,}"
    r"|\b(?:sk|pk|rk|gsk|xai|tgp|hf)[-_][\w*.-]{6,}|\bAIza[\w*-]{8,}"
    r"|(?<=[?&]key=)[^&\s]+|(?<=://)[^/@\s]+(?=@)"
)
_REFUSED_CALL = "tool_use_failed"
"""Groq's code. It comes as a response with status 400, and also as an error inside a stream."""
# The HTTP status for an error inside a stream, which has none of its own. First Gemini's names of
# a status, then the types and codes of Anthropic and OpenAI,
# then Amazon's.
_STATUS_BY_CODE: dict[str, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "validationException": 400,
    "modelTimeoutException": 408,
    "throttlingException": 429,
    "internalServerException": 500,
    "modelStreamErrorException": 500,
    "serviceUnavailableException": 503,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTarget:
    """Where a request goes, as far as an error has to name it."""

    vendor: str
    url: str
    """The base URL."""
    model: str = ""
    key_env: str | None = None
    """The environment variable that holds the key."""
    hint: str = ""
    """What to do when the server refuses connections."""
    signed: bool = False
    """Requests carry the credentials of a cloud instead of a key."""


@dataclass(frozen=True, slots=True)
class _ErrorReport:
    """What a provider says about an error, in whatever shape it came."""

    error: object
    """The decoded error, for fields that only some providers have."""
    message: str
    codes: str
    """Its code, type and status."""

    @property
    def searchable_text(self) -> str:
        return f"{self.codes} {self.message}"


def error_from_response(
    status: int, headers: Mapping[str, str], body: bytes, target: RequestTarget
) -> ModelError:
    """Return the error for a response with a status other than success."""
    lower_case = {name.lower(): value for name, value in headers.items()}
    return _build_error(status, lower_case, _parse_error(_decode_body(body), body), target)


def error_from_stream(error: object, target: RequestTarget | None = None) -> ModelError:
    """Return the error that a server announces inside a successful response.

    `error` is its JSON, decoded or as bytes. Readers do not know the target; `HttpModel` puts the
    vendor's name in front of their errors.
    """
    decoded = _decode_body(error) if isinstance(error, bytes) else error
    report = _parse_error(decoded, b"")
    return _build_error(_implied_status(report), {}, report, target)


def mask_keys(text: str) -> str:
    """Return the text without anything that looks like a key, on one line, and cut to a limit."""
    line = " ".join(_KEY_SHAPES.sub("****", text).split())
    if len(line) <= PROVIDER_TEXT_CHARS_MAX:
        return line
    return f"{line[:PROVIDER_TEXT_CHARS_MAX]}…"


def _build_error(
    status: int, headers: Mapping[str, str], report: _ErrorReport, target: RequestTarget | None
) -> ModelError:
    if _REFUSED_CALL in report.codes.split():
        return _refused_call_error(status, report, target)
    after_s = retry_after_s(headers, report.error, report.message)
    kind, retryable = _classify_error(status, report, after_s)
    message = _describe_failure(kind, status, report, target, retryable=retryable)
    if target:
        message = f"{target.vendor}: {message}"
    if provider_text := mask_keys(report.message):
        message = f"{message}: {provider_text}"
    if fix := _suggest_fix(kind, status, headers, report, target):
        message = f"{message.rstrip('.')}. {fix}"
    return ModelError(
        kind,
        message,
        retryable=retryable,
        retry_after_s=after_s if retryable else None,
        limits=read_rate_limits(headers),
    )


def _refused_call_error(
    status: int, report: _ErrorReport, target: RequestTarget | None
) -> ModelError:
    """Return the error for a reply that the provider refused because it called a tool wrongly.

    The status blames the request, but the mistake is the model's, which may correct it.
    """
    problem = mask_keys(report.message) or "the call could not be read"
    error: object = report.error
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    written = mask_keys(str(fields.get("failed_generation") or ""))
    vendor = f"{target.vendor}: " if target else ""
    return ModelError(
        "malformed_stream",
        f"{vendor}the model called a tool wrongly, and the provider refused its reply ({status}): "
        f"{problem}",
        note=refused_call_note(problem, written),
    )


def _classify_error(
    status: int, report: _ErrorReport, after_s: float | None
) -> tuple[FaultKind, bool]:
    """Return the kind of an error, and whether another attempt may succeed."""
    text = report.searchable_text
    if status not in {401, 403, 404} and _OVERFLOW_WORDS.search(text):
        return "context_overflow", False
    match status:
        case 401 | 403:
            kind: FaultKind = "auth"
        case 400 if _BAD_KEY_WORDS.search(text):
            kind = "auth"
        case 402:  # Payment required.
            return "rate_limit", False
        case 429:
            return "rate_limit", not _is_quota_exhausted(report, after_s)
        case 413:
            kind = "context_overflow"
        # Request timeout, conflict, failed dependency, too early: all pass with time.
        case 408 | 409 | 424 | 425:
            kind = "server"
        case 501 | 505:  # Not implemented, HTTP version not supported: these do not.
            kind = "bad_request"
        case _ if status in _SERVER_ERRORS:
            kind = "server"
        case _ if status in _REFUSALS:
            kind = "bad_request"
        case _:
            kind = "other"
    return kind, kind in RETRYABLE_KINDS


def _is_quota_exhausted(report: _ErrorReport, after_s: float | None) -> bool:
    """Whether only money helps, and not time."""
    if "insufficient_quota" in report.codes:
        return True
    # Gemini says "quota" for a rate limit as well, but then it says how long to wait.
    return after_s is None and bool(_QUOTA_WORDS.search(report.searchable_text))


_FAILURES: dict[FaultKind, str] = {
    "auth": "the key was rejected",
    "context_overflow": "the prompt is too long for the model",
    "rate_limit": "too many requests",
    "server": "the server failed",
    "bad_request": "the request was rejected",
}


def _describe_failure(
    kind: FaultKind,
    status: int,
    report: _ErrorReport,
    target: RequestTarget | None,
    *,
    retryable: bool,
) -> str:
    if _is_unknown_model(status, report):
        name = target.model if target else "of this name"
        return f"there is no model {name} ({status})"
    if kind == "rate_limit" and not retryable:
        return f"the quota is used up ({status})"
    if kind == "auth" and target and target.signed:
        return f"the credentials were rejected ({status})"
    return f"{_FAILURES.get(kind, 'the request failed')} ({status})"


def _suggest_fix(
    kind: FaultKind,
    status: int,
    headers: Mapping[str, str],
    report: _ErrorReport,
    target: RequestTarget | None,
) -> str:
    if target is None:
        return ""
    if kind == "auth" and target.signed:
        return "Check the credentials, and whether they may use this model."
    if kind == "auth":
        return f"Check {target.key_env}." if target.key_env else "Pass a valid key."
    if status in _REDIRECTS:
        location = mask_keys(headers.get("location", "another address"))
        return f"The server redirects to {location}. Set base_url to the new address."
    if _is_unknown_model(status, report):
        suggestion = suggest_models(target.vendor, target.model)
        return f"Check the model's name at {target.vendor}.{suggestion}"
    if status in {404, 405}:
        url = mask_keys(target.url)
        return f"There is no such API at {url}. Check base_url; it often ends in /v1."
    return ""


def _is_unknown_model(status: int, report: _ErrorReport) -> bool:
    return status in {400, 404} and bool(_UNKNOWN_MODEL_WORDS.search(report.searchable_text))


def _decode_body(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _parse_error(error: object, body: bytes) -> _ErrorReport:
    """Find the text and the codes in any of the shapes in which providers wrap them."""
    if isinstance(error, list) and error:
        error = cast("list[Any]", error)[0]
    if isinstance(error, dict):
        outer = cast("dict[str, Any]", error)
        inner = outer.get("error", outer)
        if isinstance(inner, str):
            return _ErrorReport(outer, inner, _error_codes(outer))
        fields = outer
        if isinstance(inner, dict):
            fields = cast("dict[str, Any]", inner)
        return _ErrorReport(fields, _error_message(fields), _error_codes(fields))
    if isinstance(error, str):
        return _ErrorReport(error, error, "")
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("<"):
        text = "an HTML page"
    return _ErrorReport(None, text, "")


def _error_message(fields: dict[str, Any]) -> str:
    value = fields.get("message") or fields.get("detail") or fields.get("error") or ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    # OpenRouter's message is only that "the provider returned an error"; the error itself is here.
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        raw = cast("dict[str, Any]", metadata).get("raw")
        if isinstance(raw, str) and raw:
            text = f"{text}: {raw}"
    return text


def _error_codes(fields: dict[str, Any]) -> str:
    return " ".join(str(fields[name]) for name in ("code", "type", "status") if fields.get(name))


def _implied_status(report: _ErrorReport) -> int:
    """Return the HTTP status that an error inside a stream would have had."""
    for code in report.codes.split():
        if code.isdecimal() and (int(code) in _REFUSALS or int(code) in _SERVER_ERRORS):
            return int(code)
        if code in _STATUS_BY_CODE:
            return _STATUS_BY_CODE[code]
    # The stream had begun, so the server accepted the request and failed afterwards.
    return 500
