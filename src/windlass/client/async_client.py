"""AsyncClient: a service, as an async program uses it.

async with AsyncClient("http://127.0.0.1:8420", token) as client:
    started = await client.start("Write a report.", tags={"team": "billing"})
    async for event in client.watch(started.session):
        ...
    report = await client.read_session(started.session)
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Self
from urllib.parse import quote

import msgspec

from windlass.agent.options import OnBusy
from windlass.client.transport import ServiceError, ServiceTransport, StreamCursor, read_event
from windlass.core.events import Event
from windlass.core.messages import ContentPart
from windlass.core.session_summary import SessionState
from windlass.core.verdicts import PersonAnswer
from windlass.server.api.controls import (
    AnswerBody,
    ControlReply,
    QuestionsReply,
    ReasonBody,
    ResumeBody,
    SteerBody,
)
from windlass.server.api.runs import (
    ConversationReply,
    RunCaps,
    SessionListReply,
    StartBody,
    StartedReply,
)
from windlass.server.schedules.schedule_routes import PauseBody, ScheduleBody, ScheduleReply
from windlass.server.sse import Snapshot

__all__ = ["AsyncClient", "ServiceError"]

Prompt = str | Sequence[ContentPart]
_event_decoder = msgspec.json.Decoder(Event)
_snapshot_decoder = msgspec.json.Decoder(Snapshot)


class SchedulePage(msgspec.Struct, frozen=True):
    """A page of schedules."""

    schedules: list[ScheduleReply]
    cursor: str | None = None


class AsyncClient:
    """A caller of one service. It holds no connection open but those of its streams."""

    def __init__(
        self, url: str, token: str, *, timeout_s: float = 30.0, retry_s: float = 60.0
    ) -> None:
        """Make a client.

        `url`: where the service is, with its path prefix if it has one. `timeout_s`: for one
        request. `retry_s`: how long to try again while the service restarts or is busy.
        """
        self._transport = ServiceTransport(url, token, timeout_s=timeout_s, retry_s=retry_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held open, so nothing has to be closed."""

    # Runs.

    async def start(
        self,
        prompt: Prompt,
        *,
        session: str = "",
        agent: str = "",
        on_busy: OnBusy = "refuse",
        limits: RunCaps | None = None,
        tags: Mapping[str, str] | None = None,
        key: str = "",
    ) -> StartedReply:
        """Start a run, and return once it is durable. Raises ServiceError.

        `key`: a name of your own for this start, which then happens once, also across restarts of
        your program.
        """
        body = StartBody(
            prompt=prompt if isinstance(prompt, str) else tuple(prompt),
            session=session,
            agent=agent,
            on_busy=on_busy,
            limits=limits,
            tags=dict(tags or {}),
        )
        return await self._transport.ask("POST", "/runs", StartedReply, body=body, key=key)

    async def watch(
        self, session: str, *, after: int = 0, follow: bool = False
    ) -> AsyncGenerator[Event | Snapshot]:
        """Yield the events of a session after a fact, each fact once, also over broken connections.

        A Snapshot replaces the text that was shown of a reply that is being written. Ends with the
        last run; with `follow`, it continues with the next one. Raises ServiceError.
        """
        cursor = StreamCursor(after)
        path = f"{_run_path(session)}/events{'?follow=true' if follow else ''}"
        async with aclosing(self._transport.follow(path, cursor)) as events:
            async for name, data in events:
                if name == "snapshot":
                    if (snapshot := read_event(data, _snapshot_decoder)) is not None:
                        yield snapshot
                elif name in ("fact", "delta"):
                    event = read_event(data, _event_decoder)
                    if event is None or (not event.nth and event.seq <= cursor.seq):
                        continue
                    if not event.nth:
                        cursor.seq = event.seq
                    yield event

    async def wait(self, session: str) -> ConversationReply:
        """Return a session once its runs have ended. Raises ServiceError."""
        async with aclosing(self.watch(session)) as events:
            async for _ in events:
                pass
        return await self.read_session(session)

    async def read_session(self, session: str) -> ConversationReply:
        """Return a session as people see it. Raises ServiceError."""
        return await self._transport.ask("GET", _run_path(session), ConversationReply)

    async def list_sessions(
        self,
        *,
        text: str = "",
        state: Collection[SessionState] = (),
        agent: str | None = None,
        tags: Mapping[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> SessionListReply:
        """Return a page of sessions, the latest first. Raises ServiceError."""
        query = {
            "text": text,
            "state": tuple(state),
            "agent": agent,
            "tag": tuple(f"{name}={value}" for name, value in (tags or {}).items()),
            "limit": limit,
            "cursor": cursor,
        }
        return await self._transport.ask("GET", "/runs", SessionListReply, query=query)

    async def steer(self, session: str, prompt: str) -> ControlReply:
        """Say something to a run before its next step. Raises ServiceError."""
        return await self._control(session, "steer", SteerBody(prompt=prompt))

    async def cancel(self, session: str, reason: str = "") -> ControlReply:
        """Cancel the run of a session. Raises ServiceError."""
        return await self._control(session, "cancel", ReasonBody(reason=reason))

    async def pause(self, session: str, reason: str = "") -> ControlReply:
        """Pause a run after its current step. Raises ServiceError."""
        return await self._control(session, "pause", ReasonBody(reason=reason))

    async def resume(self, session: str, *, consent: bool = False) -> ControlReply:
        """Resume a paused run. `consent`: also with another configuration. Raises ServiceError."""
        return await self._control(session, "resume", ResumeBody(consent=consent))

    async def _control(self, session: str, verb: str, body: object) -> ControlReply:
        path = f"{_run_path(session)}/{verb}"
        return await self._transport.ask("POST", path, ControlReply, body=body)

    # Questions.

    async def list_questions(self, *, limit: int = 50, cursor: str | None = None) -> QuestionsReply:
        """Return the questions that wait for a person. Raises ServiceError."""
        query = {"limit": limit, "cursor": cursor}
        return await self._transport.ask("GET", "/questions", QuestionsReply, query=query)

    async def answer(
        self, session: str, call_id: str, answer: PersonAnswer, *, digest: str | None = None
    ) -> QuestionsReply:
        """Answer a question, and return those that are left. Raises ServiceError.

        `digest`: of the question, so that the answer counts for the arguments that were shown.
        """
        body = AnswerBody(call_id=call_id, answer=answer, digest=digest)
        path = f"{_run_path(session)}/answers"
        return await self._transport.ask("POST", path, QuestionsReply, body=body)

    # Schedules.

    async def create_schedule(self, schedule: ScheduleBody) -> ScheduleReply:
        """Make a schedule, which starts runs at certain times. Raises ServiceError."""
        return await self._transport.ask("POST", "/schedules", ScheduleReply, body=schedule)

    async def list_schedules(self, *, limit: int = 50, cursor: str | None = None) -> SchedulePage:
        """Return a page of schedules by name. Raises ServiceError."""
        query = {"limit": limit, "cursor": cursor}
        return await self._transport.ask("GET", "/schedules", SchedulePage, query=query)

    async def read_schedule(self, name: str) -> ScheduleReply:
        """Return a schedule. Raises ServiceError."""
        return await self._transport.ask("GET", _schedule_path(name), ScheduleReply)

    async def pause_schedule(self, name: str, reason: str = "") -> ScheduleReply:
        """Let a schedule start no runs until it is resumed. Raises ServiceError."""
        path = f"{_schedule_path(name)}/pause"
        return await self._transport.ask("POST", path, ScheduleReply, body=PauseBody(reason))

    async def resume_schedule(self, name: str) -> ScheduleReply:
        """Resume a schedule. Raises ServiceError."""
        return await self._transport.ask("POST", f"{_schedule_path(name)}/resume", ScheduleReply)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Raises ServiceError."""
        await self._transport.ask("DELETE", _schedule_path(name), msgspec.Raw)


def _run_path(session: str) -> str:
    return f"/runs/{quote(session, safe='')}"


def _schedule_path(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"
