"""Events in, lines out: how a run looks on a screen.

Text streams as it comes; a call, its verdict and its result are a line each. What a broken attempt
had said stays where it is, marked as cut: the next attempt says it anew.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.cli.screen import Screen
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

TEXT_STYLE, THINKING_STYLE, CALL_STYLE, QUIET = "", "dim italic", "cyan", "dim"
GOOD, BAD, TROUBLE, PERSON = "green", "red", "yellow", "bold"


class EventRenderer:
    """Shows one session, event by event; a resumed run is shown by the renderer of the first."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._last_event_at = clock()
        self._calls: dict[str, ToolCall] = {}
        self._last_call_id = ""
        """The call that the last line is about: it need not be named again."""
        self._failure_line_open = False
        """A line about a broken attempt is open, until it is known what comes of it."""
        self._steps_shown = 0

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._screen.stream_text(text, TEXT_STYLE)
            case ThinkingDelta(text):
                self._screen.stream_text(text, THINKING_STYLE)
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
            case SteeringTaken() | KnowledgeRecalled() | NestedEvent():
                pass
            case (
                CallStarted()
                | CallDelta()
                | UsageDelta()
                | ReplyEnd()
                | AttemptRetrying()
                | StreamStalled()
            ):
                pass
            case _:
                # A fact that has no arm of its own is shown in its own words.
                self._show_line(self._screen.glyphs.progress, event.describe(), QUIET)
        if not isinstance(event, AttemptFailed | StreamStalled):
            self._last_event_at = self._clock()

    def _show_runtime_event(
        self,
        event: NoteGiven
        | ContextCompacted
        | BudgetAllotted
        | ModelFellBack
        | SteeringGiven
        | LookupsPlanned,
    ) -> None:
        """What the runtime does by itself, or is told meanwhile."""
        style = TROUBLE
        match event:
            case NoteGiven(text):
                told, style = f"note to the model: {text}", QUIET
            case ContextCompacted(how=how):
                done = {"window": "left out", "summary": "summed up", "mask": "shortened"}[how]
                told = f"the conversation grew too long; its beginning is {done}"
            case BudgetAllotted(budget, _, dry):
                if not dry:
                    return
                told = f"the shared budget {budget} has no more for now"
            case ModelFellBack(_, model, instead_of):
                told = f"{instead_of} keeps failing; asking {model}"
            case SteeringGiven(prompt):
                said = " ".join(part.text for part in prompt if isinstance(part, TextPart))
                told, style = f"said meanwhile: {said}", QUIET
            case LookupsPlanned(calls):
                for call in calls:
                    self._show_proposed_call(call)
                return
        self._show_line(self._screen.glyphs.progress, told, style)

    def _show_run_event(self, event: RunStarted | RunResumed | RunSuspended | RunEnded) -> None:
        glyphs = self._screen.glyphs
        match event:
            case RunStarted(prompt=prompt):
                said = "".join(part.text for part in prompt if isinstance(part, TextPart))
                self._show_line(glyphs.person, said, PERSON)
                self._screen.write_line()
            case RunResumed(drift):
                changed = f" (changed since: {'; '.join(drift)})" if drift else ""
                self._show_line(glyphs.progress, f"goes on where the journal ends{changed}", QUIET)
                self._last_call_id = ""
            case RunSuspended():
                self._show_line(glyphs.trouble, "waits for your answer", TROUBLE)
            case RunEnded("completed"):
                self._screen.end_line()
            case RunEnded(outcome, reason):
                told = outcome.replace("_", " ") + (f": {reason}" if reason else "")
                self._show_line(glyphs.no, told, BAD)

    def _show_step_event(
        self, event: AttemptStarted | AttemptFailed | AttemptDiscarded | StepProposed
    ) -> None:
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
        silent_s = self._clock() - self._last_event_at
        told = f"silent for {round(silent_s, 1):g} s"
        if event.visible:
            self._screen.stream_text(self._screen.glyphs.cut)
        self._screen.begin_line(self._screen.glyphs.trouble, TROUBLE)
        self._screen.stream_text(
            told if event.fault.kind == "stalled" else event.fault.message, TROUBLE
        )
        self._failure_line_open = True

    def _show_retry(self) -> None:
        if self._failure_line_open:
            self._screen.stream_text(", asking again", TROUBLE)
            self._screen.end_line()
        self._failure_line_open = False

    def _show_proposed_call(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        self._show_line(
            self._screen.glyphs.call,
            f"{call.name}({format_json_arguments(call.arguments)})",
            CALL_STYLE,
        )
        self._last_call_id = call.id

    def _show_call_event(
        self, event: CallJudged | CallAnswered | CallFinished | CallLate | CallProgress
    ) -> None:
        glyphs, call_id = self._screen.glyphs, event.call_id
        match event:
            case CallJudged(verdict=verdict) | CallAnswered(verdict=verdict):
                self._show_call_verdict(call_id, verdict)
            case CallFinished(result=result):
                self._show_call_line(
                    call_id, glyphs.result, _summarize_result(result), _result_style(result)
                )
            case CallLate(result=result):
                self._show_call_line(
                    call_id, glyphs.result, f"(too late) {_summarize_result(result)}", QUIET
                )
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
                told = f"changed to ({format_arguments(arguments)}): {reason}"
                self._show_call_line(call_id, glyphs.trouble, told, TROUBLE)
            case Ask(question):
                self._show_call_line(call_id, glyphs.trouble, f"waits for you: {question}", TROUBLE)
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
        """A line about a call, which is named unless it is the call above."""
        known = self._calls.get(call_id)
        named = f"{known.name if known else call_id}: " if call_id != self._last_call_id else ""
        self._show_line(mark, named + text, style)
        self._last_call_id = call_id

    def _show_line(self, mark: str, text: str, style: str) -> None:
        """One line, cut to the width; only what a person said may take more."""
        whole = text if style is PERSON else self._screen.clip_to_line(text)
        self._screen.write_line(whole, style, mark=mark)
        self._last_call_id = ""


def format_json_arguments(arguments: str) -> str:
    """A call's arguments as one would write them in Python."""
    try:
        return format_arguments(msgspec.json.decode(arguments or "{}", type=dict[str, Any]))
    except msgspec.MsgspecError:
        return arguments


def format_arguments(arguments: Mapping[str, object]) -> str:
    """Arguments as one would write them in Python."""
    return ", ".join(
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in arguments.items()
    )


def _summarize_result(result: ToolResult) -> str:
    """The first line of a result, and how many more there are."""
    lines = [line for line in result.text.splitlines() if line.strip()]
    others = len(result.content) - sum(isinstance(part, TextPart) for part in result.content)
    told = lines[0] if lines else ("" if others else "nothing")
    more = [f"+{len(lines) - 1} lines"] if len(lines) > 1 else []
    more += [f"+{others} attachments"] if others else []
    kind = "" if result.kind == "value" else f"{result.kind.replace('_', ' ')}: "
    return f"{kind}{told}" + (f"  ({', '.join(more)})" if more else "")


def _result_style(result: ToolResult) -> str:
    return QUIET if result.kind == "value" else TROUBLE
