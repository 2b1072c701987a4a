"""Messages to tasks: a new run, an answer or steering; then the task as it changes.

An agent is opaque to the agents that call it: its calls are reported by name and state, and only
its answer streams. The answer is one artifact; text that no longer counts is replaced.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from windlass.core.events import Event, TextDelta, ThinkingDelta
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import CallView, Projection
from windlass.core.verdicts import Deny
from windlass.server.a2a.inputs import (
    looks_like_answer,
    read_answers,
    read_decision,
    read_prompt,
)
from windlass.server.a2a.tasks import (
    agent_message,
    answer_artifact,
    build_status,
    build_task,
    format_time,
    split_task_id,
    task_id,
)
from windlass.server.a2a.wire import (
    A2aMessage,
    A2aPart,
    A2aTask,
    ArtifactUpdate,
    SendConfiguration,
    SendParams,
    StatusUpdate,
    StreamItem,
    TaskStatus,
)
from windlass.server.access import Caller
from windlass.server.answers import QuestionClosed, describe_closed, last_calls
from windlass.server.client_run import ClientRun, find_known
from windlass.server.errors import ApiError
from windlass.server.reply_following import (
    AttemptDropped,
    AttemptKey,
    ReplyFollower,
    ReplyReplaced,
    TextWritten,
)
from windlass.server.service import Service, StartRequest

OUTPUT_MODES = frozenset(("text/plain", "text/*", "*/*", "application/json"))


class TaskTranslator:
    """Translates the events of one run."""

    def __init__(self, run: ClientRun) -> None:
        """Begin after the view of the run, which the first item of the stream shows."""
        self._run = run
        self._task = task_id(run.view.session, run.number)
        self._replies = ReplyFollower(run.view)
        shown = run.run
        self._has_artifact = shown is not None and bool(shown.text or shown.partial)
        self._attempt = AttemptKey(0, 0, 0)
        """The attempt that the artifact is being written from."""
        self._call_states = {call.id: call.state for call in run.view.step_calls}

    def translate(self, event: Event) -> Iterator[StreamItem]:
        """Yield what the last event of the run means to the client."""
        for piece in self._replies.follow(event, self._run.view):
            match piece:
                case TextWritten(attempt, "text", text):
                    is_more = self._attempt == attempt and self._has_artifact
                    self._attempt = attempt
                    yield self._update_artifact(text, append=is_more)
                case ReplyReplaced(text):
                    yield self._update_artifact(text, append=False)
                case AttemptDropped(shown=True):
                    yield self._update_artifact("", append=False)
                case _:
                    pass
        if not isinstance(event, TextDelta | ThinkingDelta):
            yield from self._tell_calls()

    def close(self) -> Iterator[StreamItem]:
        """Yield the last items of the stream: the run has ended, or waits for a person."""
        run = self._run.run or RunView(self._run.number)
        if self._has_artifact and not run.is_open:
            artifact = answer_artifact("")
            update = ArtifactUpdate(
                self._task, self._run.view.session, artifact, append=True, last_chunk=True
            )
            yield StreamItem(artifact_update=update)
        yield self._update_status(build_status(self._run.view, run))

    def _update_artifact(self, text: str, *, append: bool) -> StreamItem:
        self._has_artifact = True
        session = self._run.view.session
        update = ArtifactUpdate(self._task, session, answer_artifact(text), append)
        return StreamItem(artifact_update=update)

    def _update_status(self, status: TaskStatus) -> StreamItem:
        return StreamItem(status_update=StatusUpdate(self._task, self._run.view.session, status))

    def _tell_calls(self) -> Iterator[StreamItem]:
        """Yield which calls have begun or come to an end."""
        for call in self._run.view.step_calls:
            before = self._call_states.get(call.id)
            self._call_states[call.id] = call.state
            if before != call.state and (call.state == "running" or not call.is_open):
                yield self._call_status(call)

    def _call_status(self, call: CallView) -> StreamItem:
        view = self._run.view
        parts = (
            A2aPart(text=f"{call.name}: {call.state}"),
            A2aPart(data={"call": {"id": call.id, "name": call.name, "state": call.state}}),
        )
        run = self._run.run or RunView(self._run.number)
        message = agent_message(view, run, f"call-{call.id}-{call.state}", *parts)
        status = TaskStatus(
            state="TASK_STATE_WORKING", message=message, timestamp=format_time(view.at)
        )
        return self._update_status(status)


class TaskExchange:
    """One task, and what a client said to it just now."""

    def __init__(self, run: ClientRun, closed: QuestionClosed | None = None) -> None:
        """Show a run as a task. `closed`: how the question was decided that the client answers."""
        self.run = run
        self._closed = closed

    async def wait(self) -> None:
        """Return once the run has ended or waits for a person."""
        async with aclosing(self.follow()) as items:
            async for _ in items:
                pass

    async def wait_begun(self) -> None:
        """Return once the run has begun."""
        async with aclosing(self.follow()) as items:
            await anext(items)

    async def follow(self, history_length: int | None = None) -> AsyncGenerator[StreamItem]:
        """Yield the task as it is, and then each change, until it ends or asks."""
        run = self.run
        translator: TaskTranslator | None = None
        if run.run is not None:
            yield StreamItem(task=self.build_task(history_length))
            translator = TaskTranslator(run)
            # An answer is followed by a fact, which shows how the run continues.
            if not run.has_answered and run.is_stopped:
                for item in translator.close():
                    yield item
                return
        async with aclosing(run.follow()) as events:
            async for event in events:
                if translator is None:
                    translator = TaskTranslator(run)
                    yield StreamItem(task=self.build_task(history_length))
                    continue
                for item in translator.translate(event):
                    yield item
                if run.stops_at(event):
                    for item in translator.close():
                        yield item
                    return

    def build_task(self, history_length: int | None = None) -> A2aTask:
        """Return the task, with how a question was answered if the client came too late."""
        run = self.run.run or RunView(self.run.number)
        task = build_task(self.run.view, run, history_length)
        if self._closed is None:
            return task
        told = {"answeredElsewhere": msgspec.to_builtins(self._closed)}
        metadata = {"windlass": {**task.metadata.get("windlass", {}), **told}}
        return replace(task, metadata=metadata)


async def find_task(service: Service, caller: Caller, name: str) -> ClientRun:
    """Return the run of a task by its id. Raises ApiError 404 if it is not the caller's."""
    context, number = split_task_id(name)
    session = await find_known(service, caller, context)
    run = ClientRun(service, session, number) if session is not None else None
    if run is None or run.run is None:
        raise task_not_found(name)
    return run


async def send_message(
    service: Service, caller: Caller, agent: str, params: SendParams, trace: str
) -> TaskExchange:
    """Take a message: it begins a task, or says something to one."""
    check_configuration(params.configuration or SendConfiguration())
    message = params.message
    if message.task_id:
        return await _continue_task(await find_task(service, caller, message.task_id), message)
    run = await ClientRun.start(
        service,
        caller,
        StartRequest(
            prompt=read_prompt(message),
            agent=agent,
            session=message.context_id,
            # The same message never begins a second run.
            key=message.message_id,
            trace=trace,
        ),
    )
    return TaskExchange(run)


async def _continue_task(run: ClientRun, message: A2aMessage) -> TaskExchange:
    if run.has_ended:
        raise task_ended(message.task_id)
    if run.waits:
        return TaskExchange(run, await _answer(run, message))
    closed = _find_late_answer(run.view, message)
    if closed is None:
        run.caller.require("start")
        await run.service.steer(
            run.session, read_prompt(message), key=message.message_id, run=run.number
        )
    return TaskExchange(run, closed)


async def _answer(run: ClientRun, message: A2aMessage) -> QuestionClosed | None:
    """Give the answers. Returns how a question was decided that was answered too late."""
    run.caller.require("answer")
    if not run.view.questions:
        await run.end_pause(resume=not isinstance(read_decision(message), Deny))
        return None
    closed: QuestionClosed | None = None
    for asked, answer in list(read_answers(message, run.view.questions)):
        closed = await run.answer(asked, answer) or closed
    return closed


def _find_late_answer(view: Projection, message: A2aMessage) -> QuestionClosed | None:
    """Return how the last question was answered, if that is what the message wanted to do."""
    if not looks_like_answer(message):
        return None
    for call in last_calls(view):
        if call.answer is not None:
            return describe_closed(call.id, call)
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
