"""One short request for a JSON object, such as an access token or a count of tokens.

Invariant: it is over within its limit of time, whatever the server does, and every failure is a
ModelError of one line that says which service failed. What was sent is never in an error.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.core.errors import ModelError
from windlass.core.faults import FaultKind
from windlass.models.http.post import loop_session, wire_url
from windlass.models.http.provider_errors import mask_keys

FETCH_S = 10.0
"""How long the whole exchange may take."""
ANSWER_BYTES_MAX = 262_144

_STATUS_OK = range(200, 300)
_SERVER_ERRORS = range(500, 600)
# An OAuth server refuses wrong credentials with 400 as well.
_REFUSALS: dict[int, FaultKind] = {404: "bad_request", 405: "bad_request", 429: "rate_limit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRequest:
    """What to ask, and how errors name the service that is asked."""

    service: str
    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    proxy: str | None = None
    fix: str = ""
    """What to do if the service refuses the request."""
    expects_text: bool = False
    """The answer is plain text, which is returned as the field `text`."""


async def fetch_json(request: JsonRequest, timeout_s: float = FETCH_S) -> dict[str, Any]:
    """Return the JSON object that the service answers with. Raises ModelError."""
    import aiohttp

    try:
        async with asyncio.timeout(timeout_s):
            status, body = await _exchange(request)
    except TimeoutError:
        problem = f"{request.service} did not answer within {timeout_s:g} s"
        fault = ModelError("network", problem)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        problem = f"{request.service} cannot be reached ({type(error).__name__})"
        fault = ModelError("network", problem)
    else:
        if status not in _STATUS_OK:
            raise _refusal_error(request, status, body)
        if request.expects_text:
            return {"text": body.decode("utf-8", "replace").strip()}
        return _decode_object(request, body)
    raise fault  # Without its cause: the library's error may hold headers, and so a secret.


async def _exchange(request: JsonRequest) -> tuple[int, bytes]:
    session = await loop_session()
    response = await session.request(
        request.method,
        wire_url(request.url),
        data=request.body,
        headers={"Accept": "application/json", **request.headers},
        proxy=request.proxy,
        allow_redirects=False,  # A secret must not be sent to another host.
    )
    try:
        body = bytearray()
        while len(body) < ANSWER_BYTES_MAX and (chunk := await response.content.readany()):
            body += chunk
        return response.status, bytes(body)
    finally:
        response.close()


def _refusal_error(request: JsonRequest, status: int, body: bytes) -> ModelError:
    text = mask_keys(body.decode("utf-8", "replace"))
    if text.startswith("<"):
        text = "an HTML page"
    message = f"{request.service} refused the request ({status}): {text}".rstrip(": .")
    if request.fix:
        message = f"{message}. {request.fix}"
    if status in _SERVER_ERRORS:
        return ModelError("server", message)
    return ModelError(_REFUSALS.get(status, "auth"), message)


def _decode_object(request: JsonRequest, body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        message = f"{request.service} answered with something that is not a JSON object"
        raise ModelError("server", message) from None
