"""Events of a run in, items of an A2A stream out.

An agent is opaque to the agents that call it: its calls are told by name and state, and what
streams is its answer. The answer is one artifact; text that does not count any more is replaced.
"""

from collections.abc import Iterator

from windlass.core.events import Event, NestedEvent, TextDelta, ThinkingDelta
from windlass.core.projection.project import apply_event
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import CallView, Projection
from windlass.server.a2a.tasks import (
    agent_message,
    answer_artifact,
    build_status,
    find_run,
    format_time,
    task_id,
)
from windlass.server.a2a.wire import A2aPart, ArtifactUpdate, StatusUpdate, StreamItem, TaskStatus
from windlass.server.reply_following import ReplyFollower, ReplyReplaced, TextWritten


class TaskTranslator:
    """Translates the events of one run."""

    def __init__(self, view: Projection, number: int) -> None:
        """Begin after a view of the session, which the first item of the stream shows."""
        self.view = view
        self._number = number
        self._task = task_id(view.session, number)
        self._replies = ReplyFollower(view)
        self._has_artifact = bool(self.run and (self.run.text or self.run.partial))
        self._attempt = (0, 0)
        """The step and the attempt that the artifact is being written from."""
        self._call_states = {call.id: call.state for call in view.step_calls}

    @property
    def run(self) -> RunView | None:
        return find_run(self.view, self._number)

    def translate(self, event: Event) -> Iterator[StreamItem]:
        """Yield what an event means to the client."""
        self.view = apply_event(self.view, event)
        news = list(self._replies.follow_text(self.view))
        if not isinstance(event, TextDelta | ThinkingDelta | NestedEvent):
            news += self._replies.follow_replies(self.view)
        for piece in news:
            match piece:
                case TextWritten(step, attempt, "text", text):
                    is_more = self._attempt == (step, attempt) and self._has_artifact
                    self._attempt = (step, attempt)
                    yield self._update_artifact(text, append=is_more)
                case ReplyReplaced(text=text):
                    yield self._update_artifact(text, append=False)
                case _:
                    pass
        if not isinstance(event, TextDelta | ThinkingDelta):
            yield from self._tell_calls()

    def close(self, run: RunView) -> Iterator[StreamItem]:
        """Yield the last items of the stream: the run has ended, or waits for a person."""
        if self._has_artifact and not run.is_open:
            artifact = answer_artifact("")
            update = ArtifactUpdate(
                self._task, self.view.session, artifact, append=True, last_chunk=True
            )
            yield StreamItem(artifact_update=update)
        status = build_status(self.view, run)
        yield StreamItem(status_update=StatusUpdate(self._task, self.view.session, status))

    def _update_artifact(self, text: str, *, append: bool) -> StreamItem:
        self._has_artifact = True
        update = ArtifactUpdate(self._task, self.view.session, answer_artifact(text), append)
        return StreamItem(artifact_update=update)

    def _tell_calls(self) -> Iterator[StreamItem]:
        """Yield which calls have begun or come to an end."""
        for call in self.view.step_calls:
            before = self._call_states.get(call.id)
            self._call_states[call.id] = call.state
            if before != call.state and (call.state == "running" or not call.is_open):
                yield self._call_status(call)

    def _call_status(self, call: CallView) -> StreamItem:
        run = self.run or RunView(self._number)
        parts = (
            A2aPart(text=f"{call.name}: {call.state}"),
            A2aPart(data={"call": {"id": call.id, "name": call.name, "state": call.state}}),
        )
        message = agent_message(self.view, run, f"call-{call.id}-{call.state}", *parts)
        status = TaskStatus(
            state="TASK_STATE_WORKING", message=message, timestamp=format_time(self.view.at)
        )
        return StreamItem(status_update=StatusUpdate(self._task, self.view.session, status))
