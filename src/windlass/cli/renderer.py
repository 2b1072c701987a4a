"""Events in, lines out: how a run looks on a screen.

Text streams as it arrives; a call, its verdict and its result are a line each. The text of a failed
attempt stays on the page, marked as cut off, and the next attempt writes it again below.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.cli.screen import (
    BAD,
    CALL_STYLE,
    PERSON,
    QUIET,
    TEXT_STYLE,
    THINKING_STYLE,
    TROUBLE,
    Screen,
)
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    BudgetAllotted,
    CallAnswered,
    CallDelta,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    ContextCompacted,
    Event,
    KnowledgeRecalled,
    LookupsPlanned,
    ModelFellBack,
    NestedEvent,
    NoteGiven,
    ReplyEnd,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
    StreamStalled,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import TextPart, ToolCall, ToolResult
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify, OutputMismatch

NO_OUTPUT = "(no output)"

RunEvent = RunStarted | RunResumed | RunSuspended | RunEnded
StepEvent = AttemptStarted | AttemptFailed | AttemptDiscarded | StepProposed
CallEvent = CallJudged | CallAnswered | CallFinished | CallLate | CallProgress
RuntimeEvent = (
    NoteGiven | ContextCompacted | BudgetAllotted | ModelFellBack | SteeringGiven | LookupsPlanned
)


class EventRenderer:
    """Shows the events of one session. Use the same renderer for a run and for its resumption.

    A subclass shows a kind of event in another way by overriding the `_show_…` method for it.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._last_event_at = clock()
        self._calls: dict[str, ToolCall] = {}
        self._last_call_id = ""
        """The call that the last line is about: the next line need not name it again."""
        self._failure_line_open = False
        """The line about a failed attempt is open until it is known whether it is retried."""
        self._steps_shown = 0

    def show_event(self, event: Event) -> None:  # noqa: C901 - an arm per event
        """Write what an event means to a person; some events mean nothing."""
        match event:
            case TextDelta(text):
                self._show_text(text)
            case ThinkingDelta(text):
                self._show_thinking(text)
            case RunStarted() | RunResumed() | RunSuspended() | RunEnded():
                self._show_run_event(event)
            case AttemptStarted() | AttemptFailed() | AttemptDiscarded() | StepProposed():
                self._show_step_event(event)
            case CallJudged() | CallAnswered() | CallFinished() | CallLate() | CallProgress():
                self._show_call_event(event)
            case ReplyJudged(verdict):
                self._show_reply_verdict(verdict)
            case (
                NoteGiven()
                | ContextCompacted()
                | BudgetAllotted()
                | ModelFellBack()
                | SteeringGiven()
                | LookupsPlanned()
            ):
                self._show_runtime_event(event)
            case KnowledgeRecalled(text):
                self._show_recalled_notes(text)
            case NestedEvent():
                self._show_nested_event(event)
            case SteeringTaken() | CallStarted() | CallDelta() | UsageDelta() | ReplyEnd():
                pass
            case AttemptRetrying() | StreamStalled():
                pass
            case _:
                # A fact without a case of its own is shown in its own words.
                self._show_line(self._screen.glyphs.progress, event.describe(), QUIET)
        # The silence before a failure is counted from the last sign of life.
        if not isinstance(event, AttemptFailed | StreamStalled):
            self._last_event_at = self._clock()

    def _show_text(self, text: str) -> None:
        self._screen.stream_text(text, TEXT_STYLE)

    def _show_thinking(self, text: str) -> None:
        self._screen.stream_text(text, THINKING_STYLE)

    def _show_recalled_notes(self, text: str) -> None:
        """Notes that were added to the prompt. Not shown here."""

    def _show_nested_event(self, event: NestedEvent) -> None:
        """An event of a sub-agent. Not shown here: its result is the result of a call."""

    def _show_runtime_event(self, event: RuntimeEvent) -> None:
        """Something that the runtime does by itself, or that a person adds while it runs."""
        mark = self._screen.glyphs.progress
        match event:
            case NoteGiven() | SteeringGiven():
                self._show_line(mark, event.describe(), QUIET)
            case ContextCompacted():
                self._show_line(mark, event.describe(), TROUBLE)
            case BudgetAllotted(dry=is_dry):
                if is_dry:
                    self._show_line(mark, event.describe(), TROUBLE)
            case ModelFellBack(_, model, instead_of):
                message = f"{instead_of} keeps failing; switching to {model}"
                self._show_line(mark, message, TROUBLE)
            case LookupsPlanned(calls):
                for call in calls:
                    self._show_proposed_call(call)

    def _show_run_event(self, event: RunEvent) -> None:
        glyphs = self._screen.glyphs
        match event:
            case RunStarted(prompt=prompt):
                text = "".join(part.text for part in prompt if isinstance(part, TextPart))
                self._show_line(glyphs.person, text, PERSON)
                self._screen.write_line()
            case RunResumed(drift):
                message = "resumed where the journal ends"
                if drift:
                    message += f" (changed since: {'; '.join(drift)})"
                self._show_line(glyphs.progress, message, QUIET)
            case RunSuspended():
                self._show_line(glyphs.trouble, "waiting for your answer", TROUBLE)
            case RunEnded("completed"):
                self._screen.end_line()
            case RunEnded(outcome, reason):
                message = outcome.replace("_", " ")
                if reason:
                    message += f": {reason}"
                self._show_line(glyphs.no, message, BAD)

    def _show_step_event(self, event: StepEvent) -> None:
        match event:
            case AttemptFailed():
                self._show_failed_attempt(event)
            case AttemptDiscarded():
                self._show_retry()
            case AttemptStarted(attempt=attempt):
                if attempt > 1:
                    self._show_retry()
                elif self._steps_shown:
                    self._screen.end_line()
                    self._screen.write_line()
            case StepProposed(reply):
                self._steps_shown += 1
                for call in reply.calls:
                    self._show_proposed_call(call)

    def _show_failed_attempt(self, event: AttemptFailed) -> None:
        message = event.fault.message
        if event.fault.kind == "stalled":
            silent_s = self._clock() - self._last_event_at
            message = f"no output for {round(silent_s, 1):g} s"
        if event.visible:
            self._screen.stream_text(self._screen.glyphs.cut)
        self._screen.begin_line(self._screen.glyphs.trouble, TROUBLE)
        self._screen.stream_text(message, TROUBLE)
        self._failure_line_open = True

    def _show_retry(self) -> None:
        if self._failure_line_open:
            self._screen.stream_text(", retrying", TROUBLE)
            self._screen.end_line()
        self._failure_line_open = False

    def _show_proposed_call(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        arguments = format_json_arguments(call.arguments)
        self._show_line(self._screen.glyphs.call, f"{call.name}({arguments})", CALL_STYLE)
        self._last_call_id = call.id

    def _show_call_event(self, event: CallEvent) -> None:
        glyphs = self._screen.glyphs
        call_id = event.call_id
        match event:
            case CallJudged(verdict=verdict) | CallAnswered(verdict=verdict):
                self._show_call_verdict(call_id, verdict)
            case CallFinished(result=result):
                summary = _summarize_result(result)
                self._show_call_line(call_id, glyphs.result, summary, result_style(result))
            case CallLate(result=result):
                summary = f"(too late) {_summarize_result(result)}"
                self._show_call_line(call_id, glyphs.result, summary, QUIET)
            case CallProgress(text=text):
                self._show_call_line(call_id, glyphs.progress, text, QUIET)

    def _show_call_verdict(
        self, call_id: str, verdict: Allow | Deny | Modify | Ask | InvalidCall
    ) -> None:
        glyphs = self._screen.glyphs
        match verdict:
            case Allow():
                pass
            case Deny(reason):
                self._show_call_line(call_id, glyphs.denied, f"denied: {reason}", BAD)
            case Modify(arguments, reason):
                message = f"changed to ({format_arguments(arguments)}): {reason}"
                self._show_call_line(call_id, glyphs.trouble, message, TROUBLE)
            case Ask(question):
                message = f"needs your answer: {question}"
                self._show_call_line(call_id, glyphs.trouble, message, TROUBLE)
            case InvalidCall(message=message):
                self._show_call_line(call_id, glyphs.denied, f"not a valid call: {message}", BAD)

    def _show_reply_verdict(self, verdict: Allow | Deny | OutputMismatch) -> None:
        match verdict:
            case Allow():
                pass
            case Deny(reason):
                self._show_line(self._screen.glyphs.denied, f"reply denied: {reason}", BAD)
            case OutputMismatch(message):
                self._show_line(self._screen.glyphs.trouble, message, TROUBLE)

    def _show_call_line(self, call_id: str, mark: str, text: str, style: str) -> None:
        """A line about a call, with the call's name unless the line above is about it too."""
        self._show_line(mark, self._call_label(call_id) + text, style)
        self._last_call_id = call_id

    def _call_label(self, call_id: str) -> str:
        if call_id == self._last_call_id:
            return ""
        if call_id in self._calls:
            return f"{self._calls[call_id].name}: "
        return f"{call_id}: "

    def _show_line(self, mark: str, text: str, style: str) -> None:
        """One line, cut to the width; only a person's words may take more lines."""
        shown = text if style is PERSON else self._screen.clip_to_line(text)
        self._screen.write_line(shown, style, mark=mark)
        self._last_call_id = ""


def format_json_arguments(arguments: str) -> str:
    """The arguments of a call, which are JSON, as keyword arguments in Python."""
    try:
        return format_arguments(msgspec.json.decode(arguments or "{}", type=dict[str, Any]))
    except msgspec.MsgspecError:
        return arguments


def format_arguments(arguments: Mapping[str, object]) -> str:
    """Arguments as keyword arguments in Python."""
    return ", ".join(
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in arguments.items()
    )


def _summarize_result(result: ToolResult) -> str:
    """The first line of a result, and how much more there is."""
    lines = [line for line in result.text.splitlines() if line.strip()]
    attachments = sum(not isinstance(part, TextPart) for part in result.content)
    more: list[str] = []
    if len(lines) > 1:
        more.append(f"+{len(lines) - 1} lines")
    if attachments:
        more.append(f"+{attachments} attachments")
    if not lines and not attachments:
        lines = [NO_OUTPUT]
    summary = result_prefix(result) + "".join(lines[:1])
    if more:
        summary += f"  ({', '.join(more)})"
    return summary


def result_prefix(result: ToolResult) -> str:
    """What went wrong with a call, to put before its text; empty for a plain value."""
    return "" if result.kind == "value" else f"{result.kind.replace('_', ' ')}: "


def result_style(result: ToolResult) -> str:
    return QUIET if result.kind == "value" else TROUBLE
