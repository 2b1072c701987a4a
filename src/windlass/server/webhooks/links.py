"""Links to one question: the person who has one may answer that question, and nothing else.

Invariant: a link names the question by its session, call and arguments, is signed with the secret
of its webhook, and expires. It works once, because a question can be answered once. Opening it
changes nothing: programs that show a preview of a link open it too.
"""

import base64
import binascii
import hashlib
import hmac

import msgspec

from windlass.server.errors import ApiError
from windlass.server.webhooks.store import Webhook

LINK_S = 24 * 3600.0
"""How long a link works."""
LINK_CHARS_MAX = 4_000
LINK_PATH = "/ask/"


class AnswerLink(msgspec.Struct, frozen=True, array_like=True):
    """What a link says."""

    hook: str
    """The full name of the webhook that sent it."""
    session: str
    call_id: str
    digest: str
    expires: int


def make_link(hook: Webhook, base_url: str, link: AnswerLink) -> str:
    """Return the address of a link. `base_url` is that of the service."""
    payload = _to_text(msgspec.json.encode(link))
    return f"{base_url.rstrip('/')}{LINK_PATH}{payload}.{_sign(hook, payload)}"


def read_link(code: str) -> AnswerLink:
    """Return what a code says, unchecked. Raises ApiError 404 if it is not one."""
    payload, _, _ = code.partition(".")
    try:
        if len(code) > LINK_CHARS_MAX:
            raise bad_link()
        return msgspec.json.decode(_from_text(payload), type=AnswerLink)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise bad_link() from None


def check_link(hook: Webhook, code: str, now: float) -> None:
    """Raise ApiError unless a code was made by this webhook, and has not expired."""
    payload, _, signature = code.partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(hook, payload).encode()):
        raise bad_link()
    if now >= read_link(code).expires:
        raise ApiError(
            410,
            "link_expired",
            "This link has expired.",
            "Answer on the page of the service, or with windlass approve.",
        )


def bad_link() -> ApiError:
    """Return the error for a link that no webhook made, or whose webhook was deleted."""
    return ApiError(
        404,
        "link_not_found",
        "This link is wrong, or was withdrawn.",
        "Answer on the page of the service, or with windlass approve.",
    )


def _sign(hook: Webhook, payload: str) -> str:
    # Apart from the signatures of messages, so that neither can be used as the other.
    key = f"question-link\n{hook.id}\n{hook.secret}".encode()
    return _to_text(hmac.new(key, payload.encode(), hashlib.sha256).digest())


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
