"""All webhooks of a service: each is delivered by the one process that holds its lease.

Invariant: the lease is that of the journal, so it is free the moment its holder dies, and another
process resumes at the cursors.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from windlass.core.errors import SessionBusy, WindlassError
from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary
from windlass.logs import get_logger
from windlass.ports import Journal, Lease
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.owned_reading import drop_decided
from windlass.server.owned_records import full_name
from windlass.server.session_directory import OwnedSession
from windlass.server.webhooks.delivery import HookDelivery, HookSource
from windlass.server.webhooks.links import LINK_S, AnswerLink, make_link
from windlass.server.webhooks.messages import HookMessage, SessionReading
from windlass.server.webhooks.sender import HookSender
from windlass.server.webhooks.store import Webhook, WebhookStore, caller_of

LOOK_S = 1.0
"""Between two looks at the webhooks, and at what there is to tell."""
PAGE_SESSIONS = 200
OWNED_MAX = 20_000
"""Sessions whose owners are remembered."""
_log = get_logger(__name__)


class TellingService(Protocol):
    """What webhooks need of a service."""

    journal: Journal

    async def find_session(self, caller: Caller, session: str) -> OwnedSession: ...

    async def read_facts(self, session: OwnedSession, after: int = 0) -> Sequence[Fact]: ...


@dataclass(slots=True)
class _HeldWebhook:
    """A webhook that this process delivers for."""

    hook: Webhook
    lease: Lease
    delivery: HookDelivery
    task: "asyncio.Task[None] | None" = None


class WebhookDuty:
    """Delivers the messages of all webhooks, together with other processes."""

    def __init__(
        self,
        service: TellingService,
        sender: HookSender,
        now: Callable[[], float],
        *,
        public_url: str = "",
    ) -> None:
        """Tell of a service's sessions. `public_url`: where people reach it, for links."""
        self._service = service
        self._sender = sender
        self._now = now
        self._public_url = public_url
        self._store = WebhookStore(service.journal, now)
        self._held: dict[str, _HeldWebhook] = {}
        """By the id of the webhook."""
        self._owned: dict[tuple[str, str], bool] = {}
        """By owner and session: whether it is theirs."""

    async def run(self) -> None:
        """Work until it is cancelled; then release the leases."""
        try:
            while True:
                try:
                    await self.look()
                except WindlassError as error:
                    _log.warning("webhooks: %s", error)
                except Exception:  # noqa: BLE001 - logged; the next look may succeed
                    _log.exception("webhooks failed")
                await asyncio.sleep(LOOK_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Release all webhooks, so that others can take them over."""
        await self._let_go(list(self._held))

    async def look(self) -> None:
        """Begin a pass for each webhook that this process has, or can have, the lease of."""
        hooks: Mapping[str, Webhook] = {
            hook.id: hook async for hook in self._store.walk() if not hook.is_disabled
        }
        await self._let_go([hook_id for hook_id in self._held if hook_id not in hooks])
        for hook in hooks.values():
            held = self._held.get(hook.id) or await self._hold(hook)
            if held is None or (held.task is not None and not held.task.done()):
                continue
            held.task = asyncio.create_task(self._run_pass(held), name=f"webhook {hook.name}")

    async def _hold(self, hook: Webhook) -> _HeldWebhook | None:
        """Take the lease of a webhook. Returns None if another process has it."""
        try:
            lease = await self._service.journal.lease(f"webhook {hook.id}")
        except SessionBusy:
            return None
        source = HookSource(self._list_changed, self._read, self._add_link)
        delivery = HookDelivery(hook, self._store, source, self._sender, self._now)
        held = _HeldWebhook(hook, lease, delivery)
        self._held[hook.id] = held
        return held

    async def _run_pass(self, held: _HeldWebhook) -> None:
        try:
            if not await held.lease.confirm():
                # Another process has it by now, and knows the cursors better.
                self._held.pop(held.hook.id, None)
                return
            await held.delivery.run_pass()
        except WindlassError as error:
            _log.warning("webhook %s: %s", held.hook.name, error)
            await self._start_anew(held)
        except Exception:  # noqa: BLE001 - logged; others continue
            _log.exception("webhook %s failed", held.hook.name)
            await self._start_anew(held)

    async def _start_anew(self, held: _HeldWebhook) -> None:
        """Read the cursors again at the next pass: what this process remembers may be wrong."""
        held.task = None
        await self._let_go([held.hook.id])

    async def _let_go(self, hook_ids: Sequence[str]) -> None:
        for hook_id in hook_ids:
            held = self._held.pop(hook_id, None)
            if held is None:
                continue
            if held.task is not None and held.task is not asyncio.current_task():
                held.task.cancel()
                await asyncio.gather(held.task, return_exceptions=True)
            held.lease.release()

    async def _list_changed(self, hook: Webhook, since: float) -> AsyncGenerator[SessionSummary]:
        cursor: str | None = None
        while True:
            page = await self._service.journal.sessions(
                agent=hook.agent or None,
                caller=None if hook.sees_all else hook.owner,
                since=max(0.0, since),
                parent="",
                limit=PAGE_SESSIONS,
                cursor=cursor,
            )
            for summary in page:
                if hook.sees_all or await self._is_owner(hook, summary.session):
                    yield summary
            cursor = page.cursor
            if cursor is None:
                return

    async def _is_owner(self, hook: Webhook, session: str) -> bool:
        """Return whether a session belongs to the owner of a webhook, which never changes."""
        known = self._owned.get((hook.owner, session))
        if known is None:
            try:
                found = await self._service.find_session(caller_of(hook), session)
                known = found.name == session
            except ApiError:
                known = False
            if len(self._owned) >= OWNED_MAX:
                self._owned.clear()
            self._owned[hook.owner, session] = known
        return known

    async def _read(self, hook: Webhook, session: str, after: int) -> SessionReading | None:
        try:
            found = await self._service.find_session(caller_of(hook), session)
            if found.name != session:
                return None
            facts = await self._service.read_facts(found, after)
        except ApiError:
            return None
        waiting = await drop_decided(self._service.journal, found.view.questions)
        questions = {(question.session, question.call_id): question for question in waiting}
        return SessionReading(found.summary, found.owner, facts, questions)

    def _add_link(self, hook: Webhook, message: HookMessage) -> HookMessage:
        question = message.data.question
        if question is None or not self._public_url:
            return message
        expires = int(min(message.at + LINK_S, question.expires_at or message.at + LINK_S))
        link = AnswerLink(
            full_name(hook), question.session, question.call_id, question.digest, expires
        )
        address = make_link(hook, self._public_url, link)
        return replace(message, data=replace(message.data, link=address))
