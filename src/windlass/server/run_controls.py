"""What a caller says to runs, and how it starts one: thin over the functions of the agent package.

Invariant: each message is posted in the name of its caller, to a session that is the caller's. If
no process drives the run, it is driven here.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from secrets import token_hex
from typing import Any, Protocol

import msgspec

from windlass.agent import control
from windlass.agent.agent import Agent
from windlass.agent.answering import find_question, list_undecided, post_answer
from windlass.agent.control import ControlReceipt
from windlass.agent.options import EarlierMessage, OnBusy, RunOptions
from windlass.core.errors import NothingToDo, SessionBusy
from windlass.core.events import RunStarted
from windlass.core.fold.run import fold
from windlass.core.limits import Limits, RaisedLimits
from windlass.core.messages import ContentPart, Label
from windlass.core.question import Question
from windlass.core.session_summary import SessionState, SessionSummary, row_of
from windlass.core.verdicts import PersonAnswer
from windlass.journals.forking import fork as fork_session
from windlass.ports import Journal
from windlass.server.access import Caller, Role, full_session_name
from windlass.server.errors import ApiError
from windlass.server.owned_reading import erase_session, read_recorded_facts, read_state
from windlass.server.people import PeopleBook
from windlass.server.quotas.admission import QuotaBook
from windlass.server.session_directory import (
    OwnedSession,
    SessionCache,
    SessionDirectory,
    check_session_name,
    no_such_session,
)

ERASE_WAIT_S = 10.0
ERASE_TRIES = 100
"""How long, and how often, a session whose run has just ended is tried to be deleted."""
TAKEN_WAIT_S = 2.0
"""How long to wait for a driver to take a message."""


class RunControls(ABC):
    """The part of a service that finds sessions for callers, and speaks to their runs."""

    journal: Journal
    agents: Mapping[str, Agent[Any]]

    _sessions: SessionCache
    _directory: SessionDirectory

    async def find_session(
        self, caller: Caller, session: str, role: Role | None = None
    ) -> OwnedSession:
        """Return a session, by its full name or the caller's short one.

        `role` says what it is used for: a person may watch, answer or control some sessions of
        others. Without it, only the owner and admins find the session. Raises ApiError 404.
        """
        return await self._directory.find(caller, session, role)

    async def find_listed(
        self, caller: Caller, summary: SessionSummary, role: Role | None = None
    ) -> OwnedSession | None:
        """Return a session of a list; None if it is gone, or the caller has no name for it."""
        return await self._directory.find_listed(caller, summary, role)

    async def may_use_listed(self, caller: Caller, summary: SessionSummary, role: Role) -> bool:
        """Return whether the caller may use a session of a list so, by all agents that it had."""
        return await self._directory.may_use_listed(caller, summary, role)

    async def read_again(self, session: OwnedSession) -> OwnedSession:
        """Return a session as it is on record now. Raises ApiError 404 if it was deleted."""
        return await self._directory.read_again(session)

    async def find_root(self, session: OwnedSession) -> OwnedSession:
        """Return the session at the top of those that a session works for; itself if for none."""
        return await self._directory.find_root(session)

    async def read_session_state(self, session: str) -> SessionState | None:
        """Return the state of a session of any owner; None if it has not begun."""
        known = await self._sessions.read(session)
        return None if known is None else known.summary.state

    @cached_property
    def quotas(self) -> QuotaBook:
        """Who may begin how many runs, for how much money."""
        return QuotaBook(self.journal, self.read_session_state)

    @cached_property
    def people(self) -> PeopleBook:
        """Which groups people belong to, and who stands in for whom."""
        return PeopleBook(self.journal)

    @abstractmethod
    def drive_soon(self, session: str, agent: str = "", *, consent: bool = False) -> None:
        """Drive a session in the background if it needs it."""

    async def steer(
        self,
        session: OwnedSession,
        prompt: str | tuple[ContentPart, ...],
        *,
        key: str = "",
        run: int | None = None,
    ) -> ControlReceipt:
        """Say something to the open run of a session before its next step; only `run`, if given."""
        by = session.caller.author
        receipt = await control.steer(self.journal, session.name, prompt, by=by, key=key, run=run)
        return self._wake(receipt, session)

    async def cancel(
        self, session: OwnedSession, reason: str = "cancelled", *, run: int | None = None
    ) -> ControlReceipt:
        """End the open run of a session, wherever it is driven; only `run`, if given."""
        by = session.caller.author
        receipt = await control.cancel(self.journal, session.name, reason, by=by, run=run)
        return self._wake(receipt, session)

    async def pause(self, session: OwnedSession, reason: str = "") -> ControlReceipt:
        """Stop the open run of a session before its next request."""
        by = session.caller.author
        receipt = await control.pause(self.journal, session.name, reason, by=by)
        return self._wake(receipt, session)

    async def resume(
        self, session: OwnedSession, *, consent: bool = False
    ) -> ControlReceipt | None:
        """Resume a run that was paused or released. Returns None if it was not paused.

        Raises SetupDrifted if the agent's configuration changed, unless `consent` is given.
        """
        receipt = None
        if (await self.read_again(session)).summary.pause:
            by = session.caller.author
            receipt = await control.resume(self.journal, session.name, by=by)
        self.drive_soon(session.name, session.summary.agent, consent=consent)
        return receipt

    async def raise_limits(self, session: OwnedSession, limits: RaisedLimits) -> ControlReceipt:
        """Raise the limits of the open run of a session."""
        by = session.caller.author
        receipt = await control.raise_limits(self.journal, session.name, limits, by=by)
        return self._wake(receipt, session)

    async def release(self, session: OwnedSession, reason: str = "") -> ControlReceipt:
        """Move the open run of a session off its driver, wherever that is."""
        by = session.caller.author
        return await control.release(self.journal, session.name, reason, by=by)

    async def answer(
        self,
        session: OwnedSession,
        call_id: str,
        reply: PersonAnswer,
        *,
        digest: str | None = None,
    ) -> tuple[Question, ...]:
        """Answer a question, and resume its run. Returns the questions that still wait.

        The decision is durable when this returns. It waits a moment for a driver to take the
        answer, so that what is read next shows it.
        """
        asked = await find_question(self.journal, session.name, call_id)
        root = await self.find_root(session)
        try:
            receipt = await post_answer(
                self.journal,
                asked,
                call_id,
                reply,
                digest=digest,
                by=session.caller.author,
                person=await self.people.verify(session.caller, root.summary.agent),
            )
        finally:
            # Also if another answer was faster: that one may still wait for a driver.
            self.drive_soon(root.name, root.summary.agent)
        with suppress(TimeoutError):
            await receipt.taken(TAKEN_WAIT_S)
        return await list_undecided(self.journal, await read_state(self.journal, root))

    async def fork(self, session: OwnedSession, at: int, into: str = "") -> OwnedSession:
        """Begin a new session with the first records of another one, and return it.

        Raises ApiError 429 if a run is open in it, and a quota lets the owner begin no more, and
        403 if `into` is given by another than the owner or an admin: the names are the owner's.
        """
        if into and not session.caller.may_use(None, session.owner, session.summary.agent):
            raise ApiError(
                403, "not_owner", "Only the owner names a fork.", "Leave `into` out of the request."
            )
        name = check_session_name(full_session_name(session.owner, into)) if into else None
        copied = list(await read_recorded_facts(self.journal, session))[:at]
        if row_of(fold(session.name, copied)).outcome is None:
            # The open run continues in both sessions. The journal names this one only later.
            counted = name or f"{session.name}~{at}.{token_hex(4)}"
            await self.quotas.admit(session.owner, session.summary.agent, counted)
        made = await fork_session(self.journal, session.name, at, name)
        return await self.find_session(session.caller, made, session.role)

    async def erase(self, session: OwnedSession, *, cancel: bool = False) -> None:
        """Delete a session, its messages, and the sessions that work for it, for good.

        With `cancel`, an open run is ended first; else it refuses. Raises ApiError 403 for another
        than the owner or an admin, 404 if it is gone, and 409 while a run is open, or if the
        session works for another one.
        """
        if not session.caller.may_use(None, session.owner, session.summary.agent):
            raise ApiError(
                403, "not_owner", "Only the owner erases a session.", "Ask the owner or an admin."
            )
        if session.parent:
            raise ApiError(
                409,
                "works_for_another",
                "This session works for another one.",
                f"Delete that one: {session.parent}",
            )
        if session.summary.outcome is None:
            if not cancel:
                raise _open_run_error()
            await self._end_run(session)
        if not await self._erase_when_free(session):
            raise no_such_session(session.name)
        self._sessions.forget(session.name)

    async def _end_run(self, session: OwnedSession) -> None:
        with suppress(NothingToDo, TimeoutError):
            receipt = await self.cancel(session, "the session is deleted")
            await receipt.taken(ERASE_WAIT_S)

    async def _erase_when_free(self, session: OwnedSession) -> bool:
        """Erase a session. A run that has just ended may be driven for another moment."""
        for _ in range(ERASE_TRIES):
            with suppress(SessionBusy):
                return await erase_session(self.journal, session)
            await asyncio.sleep(ERASE_WAIT_S / ERASE_TRIES)
        raise _open_run_error()

    def _wake(self, receipt: ControlReceipt, session: OwnedSession) -> ControlReceipt:
        self.drive_soon(session.name, session.summary.agent)
        return receipt


def _open_run_error() -> ApiError:
    return ApiError(
        409,
        "session_busy",
        "A run of this session has not ended.",
        "Wait until it has, or delete the session with ?cancel=true.",
    )


SERVICE_KEY = "windlass_service"
"""The key in the context of a run that says that a service began it."""


class RunEngine(Protocol):
    """Something that finds a driver for a session: an engine with workers of its own."""

    async def wake(self, session: str, agent: str, caller: str = "", *, priority: int = 0) -> None:
        """Have a session driven. What is to be done there is on record already."""
        ...


def is_served_run(start: RunStarted) -> bool:
    """Return whether a service began a run."""
    return bool(start.context.get(SERVICE_KEY))


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a caller wants."""

    prompt: str | tuple[ContentPart, ...]
    agent: str = ""
    """The name of the agent; by default the session's, or the first one."""
    session: str = ""
    """The session to continue, or a new name; by default a new session."""
    key: str = ""
    """The caller's own name for this start: the same key never begins a second run."""
    on_busy: OnBusy = "refuse"
    labels: tuple[Label, ...] = ()
    """What the prompt brings along: `untrusted` text, `private` data."""
    earlier: tuple[EarlierMessage, ...] = ()
    """A conversation from elsewhere that a new session continues."""
    limits: Limits | None = None
    """Stricter limits than the agent's; those that are not stricter change nothing."""
    output_schema: Mapping[str, Any] | None = None
    """A JSON Schema that the final reply must fit."""
    pinned: bool = False
    tags: Mapping[str, str] = {}
    """Keys and values of the caller's own."""
    priority: int = 0
    """A higher one begins first, and its requests go first."""
    trace: str = ""
    """The trace that the run belongs to, as in a `traceparent` header."""

    def to_options(self) -> RunOptions:
        """Return what the caller asked for as options of the run."""
        options: RunOptions = {
            "key": self.key,
            "on_busy": self.on_busy,
            "labels": self.labels,
            "pinned": self.pinned,
            "priority": self.priority,
            "tags": self.tags,
            "trace": self.trace,
        }
        if self.earlier:
            options["messages"] = self.earlier
        if self.limits is not None:
            options["limits"] = self.limits
        if self.output_schema is not None:
            options["output_schema"] = self.output_schema
        return options
