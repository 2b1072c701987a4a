"""Events of a session in, events of AG-UI out, with the end: answer, question, cancel or error.

Invariant: what is sent follows from the projection after each event, compared with what was sent
before. So a client that comes late, or sees an attempt break off, ends up with the same messages.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from windlass.core.deltas import PlacedEvent
from windlass.core.events import Event, NestedEvent, RunEnded, TextDelta, ThinkingDelta
from windlass.core.messages import Ledger, ToolResult, Usage
from windlass.core.projection.project import apply_event
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import CallView, Projection, ReplyEntry
from windlass.core.question import Question
from windlass.server.ag_ui import wire
from windlass.server.ag_ui.conversation import (
    build_messages,
    encode_content,
    reply_id,
    result_id,
    shown_arguments,
    step_id,
    thinking_id,
)
from windlass.server.ag_ui.inputs import InputMessage, RunInput
from windlass.server.answers import ANSWER_SCHEMA, question_id
from windlass.server.client_run import ClientRun, describe_end
from windlass.server.reply_following import (
    AttemptDropped,
    ReplyFollower,
    ReplyReplaced,
    ReplySettled,
    TextWritten,
)


class SessionTranslator:
    """Translates the events of one session: of the run, or of a sub-agent that works for it."""

    def __init__(
        self, view: Projection, known: Sequence[InputMessage] = (), owner: str = ""
    ) -> None:
        """Begin after a view of the session: the client has that, or gets a snapshot.

        `known`: the messages that the client has. `owner`: the session, if it is a sub-agent's.
        """
        self.view = view
        self._known = known
        self._owner = owner
        self._prefix = f"{owner}:" if owner else ""
        self._replies = ReplyFollower(view)
        self._writer = _ReplyWriter(owner, self._prefix)
        self._step_name = ""
        replies = [entry for entry in view.entries if isinstance(entry, ReplyEntry)]
        calls = [call for entry in replies for call in entry.calls]
        self._announced = {call.id: True for call in calls}
        """The calls that were announced, and whether their arguments were sent."""
        self._results = {call.id for call in calls if call.result is not None}
        """The calls whose result was sent."""
        self._agents: dict[str, SessionTranslator] = {}

    def translate(self, event: Event, view: Projection) -> Iterator[wire.AgUiEvent]:
        """Yield what an event means to the client, given the view after it."""
        self.view = view
        yield from self._send_news(event)
        match event:
            case TextDelta() | ThinkingDelta():
                return
            case NestedEvent():
                yield from self._translate_nested(event)
            case _:
                yield from self._change_step()
                for entry in view.tail:
                    if isinstance(entry, ReplyEntry):
                        yield from self._show_calls(entry)

    def snapshot(self) -> wire.MessagesSnapshotEvent:
        """Return the conversation as a whole, without the reply that is being written."""
        return wire.MessagesSnapshotEvent(build_messages(self.view, self._known))

    def close(self, interrupts: Sequence[wire.AgUiInterrupt] = ()) -> Iterator[wire.AgUiEvent]:
        """Close everything that is open, so that the stream can end."""
        for session, agent in self._agents.items():
            yield from agent.close(interrupts)
            if interrupts:
                own = (each.id for each in interrupts if each.subagent_run_id == session)
                outcome = wire.SubagentOutcome("suspended", tuple(own))
                yield wire.SubagentFinishedEvent(session, outcome)
            else:
                text = "The run ended before its sub-agent did."
                yield wire.SubagentErrorEvent(session, text, "unfinished")
        self._agents.clear()
        yield from self._writer.close()
        for call in self.view.step_calls:
            yield from self._complete_arguments(call)
        if self._step_name:
            yield wire.StepFinishedEvent(self._step_name, subagent_run_id=self._owner)
            self._step_name = ""

    # Replies.

    def _send_news(self, event: Event) -> Iterator[wire.AgUiEvent]:
        for piece in self._replies.follow(event, self.view):
            match piece:
                case TextWritten(attempt, "thinking", text):
                    yield from self._writer.write_thinking(attempt.step, text)
                case TextWritten(attempt, _, text):
                    message = step_id(attempt.step)
                    if self._owner and attempt.number > 1:
                        # No snapshot takes back what a sub-agent showed, so its next attempt is
                        # its own message.
                        message = f"{message}.{attempt.number}"
                    yield from self._writer.write_text(message, text)
                case AttemptDropped(shown=False):
                    pass
                case ReplyReplaced() | AttemptDropped():
                    yield from self._writer.close()
                    if not self._owner:
                        yield self.snapshot()
                case ReplySettled():
                    yield from self._writer.close()

    # Calls.

    def _show_calls(self, entry: ReplyEntry) -> Iterator[wire.AgUiEvent]:
        parent = self._prefix + reply_id(entry)
        for call in entry.calls:
            if call.id not in self._announced:
                self._announced[call.id] = False
                yield wire.ToolCallStartEvent(
                    self._prefix + call.id, call.name, parent, subagent_run_id=self._owner
                )
        for call in entry.calls:
            if call.state != "proposed":
                yield from self._complete_arguments(call)
            if call.result is not None and call.id not in self._results:
                self._results.add(call.id)
                yield self._make_result(call, call.result)

    def _complete_arguments(self, call: CallView) -> Iterator[wire.AgUiEvent]:
        """Send the arguments once they are judged: then they are the ones that would run."""
        if self._announced.get(call.id, True):
            return
        self._announced[call.id] = True
        call_id = self._prefix + call.id
        arguments = shown_arguments(call)
        if arguments:
            yield wire.ToolCallArgsEvent(call_id, arguments, subagent_run_id=self._owner)
        yield wire.ToolCallEndEvent(call_id, subagent_run_id=self._owner)

    def _make_result(self, call: CallView, result: ToolResult) -> wire.ToolCallResultEvent:
        metadata: dict[str, Any] = {}
        if result.kind != "value":
            metadata = {"windlass": {"kind": result.kind}}
        return wire.ToolCallResultEvent(
            self._prefix + result_id(call.id),
            self._prefix + call.id,
            encode_content(result.content),
            "tool",
            metadata=metadata,
            subagent_run_id=self._owner,
        )

    # Steps and sub-agents.

    def _change_step(self) -> Iterator[wire.AgUiEvent]:
        """Open a step with its first attempt, and close it when the next one opens."""
        attempt = self.view.attempt
        if attempt is None or attempt.purpose != "main":
            return
        name = f"step-{attempt.step}"
        if name == self._step_name:
            return
        if self._step_name:
            yield wire.StepFinishedEvent(self._step_name, subagent_run_id=self._owner)
        self._step_name = name
        yield wire.StepStartedEvent(name, subagent_run_id=self._owner)

    def _translate_nested(self, event: NestedEvent) -> Iterator[wire.AgUiEvent]:
        """Translate what a sub-agent does; it is marked with the sub-agent's session."""
        if not isinstance(event.event, PlacedEvent):
            return
        session = event.session
        agent = self._agents.get(session)
        if agent is None:
            agent = SessionTranslator(Projection(session), owner=session)
            self._agents[session] = agent
            yield wire.SubagentStartedEvent(
                subagent_run_id=session,
                name=event.agent or session,
                parent_subagent_run_id=self._owner,
                parent_tool_call_id=self._prefix + event.call_id,
            )
        inner: Any = event.event
        view = apply_event(agent.view, inner)
        if view is not agent.view:
            yield from agent.translate(inner, view)
        if isinstance(inner, RunEnded):
            del self._agents[session]
            yield from agent.close()
            if inner.outcome == "completed":
                yield wire.SubagentFinishedEvent(session, wire.SubagentOutcome("success"))
            else:
                message = inner.reason or f"The sub-agent ended as {inner.outcome}."
                yield wire.SubagentErrorEvent(session, message, inner.outcome)


class _ReplyWriter:
    """Opens and closes the messages that a reply is sent as."""

    def __init__(self, owner: str, prefix: str) -> None:
        self._owner = owner
        self._prefix = prefix
        self._message = ""
        self._thinking = ""
        self._thoughts = (0, 0)
        """A step, and how many spans of thinking were sent for it, over all of its attempts."""

    def write_text(self, message: str, text: str) -> Iterator[wire.AgUiEvent]:
        yield from self._close_thinking()
        if not self._message:
            self._message = self._prefix + message
            yield wire.TextMessageStartEvent(
                self._message, "assistant", subagent_run_id=self._owner
            )
        yield wire.TextMessageContentEvent(self._message, text, subagent_run_id=self._owner)

    def write_thinking(self, step: int, text: str) -> Iterator[wire.AgUiEvent]:
        if not self._thinking:
            last_step, count = self._thoughts
            nth = count + 1 if step == last_step else 1
            self._thoughts = (step, nth)
            self._thinking = self._prefix + thinking_id(step, nth)
            yield wire.ReasoningStartEvent(self._thinking, subagent_run_id=self._owner)
            yield wire.ReasoningMessageStartEvent(
                self._thinking, "reasoning", subagent_run_id=self._owner
            )
        yield wire.ReasoningMessageContentEvent(self._thinking, text, subagent_run_id=self._owner)

    def close(self) -> Iterator[wire.AgUiEvent]:
        """Close what is open."""
        yield from self._close_thinking()
        if self._message:
            yield wire.TextMessageEndEvent(self._message, subagent_run_id=self._owner)
            self._message = ""

    def _close_thinking(self) -> Iterator[wire.AgUiEvent]:
        if self._thinking:
            yield wire.ReasoningMessageEndEvent(self._thinking, subagent_run_id=self._owner)
            yield wire.ReasoningEndEvent(self._thinking, subagent_run_id=self._owner)
            self._thinking = ""


PAUSE_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def find_interrupts(run: ClientRun) -> tuple[wire.AgUiInterrupt, ...]:
    """Return what a run waits for a person for, without what was answered just now."""
    waits = run.waits
    view = run.view
    if run.run is not None and run.pause_id in waits:
        return (make_pause_interrupt(run.pause_id, run.run),)
    asked = (make_interrupt(view, question) for question in view.questions)
    return tuple(interrupt for interrupt in asked if interrupt.id in waits)


def make_interrupt(view: Projection, question: Question) -> wire.AgUiInterrupt:
    """Return a question as the protocol asks it."""
    is_nested = question.session != view.session
    expires_at = ""
    if question.expires_at is not None:
        expires_at = datetime.fromtimestamp(question.expires_at, UTC).isoformat()
    return wire.AgUiInterrupt(
        id=question_id(question),
        reason="tool_call",
        message=question.question,
        tool_call_id=f"{question.session}:{question.call_id}" if is_nested else question.call_id,
        subagent_run_id=question.session if is_nested else "",
        response_schema=ANSWER_SCHEMA,
        expires_at=expires_at,
        metadata={
            "windlass": {
                "tool": question.tool,
                "arguments": question.arguments,
                "rule": question.rule,
                "agents": list(question.chain),
            }
        },
    )


def make_pause_interrupt(name: str, run: RunView) -> wire.AgUiInterrupt:
    """Return a pause as something that a person can end."""
    pause = run.pause
    because = f": {pause.reason}" if pause is not None and pause.reason else ""
    return wire.AgUiInterrupt(
        id=name,
        reason="windlass:paused",
        message=f"The run is paused{because}. Resolve this to go on, or cancel it to end the run.",
        response_schema=PAUSE_SCHEMA,
    )


def end_stream(
    view: Projection,
    run: RunView,
    run_input: RunInput,
    interrupts: tuple[wire.AgUiInterrupt, ...],
    before: Ledger,
) -> wire.AgUiEvent:
    """Return the event that closes the stream. `before`: what the run had cost when it began."""
    usage = tuple(count_usage(run.ledger, before))
    details: dict[str, Any] = {"session": view.session, "run": run.number}
    if run.outcome is not None:
        details["outcome"] = run.outcome
    if run.ledger.usd is not None:
        details["costUsd"] = str(run.ledger.usd)
    metadata = {"windlass": details}
    if run.outcome not in (None, "completed", "cancelled"):
        return wire.RunErrorEvent(describe_end(run), str(run.outcome), usage, metadata=metadata)
    outcome = wire.RunOutcome("success")
    if run.outcome == "cancelled":
        outcome = wire.RunOutcome("cancelled")
    elif interrupts:
        outcome = wire.RunOutcome("interrupt", interrupts)
    return wire.RunFinishedEvent(
        thread_id=run_input.thread_id,
        run_id=run_input.run_id,
        result=run.text if run.outcome == "completed" else None,
        outcome=outcome,
        usage=usage,
        metadata=metadata,
    )


def count_usage(ledger: Ledger, before: Ledger) -> Iterator[wire.TokenUsage]:
    """Yield the tokens of each model that were used since an earlier moment."""
    earlier = _sum_by_model(before)
    for model, usage in _sum_by_model(ledger).items():
        old = earlier.get(model, Usage())
        if usage.total == old.total:
            continue
        provider, _, name = model.rpartition(":")
        yield wire.TokenUsage(
            provider=provider,
            model=name,
            input_tokens=usage.input - old.input,
            output_tokens=usage.output - old.output,
            total_tokens=usage.total - old.total,
            reasoning_tokens=usage.reasoning - old.reasoning,
            cached_input_tokens=usage.cache_read - old.cache_read,
            cache_write_input_tokens=usage.cache_write - old.cache_write,
        )


def _sum_by_model(ledger: Ledger) -> dict[str, Usage]:
    sums: dict[str, Usage] = {}
    for charge in ledger.charges:
        if charge.usage is not None:
            sums[charge.model] = sums.get(charge.model, Usage()) + charge.usage
    return sums
