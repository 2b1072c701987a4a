"""A webhook, and how far its messages have come, as shared records."""

from typing import Literal

import msgspec

from windlass.server.access import Caller, Role

HookEvent = Literal["question", "ended", "failed"]
"""What a webhook reports: a question waits for a person, a run has ended, a run has failed."""
HookFormat = Literal["standard", "ntfy"]
"""`standard`: JSON, signed as Standard Webhooks. `ntfy`: a line of text, with its title, priority
and link in headers, as push services take it."""
ALL_EVENTS: tuple[HookEvent, ...] = ("question", "ended", "failed")


class Webhook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where to send messages about an owner's sessions. Times are seconds since the epoch."""

    id: str
    name: str
    owner: str = ""
    sees_all: bool = False
    """Whether it reports the sessions of all owners: an admin made it."""
    url: str
    secret: str
    events: tuple[HookEvent, ...] = ALL_EVENTS
    agent: str = ""
    """Only sessions of this agent; empty for all."""
    format: HookFormat = "standard"
    content: bool = False
    """Whether messages hold what was said: the arguments of a call, the reason of an end."""
    headers: dict[str, str] = {}
    """Sent with each message, such as the token of a push service."""
    created: float = 0.0
    is_disabled: bool = False
    """Whether it is switched off: by a person, or by its receiver, which is gone."""
    last_error: str = ""
    failed: int = 0
    """Messages that were given up."""


def caller_of(hook: Webhook) -> Caller:
    """Return on whose behalf a webhook reports and answers: an admin's may for every owner."""
    role: Role = "admin" if hook.sees_all else "answer"
    return Caller(hook.owner, frozenset({role}))


class HookCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the messages about one session have come."""

    session: str
    seq: int = 0
    """The last fact whose messages were all delivered or given up."""
    done: tuple[str, ...] = ()
    """Messages about the fact after it that were delivered: a fact may have several."""
    attempts: int = 0
    """How often the next message was tried without success."""
    first_try: float = 0.0
    next_try: float = 0.0
    at: float = 0.0
    """When this was written."""


class HookMark(msgspec.Struct, frozen=True):
    """The time up to which all messages of a webhook were delivered."""

    until: float = 0.0
