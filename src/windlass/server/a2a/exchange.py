"""Messages to tasks: a new run, an answer or steering; then the task as it goes on."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from windlass.core.events import Delta, RunSuspended
from windlass.core.projection.project import apply_event
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection
from windlass.core.verdicts import Deny
from windlass.server.a2a.inputs import (
    looks_like_answer,
    read_answers,
    read_decision,
    read_prompt,
)
from windlass.server.a2a.streams import TaskTranslator
from windlass.server.a2a.tasks import build_task, find_run, split_task_id, task_state
from windlass.server.a2a.wire import (
    TERMINAL_STATES,
    A2aMessage,
    A2aTask,
    SendConfiguration,
    SendParams,
    StreamItem,
)
from windlass.server.access import Caller
from windlass.server.answers import (
    QuestionClosed,
    describe_closed,
    give_answer,
    last_calls,
    question_id,
)
from windlass.server.errors import ApiError
from windlass.server.service import Service, StartRequest
from windlass.server.session_directory import OwnedSession

OUTPUT_MODES = frozenset(("text/plain", "text/*", "*/*", "application/json"))


class TaskExchange:
    """One task, and what a client said to it just now."""

    def __init__(self, service: Service, caller: Caller, agent: str = "") -> None:
        self._service = service
        self._caller = caller
        self._agent = agent
        self._session: OwnedSession | None = None
        self.view = Projection()
        self.number = 0
        self._answered: frozenset[str] = frozenset()
        self._closed: QuestionClosed | None = None

    async def find_task(self, name: str) -> RunView:
        """Find a task by its id. Raises ApiError 404 if it is not the caller's."""
        context, number = split_task_id(name)
        session = await find_context(self._service, self._caller, context)
        run = find_run(session.view, number) if session is not None else None
        if session is None or run is None:
            raise task_not_found(name)
        self._session = session
        self.view = session.view
        self.number = number
        return run

    @property
    def session(self) -> OwnedSession:
        """The session of the task. Raises RuntimeError before one was found or begun."""
        if self._session is None:
            raise RuntimeError("the exchange has no task yet")
        return self._session

    async def send(self, params: SendParams, trace: str = "") -> None:
        """Take a message: it begins a task, or says something to one."""
        check_configuration(params.configuration or SendConfiguration())
        message = params.message
        if message.task_id:
            await self._continue_task(message)
        else:
            await self._start_task(message, trace)

    async def _start_task(self, message: A2aMessage, trace: str) -> None:
        self._caller.require("start")
        before = None
        if message.context_id:
            before = await find_context(self._service, self._caller, message.context_id)
        handle = await self._service.start_run(
            self._caller,
            StartRequest(
                prompt=read_prompt(message),
                agent=self._agent,
                session=message.context_id,
                # The same message never begins a second run.
                key=message.message_id,
                trace=trace,
            ),
        )
        self.view = before.view if before is not None else Projection(handle.session)
        self.number = handle.run
        self._session = await self._service.find_session(self._caller, handle.session)

    async def _continue_task(self, message: A2aMessage) -> None:
        run = await self.find_task(message.task_id)
        state = task_state(self.view, run)
        if state in TERMINAL_STATES:
            raise task_ended(message.task_id)
        if state == "TASK_STATE_INPUT_REQUIRED":
            self._caller.require("answer")
            await self._answer(message)
            return
        closed = self._find_late_answer(message)
        if closed is not None:
            self._closed = closed
            return
        self._caller.require("start")
        await self._service.steer(
            self.session, read_prompt(message), key=message.message_id, run=self.number
        )

    async def _answer(self, message: A2aMessage) -> None:
        """Give the answers. One that comes too late is told with the task."""
        questions = self.view.questions
        if not questions:
            await self._end_pause(message)
            return
        for asked, answer in list(read_answers(message, questions)):
            taken = await give_answer(self._service, self._caller, asked, answer)
            if isinstance(taken, QuestionClosed):
                self._closed = taken
            else:
                self._answered |= frozenset(map(question_id, questions)) - taken

    async def _end_pause(self, message: A2aMessage) -> None:
        self._caller.require("start")
        self._answered |= {self.view.session}
        if isinstance(read_decision(message), Deny):
            await self._service.cancel(self.session, run=self.number)
        else:
            await self._service.resume(self.session)

    def _find_late_answer(self, message: A2aMessage) -> QuestionClosed | None:
        """Return how the last question was answered, if that is what the message wanted to do."""
        if not looks_like_answer(message):
            return None
        for call in last_calls(self.view):
            if call.answer is not None:
                return describe_closed(call.id, call)
        return None

    # How the task goes on.

    async def wait(self) -> RunView:
        """Return the run once it has ended or waits for a person."""
        async with aclosing(self.follow()) as items:
            async for _ in items:
                pass
        return find_run(self.view, self.number) or RunView(self.number)

    async def wait_begun(self) -> RunView:
        """Return the run once it has begun."""
        async with aclosing(self.follow()) as items:
            await anext(items)
        return find_run(self.view, self.number) or RunView(self.number)

    async def follow(self, history_length: int | None = None) -> AsyncGenerator[StreamItem]:
        """Yield the task as it is, and then how it goes on, until it ends or asks."""
        translator = TaskTranslator(self.view, self.number)
        if translator.run is not None:
            yield self._open(translator.run, history_length)
            # An answer is followed by a fact: only then it shows how the run goes on.
            if not self._answered and self._is_over(translator.run):
                for item in translator.close(translator.run):
                    yield item
                return
        async with aclosing(self._service.watch(self.session, self.view.seq)) as events:
            async for event in events:
                if translator.run is None:
                    self.view = apply_event(self.view, event)
                    translator = TaskTranslator(self.view, self.number)
                    if translator.run is not None:
                        yield self._open(translator.run, history_length)
                    continue
                for item in translator.translate(event):
                    yield item
                self.view = translator.view
                is_news = not isinstance(event, Delta) or isinstance(event, RunSuspended)
                if is_news and self._is_over(translator.run):
                    for item in translator.close(translator.run):
                        yield item
                    return

    def _open(self, run: RunView, history_length: int | None) -> StreamItem:
        """Return the task as it is now: the first item of every stream."""
        return StreamItem(task=self.build_task(run, history_length))

    def build_task(self, run: RunView, history_length: int | None = None) -> A2aTask:
        """Return the task, with how a question was answered if the client came too late."""
        task = build_task(self.view, run, history_length)
        if self._closed is None:
            return task
        told = {"answeredElsewhere": msgspec.to_builtins(self._closed)}
        metadata = {"windlass": {**task.metadata.get("windlass", {}), **told}}
        return replace(task, metadata=metadata)

    def _is_over(self, run: RunView) -> bool:
        """Whether the stream ends here: the run has ended, or waits for what nobody has said."""
        if not run.is_open:
            return True
        if task_state(self.view, run) != "TASK_STATE_INPUT_REQUIRED":
            return False
        asked = frozenset(map(question_id, self.view.questions))
        return bool(asked - self._answered) or not asked


async def find_context(service: Service, caller: Caller, context: str) -> OwnedSession | None:
    """Return the session that a context names; None if the caller has none of that name."""
    try:
        return await service.find_session(caller, context)
    except ApiError as error:
        if error.code != "session_not_found":
            raise
        return None


def check_configuration(configuration: SendConfiguration) -> None:
    """Raise ApiError for what a client wants and the service does not have."""
    if configuration.task_push_notification_config:
        raise push_not_supported()
    modes = configuration.accepted_output_modes
    if modes and not OUTPUT_MODES & set(modes):
        raise ApiError(
            422,
            "content_not_supported",
            f"The agent answers with text, and the client accepts only {', '.join(modes)}.",
            "Accept text/plain.",
        )


def push_not_supported() -> ApiError:
    return ApiError(
        422,
        "push_not_supported",
        "Push notifications of A2A are not supported.",
        "Use SubscribeToTask, or a webhook of the service.",
    )


def task_not_found(name: str) -> ApiError:
    return ApiError(404, "task_not_found", f"There is no task {name!r} of yours.", "Use ListTasks.")


def task_ended(name: str) -> ApiError:
    return ApiError(
        409,
        "task_ended",
        f"The task {name!r} has ended.",
        "Read it with GetTask, or send a message with its contextId and no taskId to go on.",
    )
