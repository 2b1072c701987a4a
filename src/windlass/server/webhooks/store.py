"""The webhooks of a journal, and how far their messages have come, as shared records."""

import hashlib
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from windlass.core.errors import ConfigError, ModelRetry
from windlass.logs import get_logger
from windlass.ports import Journal, SharedRecord
from windlass.server.access import Caller, Role
from windlass.server.owned_records import OwnedRecords, full_name
from windlass.server.webhooks.signing import check_secret, make_secret
from windlass.tools.web.guarded_http import parse_web_url

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


_log = get_logger(__name__)
MARK_KIND = "webhook-mark"
HEADERS_MAX = 20
HEADER_CHARS_MAX = 1_000
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_OWN_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for: the settings of a webhook."""

    name: str
    url: str
    owner: str = ""
    sees_all: bool = False
    events: tuple[HookEvent, ...] = ALL_EVENTS
    agent: str = ""
    format: HookFormat = "standard"
    content: bool = False
    headers: Mapping[str, str] = {}
    secret: str = ""
    """By default a new one."""


class WebhookStore(OwnedRecords[Webhook]):
    """The webhooks of one journal."""

    def __init__(self, journal: Journal, now: Callable[[], float]) -> None:
        """Use a journal. Raises ConfigError if it keeps no shared records."""
        super().__init__(journal, "webhook", Webhook)
        self._now = now

    async def create_webhook(self, new: NewWebhook) -> Webhook:
        """Keep a new webhook. It reports what happens from now on.

        Raises ConfigError if it cannot be used, or if the owner has one of that name.
        """
        _check_settings(new)
        fields: dict[str, Any] = msgspec.structs.asdict(new) | {
            "url": new.url.strip(),
            "secret": check_secret(new.secret) if new.secret else make_secret(),
            "events": tuple(event for event in ALL_EVENTS if event in new.events),
            "headers": dict(new.headers),
        }
        hook = Webhook(id=secrets.token_hex(8), created=self._now(), **fields)
        await self.add(hook)
        return hook

    async def note_failure(
        self, hook: Webhook, why: str, *, is_disabled: bool = False, given_up: int = 0
    ) -> None:
        """Keep why messages could not be delivered, for those who list the webhook."""

        def note(known: Webhook) -> Webhook | None:
            if known.id != hook.id:
                return None
            return replace(
                known,
                last_error=why[:HEADER_CHARS_MAX],
                is_disabled=known.is_disabled or is_disabled,
                failed=known.failed + given_up,
            )

        await self.change(full_name(hook), note)

    @override
    async def remove(self, document: Webhook) -> None:
        """Delete a webhook and its cursors. Links that it has sent stop working."""
        await super().remove(document)
        await self.records.delete_record(MARK_KIND, document.id)
        async for record in self._walk_cursors(document):
            await self.records.delete_record(record.kind, record.name)

    async def read_cursors(self, hook: Webhook) -> dict[str, HookCursor]:
        """Return the cursors of a webhook, by session."""
        found: dict[str, HookCursor] = {}
        async for record in self._walk_cursors(hook):
            try:
                cursor = msgspec.json.decode(record.data, type=HookCursor)
            except msgspec.DecodeError as error:
                # Its session counts as one that was never reported: better twice than never.
                _log.warning("a cursor of webhook %s cannot be read: %s", full_name(hook), error)
                continue
            found[cursor.session] = cursor
        return found

    async def write_cursor(self, hook: Webhook, cursor: HookCursor) -> None:
        """Keep a cursor. Only the one who delivers for this webhook writes it."""
        await self._put(_cursor_kind(hook), _cursor_name(cursor.session), cursor)

    async def forget_cursor(self, hook: Webhook, session: str) -> None:
        """Forget the cursor of a session that has not changed for long, or is gone."""
        await self.records.delete_record(_cursor_kind(hook), _cursor_name(session))

    async def read_mark(self, hook: Webhook) -> HookMark:
        """Return the time up to which all was delivered; its creation if nothing was yet."""
        record = await self.records.get_record(MARK_KIND, hook.id)
        if record is None:
            return HookMark(hook.created)
        return msgspec.json.decode(record.data, type=HookMark)

    async def write_mark(self, hook: Webhook, mark: HookMark) -> None:
        """Keep the time up to which all was delivered."""
        await self._put(MARK_KIND, hook.id, mark)

    async def _put(self, kind: str, name: str, value: object) -> None:
        known = await self.records.get_record(kind, name)
        version = 0 if known is None else known.version
        await self.records.put_record(kind, name, msgspec.json.encode(value), version)

    async def _walk_cursors(self, hook: Webhook) -> AsyncGenerator[SharedRecord]:
        after = ""
        while records := await self.records.list_records(_cursor_kind(hook), after):
            for record in records:
                yield record
            after = records[-1].name


def _cursor_kind(hook: Webhook) -> str:
    return f"webhook-cursor-{hook.id}"


def _cursor_name(session: str) -> str:
    # A session's name may be longer than that of a record.
    return hashlib.sha256(session.encode()).hexdigest()


def _check_settings(new: NewWebhook) -> None:
    try:
        parse_web_url(new.url)
    except ModelRetry as error:
        raise ConfigError(f"the address of the webhook cannot be used: {error}") from None
    if not new.events:
        raise ConfigError("a webhook needs events: question, ended or failed")
    if len(new.headers) > HEADERS_MAX:
        raise ConfigError(f"a webhook has at most {HEADERS_MAX} headers")
    for name, value in new.headers.items():
        is_ours = name.lower() in _OWN_HEADERS or name.lower().startswith("webhook-")
        is_plain = value.isprintable() and len(value) <= HEADER_CHARS_MAX
        if is_ours or not is_plain or not _HEADER.fullmatch(name):
            raise ConfigError(f"the header {name[:100]!r} cannot be sent with a webhook")
