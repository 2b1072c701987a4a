"""The routes of AG-UI: one endpoint for each agent, as `HttpAgent` of its client wants it.

A request begins a run, answers its questions, or follows it again; the reply is its stream.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from windlass.agent.options import OnBusy
from windlass.core.errors import WindlassError
from windlass.core.events import CallAnswered, RunStarted
from windlass.core.messages import Ledger
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.core.verdicts import Deny, PersonAnswer
from windlass.server.access import Caller
from windlass.server.ag_ui import wire
from windlass.server.ag_ui.conversation import find_new_messages
from windlass.server.ag_ui.inputs import (
    NewPrompt,
    ResumeEntry,
    RunInput,
    read_earlier,
    read_prompt,
)
from windlass.server.ag_ui.translation import SessionTranslator, end_stream, find_interrupts
from windlass.server.ag_ui.wire import PROTOCOL_VERSION
from windlass.server.answers import QuestionClosed, read_answer
from windlass.server.client_run import ClientRun, find_known
from windlass.server.errors import ApiError, api_error_from
from windlass.server.messages import SSE_TYPE, HttpReply, HttpRequest, StreamReply
from windlass.server.routing import Routes
from windlass.server.served_agents import find_agent, list_shown_tools
from windlass.server.service import Service, StartRequest
from windlass.server.sse import STREAM_HEADERS

ABANDONED = "A person gave no answer and let the question go."
WARNING_EVENT = "windlass.warning"
ANSWERED_EVENT = "windlass.answered_elsewhere"


class ServiceProps(msgspec.Struct, frozen=True, rename="camel"):
    """What a client may say to the service beside the protocol, in `forwardedProps.windlass`."""

    on_busy: OnBusy = "refuse"


class ForwardedProps(msgspec.Struct, frozen=True):
    """The part of `forwardedProps` that is for the service."""

    windlass: ServiceProps = ServiceProps()


class AgUiRun:
    """What a request asked for, and the stream that answers it."""

    def __init__(
        self, service: Service, caller: Caller, run_input: RunInput, agent: str, trace: str
    ) -> None:
        self._service = service
        self._caller = caller
        self._input = run_input
        self._agent = agent
        self._trace = trace
        self._before = Ledger()
        self._sends_snapshot = False
        self._notices: list[wire.CustomEvent] = []

    async def begin(self) -> ClientRun:
        """Do what the client asks for, so that the stream only has to show it.

        Raises ApiError and WindlassError: then there is no stream.
        """
        session = await find_known(self._service, self._caller, self._input.thread_id)
        view = None if session is None else session.view
        new = find_new_messages(view, self._input.messages)
        prompt = read_prompt(self._input, new)
        self._warn(*prompt.warnings)
        if prompt.parts and not self._input.resume:
            return await self._start(view, prompt)
        if session is None or session.view.run is None:
            raise _nothing_to_show(self._input.thread_id)
        run = ClientRun(self._service, session, session.view.run.number)
        if not self._input.resume:
            self._sends_snapshot = True
            return run
        await self._resume(run, session.view.run, self._input.resume)
        if prompt.parts:
            self._caller.require("start")
            await self._service.steer(session, prompt.parts, key=prompt.key)
        return run

    async def _start(self, view: Projection | None, prompt: NewPrompt) -> ClientRun:
        warnings: list[str] = []
        earlier = () if view is not None else tuple(read_earlier(prompt.earlier, warnings))
        self._warn(*warnings)
        run = await ClientRun.start(
            self._service,
            self._caller,
            StartRequest(
                prompt=prompt.parts,
                agent=self._agent,
                session=self._input.thread_id,
                key=prompt.key,
                on_busy=self._read_props().on_busy,
                earlier=earlier,
                trace=self._trace,
            ),
        )
        is_new = run.view.run is None or run.number > run.view.run.number
        # A request that came again finds its run under way; what it had shown may be lost.
        self._sends_snapshot = not is_new or self._lacks_messages(run.view)
        return run

    def _read_props(self) -> ServiceProps:
        props = self._input.forwarded_props
        if not isinstance(props, dict):
            return ServiceProps()
        try:
            read = msgspec.convert(props, type=ForwardedProps).windlass
        except msgspec.ValidationError as error:
            raise ApiError(
                422,
                "invalid_request",
                f"forwardedProps does not fit: {error}.",
                "Leave it out, or correct it.",
            ) from None
        if read.on_busy == "queue":
            raise ApiError(
                422,
                "invalid_request",
                "forwardedProps.windlass: AG-UI cannot wait in a queue with its stream open.",
                "Send onBusy: steer or replace, or queue the prompt with POST /runs.",
            )
        return read

    async def _resume(
        self, run: ClientRun, before: RunView, entries: tuple[ResumeEntry, ...]
    ) -> None:
        """Give the answers. A late one is reported to the client, and the run continues."""
        self._before = before.ledger
        # All are read before the first one is given: a request counts as a whole or not at all.
        answers = {
            entry.interrupt_id: _read_entry(entry)
            for entry in entries
            if entry.interrupt_id != run.pause_id
        }
        for entry in entries:
            if entry.interrupt_id == run.pause_id:
                await run.end_pause(resume=entry.status != "cancelled")
                continue
            try:
                closed = await run.answer(entry.interrupt_id, answers[entry.interrupt_id])
            except ApiError as error:
                if error.status != 404:  # noqa: PLR2004 - not found
                    raise
                self._warn(f"The resume entry for {entry.interrupt_id} was ignored: {error}")
                continue
            if closed is not None:
                self._notices.append(_tell_closed(closed))
        self._sends_snapshot = self._lacks_messages(run.view)

    def _lacks_messages(self, view: Projection) -> bool:
        """Whether the conversation has messages that the client does not know."""
        known = {message.id for message in self._input.messages}
        snapshot = SessionTranslator(view, self._input.messages).snapshot()
        return any(message.id not in known for message in snapshot.messages)

    def _warn(self, *texts: str) -> None:
        self._notices += (wire.CustomEvent(WARNING_EVENT, {"message": text}) for text in texts)

    # The stream.

    async def stream(self, run: ClientRun) -> AsyncGenerator[bytes]:
        """Yield the frames of the run, up to its end or its next question."""
        started = wire.RunStartedEvent(
            self._input.thread_id, self._input.run_id, wire.PROTOCOL_VERSION
        )
        yield wire.encode_frame(started)
        for notice in self._notices:
            yield wire.encode_frame(notice)
        try:
            async with aclosing(self._translate_events(run)) as events:
                async for event in events:
                    yield wire.encode_frame(event)
        except (ApiError, WindlassError) as error:
            failed = api_error_from(error)
            yield wire.encode_frame(wire.RunErrorEvent(str(failed), failed.code))

    async def _translate_events(self, run: ClientRun) -> AsyncGenerator[wire.AgUiEvent]:
        translator = SessionTranslator(run.view, self._input.messages)
        if self._sends_snapshot:
            yield translator.snapshot()
        # An answer is followed by a fact, which shows how the run continues.
        if not run.has_answered and run.is_stopped:
            for made in self._end(run, translator):
                yield made
            return
        async with aclosing(run.follow()) as events:
            async for event in events:
                if isinstance(event, RunStarted):
                    # A run that this one replaces may have ended only now.
                    translator = SessionTranslator(run.view, self._input.messages)
                    continue
                for made in translator.translate(event, run.view):
                    yield made
                if isinstance(event, CallAnswered):
                    for told in _tell_other_answer(event, run):
                        yield told
                if run.stops_at(event):
                    for made in self._end(run, translator):
                        yield made
                    return

    def _end(self, run: ClientRun, translator: SessionTranslator) -> Iterator[wire.AgUiEvent]:
        """Yield the end of the stream: the run has ended, or waits for a person."""
        interrupts = find_interrupts(run)
        yield from translator.close(interrupts)
        shown = run.run or RunView(run.number)
        yield end_stream(run.view, shown, self._input, interrupts, self._before)


def _tell_other_answer(fact: CallAnswered, run: ClientRun) -> Iterator[wire.CustomEvent]:
    """Tell the client if another answer than its own was taken."""
    asked_id = f"{run.session.name}:{fact.call_id}:{fact.digest}"
    if run.has_given(asked_id) and fact.by != run.caller.author:
        answer = "denied" if isinstance(fact.verdict, Deny) else "allowed"
        yield _tell_closed(QuestionClosed(asked_id, answer, fact.by))


def _tell_closed(closed: QuestionClosed) -> wire.CustomEvent:
    return wire.CustomEvent(ANSWERED_EVENT, msgspec.to_builtins(closed))


def _read_entry(entry: ResumeEntry) -> PersonAnswer:
    if entry.status == "cancelled":
        return Deny(ABANDONED)
    return read_answer(entry.payload)


def _nothing_to_show(thread: str) -> ApiError:
    return ApiError(
        422,
        "nothing_to_do",
        f"The thread {thread!r} does not exist yet, and the input has no message of a user.",
        "End `messages` with what the user says.",
    )


ROUTES = Routes()


@ROUTES.add(
    "POST",
    "/ag-ui",
    role="watch",
    scope="caller",
    name="runAgUi",
    summary="Run the first agent over AG-UI: the reply is its stream of events.",
    body=RunInput,
    streams=True,
    content_types=(SSE_TYPE,),
    errors=("nothing_to_do", "invalid_answer"),
)
@ROUTES.add(
    "POST",
    "/ag-ui/{agent}",
    role="watch",
    scope="caller",
    name="runAgUiAgent",
    summary="Run an agent over AG-UI: the reply is its stream of events.",
    body=RunInput,
    streams=True,
    content_types=(SSE_TYPE,),
    errors=("nothing_to_do", "invalid_answer", "agent_not_found"),
)
async def run_agent(service: Service, request: HttpRequest) -> StreamReply:
    """Begin a run, answer its questions or show it again, and stream it."""
    run_input = await request.decode(RunInput)
    agent = request.params.get("agent", "")
    exchange = AgUiRun(service, request.caller, run_input, agent, request.trace)
    run = await exchange.begin()
    return StreamReply(exchange.stream(run), headers=STREAM_HEADERS)


@ROUTES.add(
    "GET", "/ag-ui/{agent}", role="watch", reply=dict[str, Any], errors=("agent_not_found",)
)
async def read_ag_ui_capabilities(service: Service, request: HttpRequest) -> HttpReply:
    """What an agent can do, as AG-UI describes it."""
    name = request.params["agent"]
    agent = find_agent(service.agents, name)
    tools = [
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in list_shown_tools(agent, service.parts_for(request.caller))
    ]
    capabilities: dict[str, Any] = {
        "identity": {"name": name, "type": "windlass"},
        "transport": {"streaming": True},
        "tools": {
            "supported": bool(tools),
            "items": tools,
            "parallelCalls": True,
            "clientProvided": False,
        },
        "state": {"snapshots": False, "deltas": False},
        "reasoning": {"supported": True, "streaming": True},
        "humanInTheLoop": {
            "supported": True,
            "approvals": True,
            "interrupts": True,
            "approveWithEdits": True,
        },
        "custom": {"protocolVersion": PROTOCOL_VERSION},
    }
    return HttpReply(body=capabilities)
