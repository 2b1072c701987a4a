"""A run as one client uses it: find or start it, follow it, answer it, cancel it.

Invariant: every protocol goes through here, so all of them see the same run. Its session is found
for the caller once; its events come with the view after each of them; what was answered is counted
in one way; and a cancel names this run alone. A protocol adds only how that is written on its wire.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from itertools import takewhile

from windlass.core.disclosure import show_event
from windlass.core.errors import MailRejected, NothingToDo
from windlass.core.events import Delta, Event, Fact, RunQueued, RunStarted, RunSuspended
from windlass.core.projection.project import apply_event, project_events
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.core.verdicts import PersonAnswer
from windlass.server.access import Caller
from windlass.server.answers import QuestionClosed, give_answer, question_id
from windlass.server.errors import ApiError
from windlass.server.owned_reading import is_caught_up, read_recorded_facts
from windlass.server.run_controls import StartRequest
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession


class ClientRun:
    """One run of a session, on behalf of one client."""

    def __init__(
        self, service: Service, session: OwnedSession, number: int, view: Projection | None = None
    ) -> None:
        """Use a run of a session. `view`: what the client has seen; by default all on record."""
        self.service = service
        self.session = session
        self.number = number
        self.view = session.view if view is None else view
        """The session after the last event that was followed."""
        self._answered: frozenset[str] = frozenset()

    @classmethod
    async def start(cls, service: Service, caller: Caller, request: StartRequest) -> "ClientRun":
        """Start a run, or find the one that the same key began.

        The client has seen what was on record before. Raises ApiError 403 and 404, and
        WindlassError as `Agent.start` does.
        """
        caller.require("start")
        before = await find_known(service, caller, request.session)
        handle = await service.start_run(caller, request)
        session = await service.find_session(caller, handle.session)
        is_same = before is not None and before.name == session.name
        view = before.view if before is not None and is_same else Projection(session.name)
        return cls(service, session, handle.run, view)

    @classmethod
    async def find(
        cls, service: Service, caller: Caller, session: str, number: int
    ) -> "ClientRun | None":
        """Return a run by the full name of its session and its number; None if there is none.

        Raises ApiError 404 if the caller has no such session.
        """
        found = await service.find_session(caller, session)
        # The same text as a short name is another session.
        if found.name != session or find_run(found.view, number) is None:
            return None
        return cls(service, found, number)

    @property
    def caller(self) -> Caller:
        """The caller on whose behalf the run is used."""
        return self.session.caller

    @property
    def run(self) -> RunView | None:
        """The run as the view has it; None if it has not begun there."""
        return find_run(self.view, self.number)

    @property
    def has_ended(self) -> bool:
        """Whether the run is over, in the view."""
        return self.run is not None and not self.run.is_open

    @property
    def waits(self) -> frozenset[str]:
        """The ids of what the run waits for a person for, without what this client has answered."""
        if self.run is None or not self.run.is_open:
            return frozenset()
        match self.view.status.waits_for:
            case "person":
                return frozenset(map(question_id, self.view.questions)) - self._answered
            case "continue":
                return frozenset((self.pause_id,)) - self._answered
            case _:
                return frozenset()

    @property
    def pause_id(self) -> str:
        """Identifies the pause of the run, as `question_id` does for a question."""
        return f"{self.session.name}:paused:{self.number}"

    @property
    def has_answered(self) -> bool:
        """Whether the client has just answered: a fact follows that shows how the run continues."""
        return bool(self._answered)

    def has_given(self, asked_id: str) -> bool:
        """Return whether the client has just answered this question."""
        return asked_id in self._answered

    @property
    def is_stopped(self) -> bool:
        """Whether the run has ended, or waits for what this client has not answered."""
        return self.has_ended or bool(self.waits)

    def stops_at(self, event: Event) -> bool:
        """Return whether a client who cannot answer in its stream leaves it with this event."""
        return self.is_stopped and (not isinstance(event, Delta) or isinstance(event, RunSuspended))

    async def rewind(self) -> None:
        """Go back to where the run begins, so that `follow` gives all of it."""
        facts = await read_recorded_facts(self.service.journal, self.session)
        parts = self.service.parts_for(self.caller)
        before = takewhile(lambda fact: not starts_run(fact, self.number), facts)
        shown = (show_event(fact, parts) for fact in before)
        self.view = project_events(shown, self.session.name)

    async def follow(self) -> AsyncGenerator[Event]:
        """Yield the events of the run after `view`, which moves along with them, up to its end.

        What comes before the run begins is only taken into the view.
        """
        if self.has_ended:
            return
        async with aclosing(self.service.watch(self.session, self.view.seq)) as events:
            async for event in events:
                view = apply_event(self.view, event)
                is_known = view is self.view
                self.view = view
                if is_known or self.run is None:
                    continue
                yield event
                if self.has_ended:
                    return

    async def is_caught_up(self) -> bool:
        """Return whether nothing is on record or on its way that the view does not have."""
        return await is_caught_up(self.service.journal, self.session, self.view.seq)

    async def read_again(self) -> Projection:
        """Return the session as it is on record now. Raises ApiError 404 if it was deleted."""
        return (await self.service.read_again(self.session)).view

    async def answer(self, asked_id: str, answer: PersonAnswer) -> QuestionClosed | None:
        """Answer a question. Returns how it was decided before, if another answer was faster.

        Raises ApiError 403, and 404 if there never was such a question of the caller's.
        """
        self.caller.require("answer")
        asked = frozenset(map(question_id, self.view.questions))
        taken = await give_answer(self.service, self.caller, asked_id, answer)
        if isinstance(taken, QuestionClosed):
            # It is decided, though the view shows it until a driver takes the answer.
            self._answered |= asked & {asked_id}
            return taken
        self._answered |= asked - taken
        return None

    async def end_pause(self, *, resume: bool) -> None:
        """Resume the run after a pause, or end it."""
        self.caller.require("answer")
        self.caller.require("start")
        self._answered |= {self.pause_id}
        if resume:
            await self.service.resume(self.session)
        else:
            await self.service.cancel(self.session, run=self.number)

    async def cancel(self, reason: str = "cancelled", wait_s: float | None = None) -> bool:
        """End the run, and wait until that is on record, at most `wait_s` seconds.

        Returns False if it had ended already.
        """
        self.caller.require("start")
        try:
            receipt = await self.service.cancel(self.session, reason, run=self.number)
            with suppress(TimeoutError):
                await receipt.taken(wait_s)
        except (NothingToDo, MailRejected):
            return False
        return True


async def find_known(service: Service, caller: Caller, name: str) -> OwnedSession | None:
    """Return a session of the caller's; None if there is none of that name, or no name."""
    try:
        return await service.find_session(caller, name) if name else None
    except ApiError as error:
        if error.code != "session_not_found":
            raise
        return None


def find_run(view: Projection, number: int) -> RunView | None:
    """Return a run of a session by its number, or None."""
    if view.run is not None and view.run.number == number:
        return view.run
    return next((run for run in view.runs if run.number == number), None)


def describe_end(run: RunView) -> str:
    """Return why a run came to no answer, in words."""
    if run.fault is not None and run.fault.message:
        return run.fault.message
    return run.reason or f"The run ended as {run.outcome}."


def starts_run(fact: Fact, number: int) -> bool:
    """Return whether a fact begins this run."""
    return isinstance(fact, RunQueued | RunStarted) and fact.run == number
