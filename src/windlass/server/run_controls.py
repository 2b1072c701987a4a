"""What a caller says to runs: thin over the functions that need nothing but the journal.

The law: each message is posted in the name of its caller, to a session that is the caller's. If
nobody drives the run, it is driven here.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from windlass.agent import control
from windlass.agent.agent import Agent
from windlass.agent.answering import answer as answer_question
from windlass.agent.control import ControlReceipt
from windlass.core.limits import RaisedLimits
from windlass.core.messages import ContentPart
from windlass.core.result import Question
from windlass.core.session_summary import SessionSummary
from windlass.core.verdicts import PersonAnswer
from windlass.journals.forking import fork as fork_session
from windlass.ports import Journal
from windlass.server.access import Caller, full_session_name
from windlass.server.session_cache import KnownSession
from windlass.server.session_directory import check_session_name


class RunControls(ABC):
    """The part of a service that speaks to runs."""

    journal: Journal
    agents: Mapping[str, Agent[Any]]

    @abstractmethod
    async def find_session(self, caller: Caller, session: str) -> KnownSession:
        """Return a session of the caller. Raises ApiError 404."""

    @abstractmethod
    async def check_owner(self, caller: Caller, session: str) -> SessionSummary:
        """Return the summary of a session of the caller. Raises ApiError 404."""

    @abstractmethod
    async def find_root(self, known: KnownSession) -> KnownSession:
        """Return the session at the top of those that a session works for."""

    @abstractmethod
    def drive_soon(self, session: str, agent: str = "", *, consent: bool = False) -> None:
        """Drive a session in the background if it needs it."""

    async def steer(
        self,
        caller: Caller,
        session: str,
        prompt: str | tuple[ContentPart, ...],
        *,
        key: str = "",
        run: int | None = None,
    ) -> ControlReceipt:
        """Say something to the open run of a session before its next step; only `run`, if given."""
        summary = await self.check_owner(caller, session)
        receipt = await control.steer(
            self.journal, summary.session, prompt, by=caller.author, key=key, run=run
        )
        return self._wake(receipt, summary)

    async def cancel(
        self,
        caller: Caller,
        session: str,
        reason: str = "cancelled",
        *,
        run: int | None = None,
    ) -> ControlReceipt:
        """End the open run of a session, wherever it is driven; only `run`, if given."""
        summary = await self.check_owner(caller, session)
        receipt = await control.cancel(
            self.journal, summary.session, reason, by=caller.author, run=run
        )
        return self._wake(receipt, summary)

    async def pause(self, caller: Caller, session: str, reason: str = "") -> ControlReceipt:
        """Stop the open run of a session before its next request."""
        summary = await self.check_owner(caller, session)
        receipt = await control.pause(self.journal, summary.session, reason, by=caller.author)
        return self._wake(receipt, summary)

    async def resume(
        self, caller: Caller, session: str, *, consent: bool = False
    ) -> ControlReceipt | None:
        """Go on with a run that was paused or let go of. Returns None if it was not paused.

        Raises SetupDrifted if the agent's configuration changed, unless `consent` is given.
        """
        summary = await self.check_owner(caller, session)
        receipt = None
        if summary.pause:
            receipt = await control.resume(self.journal, summary.session, by=caller.author)
        self.drive_soon(summary.session, summary.agent, consent=consent)
        return receipt

    async def raise_limits(
        self, caller: Caller, session: str, limits: RaisedLimits
    ) -> ControlReceipt:
        """Raise the limits of the open run of a session."""
        summary = await self.check_owner(caller, session)
        receipt = await control.raise_limits(
            self.journal, summary.session, limits, by=caller.author
        )
        return self._wake(receipt, summary)

    async def release(self, caller: Caller, session: str, reason: str = "released") -> bool:
        """Let go of a run that this process drives, without ending it. Returns whether it did."""
        summary = await self.check_owner(caller, session)
        return any(agent.release(summary.session, reason) for agent in self.agents.values())

    async def answer(
        self,
        caller: Caller,
        session: str,
        call_id: str,
        reply: PersonAnswer,
        *,
        digest: str | None = None,
    ) -> tuple[Question, ...]:
        """Answer a question, and go on with its run. Returns the questions that still wait."""
        known = await self.find_session(caller, session)
        left = await answer_question(
            self.journal, known.summary.session, call_id, reply, digest=digest, by=caller.author
        )
        root = await self.find_root(known)
        self.drive_soon(root.summary.session, root.summary.agent)
        return left

    async def fork(self, caller: Caller, session: str, at: int, into: str = "") -> str:
        """Begin a new session with the first records of another one. Returns its full name."""
        known = await self.find_session(caller, session)
        root = await self.find_root(known)
        name = check_session_name(full_session_name(root.owner, into)) if into else None
        return await fork_session(self.journal, known.summary.session, at, name)

    def _wake(self, receipt: ControlReceipt, summary: SessionSummary) -> ControlReceipt:
        self.drive_soon(summary.session, summary.agent)
        return receipt
