"""One stream for many sessions: their events, changes of the list, and questions.

A browser has six connections to a host, so a page that shows several sessions uses one of these.

Invariant: the id of a fact holds the place in each session that the stream follows. So a client
that comes back with `Last-Event-ID` gets every fact of each of them once.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from windlass.core.events import Event
from windlass.core.question import Question
from windlass.core.session_summary import UNFINISHED_STATES, SessionSummary
from windlass.server.access import Caller
from windlass.server.api.session_records import session_reply
from windlass.server.errors import ApiError
from windlass.server.feed import FeedSubscription
from windlass.server.frames import encode_frame
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession
from windlass.server.sse import RETRY_MS, Snapshot, watch_with_snapshots

SESSIONS_MAX = 100
"""Sessions that one stream follows."""
FRAMES_WAITING = 256
"""Frames that wait for a slow client; then its sessions wait, whose text is merged."""


class SessionEvent(msgspec.Struct, frozen=True):
    """An event of one of several sessions."""

    session: str
    event: Any


class SessionQuestions(msgspec.Struct, frozen=True):
    """The questions that wait in a session now; none if they were answered."""

    session: str
    questions: tuple[Question, ...]


def read_places(text: str) -> dict[str, int]:
    """Return the place in each session from `Last-Event-ID`. Raises ApiError 400."""
    places: dict[str, int] = {}
    for pair in filter(None, text.split(",")):
        name, _, number = pair.rpartition(":")
        if not name or not number.isascii() or not number.isdigit():
            raise ApiError(
                400,
                "bad_event_id",
                f"{text[:50]!r} is not the id of an event of this stream.",
                "Send the last id of the stream, or none.",
            )
        places[unquote(name)] = int(number[:15])
    return places


class MultiplexedStream:
    """Merges what one caller watches into frames."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        sessions: Sequence[OwnedSession],
        places: Mapping[str, int],
        *,
        follow_all: bool,
    ) -> None:
        """Follow the sessions that are given, or with `follow_all` all open ones of the caller."""
        self._service = service
        self._caller = caller
        self._sessions = tuple(sessions)
        self._places = dict(places)
        self._follow_all = follow_all
        self._frames: asyncio.Queue[bytes | tuple[str, Event]] = asyncio.Queue(FRAMES_WAITING)
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()
        """Sessions whose questions the client shows."""

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield the frames, until the client goes away."""
        yield b"retry: %d\n\n" % RETRY_MS
        feed = await self._service.feed.subscribe(self._caller)
        try:
            for session in self._sessions:
                self._follow(session, self._places.get(session.name, 0))
            if self._follow_all:
                await self._follow_open_sessions()
            self._pumps[""] = asyncio.create_task(self._pump_list(feed))
            while True:
                frame = await self._frames.get()
                yield frame if isinstance(frame, bytes) else self._encode(*frame)
        finally:
            feed.close()
            pumps = list(self._pumps.values())
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def _follow(self, session: OwnedSession, after: int) -> None:
        name = session.name
        if name not in self._pumps and len(self._pumps) < SESSIONS_MAX:
            self._places[name] = after
            self._pumps[name] = asyncio.create_task(self._pump_session(session, after))

    async def _follow_listed(self, summary: SessionSummary, before: int) -> None:
        """Follow a session of the list: where the client was, or after the fact `before`."""
        if summary.session in self._pumps:
            return
        session = await self._service.find_listed(self._caller, summary, "watch")
        if session is not None:
            self._follow(session, self._places.get(session.name, before))

    async def _follow_open_sessions(self) -> None:
        page = await self._service.list_open(self._caller, SESSIONS_MAX)
        for summary in page:
            # A returning client continues where it was; a new one begins with the present.
            await self._follow_listed(summary, summary.facts)

    async def _pump_session(self, session: OwnedSession, after: int) -> None:
        async with aclosing(watch_with_snapshots(self._service, session, after)) as events:
            async for event in events:
                is_snapshot = isinstance(event, Snapshot)
                frame = encode_frame("snapshot", event) if is_snapshot else (session.name, event)
                await self._frames.put(frame)

    async def _pump_list(self, feed: FeedSubscription) -> None:
        while True:
            for summary in await feed.take():
                may_watch = await self._service.may_use_listed(self._caller, summary, "watch")
                if may_watch:
                    await self._frames.put(encode_frame("session", session_reply(summary)))
                if await self._service.may_use_listed(self._caller, summary, "answer"):
                    await self._tell_questions(summary)
                if may_watch and self._follow_all and summary.state in UNFINISHED_STATES:
                    is_new = summary.runs <= 1
                    await self._follow_listed(summary, 0 if is_new else summary.facts)

    async def _tell_questions(self, summary: SessionSummary) -> None:
        is_waiting = summary.state == "waiting"
        if not is_waiting and summary.session not in self._asked:
            return
        questions: tuple[Question, ...] = ()
        if is_waiting:
            self._asked.add(summary.session)
            session = await self._service.find_listed(self._caller, summary, "answer")
            questions = session.view.questions if session is not None else ()
        else:
            self._asked.discard(summary.session)
        told = SessionQuestions(summary.session, questions)
        await self._frames.put(encode_frame("questions", told))

    def _encode(self, session: str, event: Event) -> bytes:
        """Return the frame of an event. The id of a fact is the place in all sessions."""
        body = SessionEvent(session, event)
        if event.nth:
            return encode_frame("delta", body)
        self._places[session] = event.seq
        places = ",".join(f"{quote(name, safe='')}:{seq}" for name, seq in self._places.items())
        return encode_frame("fact", body, places)
