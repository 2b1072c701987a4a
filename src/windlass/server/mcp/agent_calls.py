"""A tool call: start a run, follow it, and ask what it asks.

The law: the run is a task of the service. What ends here is the wait for it, and nothing else,
unless the client asks for the run to be cancelled.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import NoBackChannelError

from windlass.core.events import StepProposed
from windlass.core.projection.project import apply_event
from windlass.core.projection.runs import OpenQuestion
from windlass.core.projection.view import Projection
from windlass.logs import get_logger
from windlass.server.access import Caller
from windlass.server.answers import give_answer, question_id
from windlass.server.errors import ApiError
from windlass.server.mcp.agent_tools import AgentToolInput, make_result
from windlass.server.mcp.questions import is_too_long, make_form, read_form
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession
from windlass.server.start_request import StartRequest

_log = get_logger(__name__)
RequestContext = ServerRequestContext[Any, Any]


class RunPlace(NamedTuple):
    """A run: what a client needs to find it again."""

    session: str
    run: int

    def to_text(self) -> str:
        """Return the place as an opaque text."""
        return f"{self.run}:{self.session}"

    @classmethod
    def from_text(cls, text: str) -> "RunPlace":
        """Read a place. Raises ApiError 404 if it is not one."""
        number, _, session = text.partition(":")
        if not number.isdecimal() or not session:
            raise ApiError(
                404, "run_not_found", f"There is no run {text[:100]!r}.", "Call the tool again."
            )
        return cls(session, int(number))


class AgentCalls:
    """The tool calls of the clients of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def begin(
        self, caller: Caller, agent: str, task: AgentToolInput, key: str = ""
    ) -> RunPlace:
        """Start a run, or find the last one of a session if there is no prompt.

        The same `key` never begins a second run. Raises ApiError, and WindlassError as
        `Agent.start` does.
        """
        if task.prompt.strip():
            caller.require("start")
            request = StartRequest(prompt=task.prompt, agent=agent, session=task.session, key=key)
            handle = await self._service.start_run(caller, request)
            return RunPlace(handle.session, handle.run)
        caller.require("watch")
        view = (await self._service.find_session(caller, task.session)).view
        return RunPlace(view.session, view.run.number if view.run is not None else 0)

    async def read(self, caller: Caller, place: RunPlace) -> Projection:
        """Return the view of a run's session. Raises ApiError 404 if it is not the caller's."""
        return (await self.find(caller, place)).view

    async def find(self, caller: Caller, place: RunPlace) -> OwnedSession:
        """Return the session of a run. Raises ApiError 404 if it is not the caller's."""
        session = await self._service.find_session(caller, place.session)
        run = session.view.run
        # A place holds the full name. The same text as a short name is another session.
        if session.name != place.session or run is None or run.number < place.run:
            raise ApiError(
                404,
                "run_not_found",
                f"There is no run {place.run} in {place.session}.",
                "Call the tool again.",
            )
        return session

    async def follow(self, caller: Caller, place: RunPlace) -> AsyncGenerator[Projection]:
        """Yield the session after each event that matters, up to the end of the run."""
        view = Projection(place.session)
        questions: tuple[OpenQuestion, ...] = ()
        session = await self.find(caller, place)
        async with aclosing(self._service.watch(session)) as events:
            async for event in events:
                view = apply_event(view, event)
                if view.seq < session.view.seq:
                    continue
                ended = has_ended(view, place)
                if ended or isinstance(event, StepProposed) or view.questions != questions:
                    questions = view.questions
                    yield view
                if ended:
                    return

    async def answer(self, caller: Caller, responses: types.InputResponses) -> None:
        """Give the answers that a client collected. One that came too late changes nothing."""
        caller.require("answer")
        for asked, response in responses.items():
            reply = read_form(response) if isinstance(response, types.ElicitResult) else None
            if reply is not None:
                await give_answer(self._service, caller, asked, reply)

    async def wait(
        self, ctx: RequestContext, caller: Caller, place: RunPlace
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Wait for the end of a run, and have its questions answered by the client's user.

        Returns the result so far if the run waits for an answer that cannot be asked for here.
        """
        asked: set[str] = set()
        async with aclosing(self.follow(caller, place)) as views:
            async for view in views:
                if has_ended(view, place):
                    return make_result(view)
                await _report_progress(ctx, view)
                new = [one for one in view.questions if question_id(one) not in asked]
                if not new:
                    continue
                if not can_ask(ctx, caller) or any(map(is_too_long, new)):
                    return make_result(view)
                if not ctx.session.can_send_request:
                    return ask_in_result(view, place)
                asked.update(map(question_id, new))
                if not await self._elicit(ctx, caller, place, new):
                    return make_result(await self.read(caller, place))
        return make_result(await self.read(caller, place))

    async def _elicit(
        self, ctx: RequestContext, caller: Caller, place: RunPlace, questions: list[OpenQuestion]
    ) -> bool:
        """Ask the client's user; returns whether each question has an answer now.

        An answer that is given elsewhere meanwhile counts, and the form is taken back.
        """
        for question in questions:
            asking = asyncio.create_task(_ask_client(ctx, question))
            settled = asyncio.create_task(self._wait_until_closed(caller, place, question))
            try:
                await asyncio.wait({asking, settled}, return_when=asyncio.FIRST_COMPLETED)
                if settled.done():
                    continue
                result = asking.result()
            finally:
                for task in (asking, settled):
                    task.cancel()
                await asyncio.gather(asking, settled, return_exceptions=True)
            reply = read_form(result) if result is not None else None
            if reply is None:
                return False
            await give_answer(self._service, caller, question_id(question), reply)
        return True

    async def _wait_until_closed(
        self, caller: Caller, place: RunPlace, question: OpenQuestion
    ) -> None:
        """Return when a question is no longer open."""
        session = await self.find(caller, place)
        view = session.view
        wanted = question_id(question)
        events = self._service.watch(session, view.seq)
        async with aclosing(events):
            async for event in events:
                view = apply_event(view, event)
                if all(question_id(one) != wanted for one in view.questions):
                    return


def can_ask(ctx: RequestContext, caller: Caller) -> bool:
    """Whether the client's user may be asked: by a form, and on behalf of one who may answer."""
    capabilities = ctx.session.client_capabilities
    return (
        caller.has_role("answer")
        and capabilities is not None
        and capabilities.elicitation is not None
    )


def ask_in_result(view: Projection, place: RunPlace) -> types.InputRequiredResult:
    """Return the questions as the result: the client comes back with the answers."""
    return types.InputRequiredResult(
        input_requests=make_input_requests(view), request_state=place.to_text()
    )


def make_input_requests(view: Projection) -> types.InputRequests:
    """Return a form for each question that is open, by its id."""
    return {question_id(one): make_form(one) for one in view.questions if not is_too_long(one)}


async def _ask_client(ctx: RequestContext, question: OpenQuestion) -> types.ElicitResult | None:
    """Show a form to the client's user; None if the client cannot."""
    params = make_form(question).params
    if not isinstance(params, types.ElicitRequestFormParams):
        return None
    try:
        return await ctx.session.elicit_form(
            params.message, params.requested_schema, related_request_id=ctx.request_id
        )
    except (MCPError, NoBackChannelError) as error:
        _log.info("the client did not take a question: %s", error)
        return None


async def _report_progress(ctx: RequestContext, view: Projection) -> None:
    await ctx.session.report_progress(float(view.seq), message=describe_progress(view))


def describe_progress(view: Projection) -> str:
    """Return what a run is at, in a few words."""
    names = ", ".join(call.name for call in view.step_calls if call.is_open)
    return f"step {view.steps}{f': {names}' if names else ''}"


def has_ended(view: Projection, place: RunPlace) -> bool:
    """Return whether a run is over, in a view of its session."""
    run = view.run
    return run is not None and (
        run.number > place.run or (run.number == place.run and not run.is_open)
    )


class OpenToolCall(msgspec.Struct, frozen=True):
    """What is known of a request for as long as it may be cancelled."""

    caller: Caller
    place: RunPlace
