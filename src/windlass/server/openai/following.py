"""A run as a client follows it: from its beginning or from what it has seen, to its end.

The law: the run belongs to the service. Only one kind of client ends it by going away: that of a
plain chat completion, whose answer nobody else waits for.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple
from urllib.parse import quote

from typing_extensions import override

from windlass.core.errors import ForOperator
from windlass.core.events import Fact, RunEnded, RunStarted
from windlass.core.projection.project import project_events
from windlass.core.projection.runs import OpenQuestion
from windlass.server.access import Caller
from windlass.server.messages import ApiError, HttpRequest
from windlass.server.openai.chat import find_wait_error
from windlass.server.openai.errors import OpenAIError
from windlass.server.openai.ids import IdKind, read_id
from windlass.server.openai.objects import ResponseObject
from windlass.server.openai.response_fold import ResponseFold
from windlass.server.openai.stream_events import ResponseEvent
from windlass.server.owned_reading import is_caught_up, read_recorded_facts
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession


def question_linker(service: Service, request: HttpRequest) -> Callable[[OpenQuestion], str]:
    """Return what makes the address of a question: the public one, or that of this request."""
    origin = service.outside.public_url.rstrip("/")
    if not origin:
        origin = f"{request.scheme}://{request.header('host', 'localhost')}"

    def link(question: OpenQuestion) -> str:
        session = quote(question.session, safe="")
        return f"{origin}/#/questions/{session}/{quote(question.call_id, safe='')}"

    return link


class FoundRun(NamedTuple):
    """What an id leads to: a run or a message in a session of the caller."""

    session: OwnedSession
    number: int
    """Of the run in its session; for a message, of the fact that began its attempt."""
    facts: list[Fact]
    """Of the session."""


async def find_run(service: Service, caller: Caller, text: str, kind: IdKind = "resp") -> FoundRun:
    """Return what an id leads to, if the caller owns it.

    Raises OpenAIError 404 otherwise, whether or not there is such a run.
    """
    reference = read_id(text)
    if reference is not None and reference.kind == kind:
        with suppress(ApiError):
            session = await service.find_session(caller, reference.session)
            facts = list(await read_recorded_facts(service.journal, session))
            is_run = any(_starts_run(fact, reference.number) for fact in facts)
            # An id holds the full name. The same text as a short name is another session.
            if session.name == reference.session and (kind == "msg" or is_run):
                return FoundRun(session, reference.number, facts)
    noun = "message" if kind == "msg" else "response"
    raise OpenAIError(
        404,
        f"{noun}_not_found",
        f"There is no {noun} {text[:200]!r} of yours.",
        "Check the id, and that the token belongs to the caller that began it.",
    )


def find_end(facts: list[Fact], run: int) -> int | None:
    """Return the number of the fact that ended a run, or None if it is open."""
    number = 0
    for fact in facts:
        if isinstance(fact, RunStarted):
            number = fact.run
        elif isinstance(fact, RunEnded) and number == run:
            return fact.seq
    return None


class RunFollower:
    """Follows one run on behalf of one request."""

    def __init__(
        self, service: Service, request: HttpRequest, session: OwnedSession, run: int
    ) -> None:
        self._service = service
        self._request = request
        self._session = session
        self._run = run
        self._needs_client = True

    def keep_run(self) -> None:
        """Say that the run has ended, or goes on without its client."""
        self._needs_client = False

    async def read(self) -> ResponseObject:
        """Return the response as it is on record now."""
        facts = await self._service.read_facts(self._session)
        view = self._make_fold(())
        for fact in facts:
            for _ in view.apply(fact):
                pass
        return view.read_response()

    async def follow(self, *, on_question: str) -> AsyncGenerator[list[ResponseEvent]]:
        """Yield what each event of the run means for its response, up to its end.

        Raises OpenAIError if the run waits for a person, unless `on_question` is `wait`.
        """
        facts = await read_recorded_facts(self._service.journal, self._session)
        before = list(takewhile(lambda fact: not _starts_run(fact, self._run), facts))
        view = self._make_fold(before)
        after = before[-1].seq if before else 0
        async with aclosing(self._service.watch(self._session, after)) as events:
            async for event in events:
                yield list(view.apply(event))
                if view.has_ended:
                    return
                if on_question == "fail" and view.waits and await self._is_caught_up(view.seq):
                    raise find_wait_error(view.read_details())

    async def _is_caught_up(self, seq: int) -> bool:
        return await is_caught_up(self._service.journal, self._session, seq)

    async def wait(self, *, on_question: str) -> ResponseObject:
        """Return the response when the run has ended. Raises what `follow` raises."""
        async with aclosing(self.follow(on_question=on_question)) as steps:
            async for _ in steps:
                pass
        return await self.read()

    async def cancel(self, reason: str) -> None:
        """End the run, if it has not ended yet."""
        with suppress(ForOperator):
            receipt = await self._service.cancel(self._session, reason, run=self._run)
            await receipt.taken()

    def cancel_soon(self) -> None:
        """End a run whose client has gone away, unless it went because the service is stopping."""
        if self._needs_client and self._service.is_ready:
            self._needs_client = False
            name = f"cancel {self._session.name}"
            cancel = partial(self.cancel, "the client went away")
            self._service.background.start(name, cancel)

    async def wait_with_client(self, *, on_question: str) -> ResponseObject:
        """Return what `wait` returns. If the client goes away meanwhile, the run is cancelled."""
        working = asyncio.ensure_future(self.wait(on_question=on_question))
        leaving = asyncio.ensure_future(self._request.wait_disconnect())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise OpenAIError(499, "client_gone", "The client went away.", "Ask again.")
            return working.result()
        finally:
            leaving.cancel()
            if not working.done():
                working.cancel()
                self.cancel_soon()

    def _make_fold(self, before: "tuple[Fact, ...] | list[Fact]") -> ResponseFold:
        start = project_events(before, self._session.name)
        link = question_linker(self._service, self._request)
        return ResponseFold(self._session.name, self._run, link, start)


class CancellingFrames(AsyncGenerator[bytes]):
    """Frames of a stream whose run is cancelled if they are closed before it has settled.

    A generator that was never begun does nothing when it is closed, and a client can be that fast.
    """

    def __init__(self, frames: AsyncGenerator[bytes], follower: RunFollower) -> None:
        self._frames = frames
        self._follower = follower

    @override
    async def asend(self, value: None) -> bytes:
        return await self._frames.asend(value)

    @override
    async def athrow(self, *error: Any) -> bytes:
        return await self._frames.athrow(*error)

    @override
    async def aclose(self) -> None:
        try:
            await self._frames.aclose()
        finally:
            self._follower.cancel_soon()


def _starts_run(fact: Fact, run: int) -> bool:
    return isinstance(fact, RunStarted) and fact.run == run
