"""A run as a client follows it: from its beginning or from what it has seen, to its end.

Invariant: the run belongs to the service. Only one kind of client ends it by going away: that of a
plain chat completion, whose answer no other client waits for.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from typing_extensions import override

from windlass.core.projection.project import apply_event
from windlass.core.projection.runs import OpenQuestion
from windlass.core.projection.view import Projection
from windlass.server.client_run import ClientRun
from windlass.server.errors import ApiError
from windlass.server.messages import HttpRequest
from windlass.server.openai.chat import find_wait_error
from windlass.server.openai.ids import read_id
from windlass.server.openai.objects import ResponseObject
from windlass.server.openai.openai_errors import OpenAIError
from windlass.server.openai.response_encoder import ResponseEncoder
from windlass.server.openai.stream_events import ResponseEvent
from windlass.server.service import Service


def question_linker(service: Service, request: HttpRequest) -> Callable[[OpenQuestion], str]:
    """Return what makes the address of a question: the public one, or that of this request."""
    origin = request.find_origin(service.outside.public_url)

    def link(question: OpenQuestion) -> str:
        session = quote(question.session, safe="")
        return f"{origin}/#/questions/{session}/{quote(question.call_id, safe='')}"

    return link


async def find_response(service: Service, request: HttpRequest, text: str) -> "ResponseFollower":
    """Return the run of a response, if the caller owns it.

    Raises OpenAIError 404 otherwise, whether or not there is such a run.
    """
    reference = read_id(text)
    if reference is not None and reference.kind == "resp":
        with suppress(ApiError):
            session, number = reference.session, reference.number
            run = await ClientRun.find(service, request.caller, session, number)
            if run is not None:
                return ResponseFollower(run, request)
    raise not_found("response", text)


def not_found(noun: str, text: str) -> OpenAIError:
    """Return the error for an id that leads to nothing of the caller's."""
    return OpenAIError(
        404,
        f"{noun}_not_found",
        f"There is no {noun} {text[:200]!r} of yours.",
        "Check the id, and that the token belongs to the caller that began it.",
    )


class ResponseFollower:
    """Shows one run as a response, on behalf of one request."""

    def __init__(self, run: ClientRun, request: HttpRequest) -> None:
        self.run = run
        self._request = request
        self._needs_client = True

    def keep_run(self) -> None:
        """Record that the run has ended, or continues without its client."""
        self._needs_client = False

    async def read(self) -> ResponseObject:
        """Return the response as it is on record now."""
        view = Projection(self.run.session.name)
        encoder = self._make_encoder(view)
        for fact in await self.run.service.read_facts(self.run.session):
            view = apply_event(view, fact)
            for _ in encoder.encode(fact, view):
                pass
            if encoder.has_ended:
                break
        return encoder.read_response(view)

    async def follow(self, *, on_question: str) -> AsyncGenerator[list[ResponseEvent]]:
        """Yield what each event of the run means for its response, up to its end.

        Raises OpenAIError if the run waits for a person, unless `on_question` is `wait`.
        """
        await self.run.rewind()
        encoder = self._make_encoder(self.run.view)
        async with aclosing(self.run.follow()) as events:
            async for event in events:
                view = self.run.view
                yield list(encoder.encode(event, view))
                waits = on_question == "fail" and encoder.waits(view)
                if waits and await self.run.is_caught_up():
                    raise find_wait_error(encoder.read_details(view))

    async def finish(self, *, on_question: str) -> None:
        """Return when the run has ended. Raises what `follow` raises."""
        async with aclosing(self.follow(on_question=on_question)) as steps:
            async for _ in steps:
                pass

    def cancel_soon(self) -> None:
        """End a run whose client has gone away, unless it went because the service is stopping."""
        service = self.run.service
        if self._needs_client and service.is_ready:
            self._needs_client = False
            cancel = partial(self.run.cancel, "the client went away")
            service.background.start(f"cancel {self.run.session.name}", cancel)

    async def finish_with_client(self, *, on_question: str) -> None:
        """Do what `finish` does. If the client goes away meanwhile, the run is cancelled."""
        try:
            if await self._request.outlast(self.finish(on_question=on_question)):
                return
        except asyncio.CancelledError:
            self.cancel_soon()
            raise
        self.cancel_soon()
        raise OpenAIError(499, "client_gone", "The client went away.", "Ask again.")

    def _make_encoder(self, view: Projection) -> ResponseEncoder:
        link = question_linker(self.run.service, self._request)
        return ResponseEncoder(self.run.number, link, view)


class CancellingFrames(AsyncGenerator[bytes]):
    """Frames of a stream whose run is cancelled if they are closed before it has settled.

    A generator that was never begun does nothing when it is closed, and a client can be that fast.
    """

    def __init__(self, frames: AsyncGenerator[bytes], follower: ResponseFollower) -> None:
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
