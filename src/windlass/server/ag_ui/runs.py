"""One request of AG-UI: begin a run, answer its questions, or see it again; then its stream."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec

from windlass.agent.options import OnBusy
from windlass.core.errors import WindlassError
from windlass.core.events import CallAnswered, Delta, Event, RunSuspended
from windlass.core.messages import Ledger
from windlass.core.projection.project import apply_event
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.core.verdicts import Deny, PersonAnswer
from windlass.server.access import Caller
from windlass.server.ag_ui import wire
from windlass.server.ag_ui.conversation import find_new_messages
from windlass.server.ag_ui.endings import end_stream, find_interrupts, pause_id
from windlass.server.ag_ui.inputs import (
    NewPrompt,
    ResumeEntry,
    RunInput,
    read_earlier,
    read_prompt,
)
from windlass.server.ag_ui.translation import SessionTranslator
from windlass.server.answers import QuestionClosed, give_answer, question_id, read_answer
from windlass.server.errors import ApiError, api_error_from
from windlass.server.service import Service, StartRequest
from windlass.server.session_directory import OwnedSession

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
        self._session: OwnedSession | None = None
        self._view = Projection()
        self._run = 0
        """The run whose events are sent."""
        self._before = Ledger()
        self._answered: frozenset[str] = frozenset()
        self._sends_snapshot = False
        self._notices: list[wire.CustomEvent] = []

    async def begin(self) -> None:
        """Do what the client asks for, so that the stream only has to show it.

        Raises ApiError and WindlassError: then there is no stream.
        """
        session = self._session = await self._find_thread()
        view = None if session is None else session.view
        new = find_new_messages(view, self._input.messages)
        prompt = read_prompt(self._input, new)
        self._warn(*prompt.warnings)
        if self._input.resume:
            if session is None or view is None:
                raise _nothing_to_show(self._input.thread_id)
            await self._resume(session, view, self._input.resume)
            if prompt.parts:
                self._caller.require("start")
                await self._service.steer(session, prompt.parts, key=prompt.key)
        elif prompt.parts:
            await self._start(view, prompt)
        elif view is None or view.run is None:
            raise _nothing_to_show(self._input.thread_id)
        else:
            self._view = view
            self._run = view.run.number
            self._sends_snapshot = True

    async def _find_thread(self) -> OwnedSession | None:
        try:
            return await self._service.find_session(self._caller, self._input.thread_id)
        except ApiError as error:
            if error.code != "session_not_found":
                raise
            return None

    async def _start(self, view: Projection | None, prompt: NewPrompt) -> None:
        self._caller.require("start")
        warnings: list[str] = []
        earlier = () if view is not None else tuple(read_earlier(prompt.earlier, warnings))
        self._warn(*warnings)
        handle = await self._service.start_run(
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
        self._session = await self._service.find_session(self._caller, handle.session)
        self._view = view or Projection(handle.session)
        self._run = handle.run
        is_new = self._view.run is None or handle.run > self._view.run.number
        # A request that came again finds its run under way; what it had shown may be lost.
        self._sends_snapshot = not is_new or self._lacks_messages()

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
        self, session: OwnedSession, view: Projection, entries: tuple[ResumeEntry, ...]
    ) -> None:
        """Give the answers. One that comes too late is told to the client, and the run goes on."""
        self._caller.require("answer")
        run = view.run
        self._view = view
        self._run = run.number if run is not None else 0
        self._before = run.ledger if run is not None else Ledger()
        paused = pause_id(session.name, self._run)
        # All are read before the first one is given: a request counts as a whole or not at all.
        answers = {
            entry.interrupt_id: _read_entry(entry)
            for entry in entries
            if entry.interrupt_id != paused
        }
        asked = frozenset(question_id(question) for question in view.questions)
        for entry in entries:
            if entry.interrupt_id == paused:
                await self._end_pause(session, entry)
                continue
            answer = answers[entry.interrupt_id]
            try:
                taken = await give_answer(self._service, self._caller, entry.interrupt_id, answer)
            except ApiError as error:
                if error.status != 404:  # noqa: PLR2004 - not found
                    raise
                self._warn(f"The resume entry for {entry.interrupt_id} was ignored: {error}")
                continue
            if isinstance(taken, QuestionClosed):
                self._tell_closed(taken)
                # It is decided, though the view may show it until a driver takes the answer.
                self._answered |= asked & {entry.interrupt_id}
            else:
                self._answered |= asked - taken
        self._sends_snapshot = self._lacks_messages()

    async def _end_pause(self, session: OwnedSession, entry: ResumeEntry) -> None:
        self._caller.require("start")
        self._answered |= {entry.interrupt_id}
        if entry.status == "cancelled":
            await self._service.cancel(session, run=self._run)
        else:
            await self._service.resume(session)

    def _lacks_messages(self) -> bool:
        """Whether the conversation has messages that the client does not know."""
        known = {message.id for message in self._input.messages}
        snapshot = SessionTranslator(self._view, self._input.messages).snapshot()
        return any(message.id not in known for message in snapshot.messages)

    def _warn(self, *texts: str) -> None:
        self._notices += (wire.CustomEvent(WARNING_EVENT, {"message": text}) for text in texts)

    def _tell_closed(self, closed: QuestionClosed) -> None:
        self._notices.append(wire.CustomEvent(ANSWERED_EVENT, msgspec.to_builtins(closed)))

    # The stream.

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the frames of the run, up to its end or its next question."""
        started = wire.RunStartedEvent(
            self._input.thread_id, self._input.run_id, wire.PROTOCOL_VERSION
        )
        yield wire.encode_frame(started)
        for notice in self._notices:
            yield wire.encode_frame(notice)
        try:
            async with aclosing(self._translate_events()) as events:
                async for event in events:
                    yield wire.encode_frame(event)
        except (ApiError, WindlassError) as error:
            failed = error if isinstance(error, ApiError) else api_error_from(error)
            yield wire.encode_frame(wire.RunErrorEvent(str(failed), failed.code))

    async def _translate_events(self) -> AsyncGenerator[wire.AgUiEvent]:
        translator = SessionTranslator(self._view, self._input.messages)
        if self._sends_snapshot:
            yield translator.snapshot()
        # An answer is followed by a fact: only then it shows how the run goes on.
        for event in self._end(translator) if not self._answered else ():
            yield event
            if isinstance(event, wire.RunFinishedEvent | wire.RunErrorEvent):
                return
        if self._session is None:
            return
        async with aclosing(self._service.watch(self._session, self._view.seq)) as events:
            async for event in events:
                if translator.view.run is None or translator.view.run.number < self._run:
                    # The run before it is still ending, because this one replaces it.
                    view = apply_event(translator.view, event)
                    translator = SessionTranslator(view, self._input.messages)
                    continue
                for made in translator.translate(event):
                    yield made
                for made in self._end_after(event, translator):
                    yield made
                    if isinstance(made, wire.RunFinishedEvent | wire.RunErrorEvent):
                        return

    def _end_after(self, event: Event, translator: SessionTranslator) -> Iterator[wire.AgUiEvent]:
        if isinstance(event, CallAnswered):
            yield from self._tell_other_answer(event, translator.view)
        if not isinstance(event, Delta) or isinstance(event, RunSuspended):
            yield from self._end(translator)

    def _tell_other_answer(
        self, fact: CallAnswered, view: Projection
    ) -> Iterator[wire.CustomEvent]:
        """Tell the client if another answer than its own was taken."""
        asked_id = f"{view.session}:{fact.call_id}:{fact.digest}"
        if asked_id in self._answered and fact.by != self._caller.author:
            answer = "denied" if isinstance(fact.verdict, Deny) else "allowed"
            closed = QuestionClosed(asked_id, answer, fact.by)
            yield wire.CustomEvent(ANSWERED_EVENT, msgspec.to_builtins(closed))

    def _end(self, translator: SessionTranslator) -> Iterator[wire.AgUiEvent]:
        """Yield the end of the stream, if the run has ended or waits for a person."""
        view = translator.view
        run = _find_run(view, self._run)
        if run is None:
            return
        interrupts = find_interrupts(view, self._answered) if run.is_open else ()
        if run.is_open and not interrupts:
            return
        yield from translator.close(interrupts)
        yield end_stream(view, run, self._input, interrupts, self._before)


def _find_run(view: Projection, number: int) -> RunView | None:
    if view.run is not None and view.run.number == number:
        return view.run
    return next((run for run in view.runs if run.number == number), None)


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
