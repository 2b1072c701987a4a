"""Events in, lines out: how a run looks on a screen.

Text streams as it comes; a call, its verdict and its result are a line each. What a broken attempt
had said stays where it is, marked as cut: the next attempt says it anew.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import msgspec

from windlass.cli.screen import Screen
from windlass.core.events import (
    Allotted,
    AttemptDiscarded,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallDelta,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    Compacted,
    Event,
    FellBack,
    Heeded,
    Hydrated,
    Nested,
    NoteGiven,
    Recalled,
    ReplyEnd,
    ReplyJudged,
    Retrying,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    Stalled,
    Steered,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Result, Text, ToolCall
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Misfit, Modify

SAID, THOUGHT, CALLED, QUIET = "", "dim italic", "cyan", "dim"
GOOD, BAD, TROUBLE, PERSON = "green", "red", "yellow", "bold"


class Renderer:
    """Shows one session, event by event; a resumed run is shown by the renderer of the first."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._heard_at = clock()
        self._calls: dict[str, ToolCall] = {}
        self._last = ""
        """The call that the last line is about: it need not be named again."""
        self._troubled = False
        """A line about a broken attempt is open, until it is known what comes of it."""
        self._steps = 0

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._screen.stream(text, SAID)
            case ThinkingDelta(text):
                self._screen.stream(text, THOUGHT)
            case RunStarted() | RunResumed() | RunSuspended() | RunEnded():
                self._of_run(event)
            case AttemptStarted() | AttemptFailed() | AttemptDiscarded() | StepProposed():
                self._of_step(event)
            case CallJudged() | CallAnswered() | CallFinished() | CallLate() | CallProgress():
                self._of_call(event)
            case ReplyJudged(verdict):
                self._reply_judged(verdict)
            case NoteGiven() | Compacted() | Allotted() | FellBack() | Steered() | Hydrated():
                self._aside(event)
            case Heeded() | Recalled() | Nested():
                pass
            case CallStarted() | CallDelta() | UsageDelta() | ReplyEnd() | Retrying() | Stalled():
                pass
            case _:
                assert_never(event)
        if not isinstance(event, AttemptFailed | Stalled):
            self._heard_at = self._clock()

    def _aside(
        self, event: NoteGiven | Compacted | Allotted | FellBack | Steered | Hydrated
    ) -> None:
        """What the runtime does by itself, or is told meanwhile."""
        style = TROUBLE
        match event:
            case NoteGiven(text):
                told, style = f"note to the model: {text}", QUIET
            case Compacted(how=how):
                done = {"window": "left out", "summary": "summed up", "mask": "shortened"}[how]
                told = f"the conversation grew too long; its beginning is {done}"
            case Allotted(budget, _, dry):
                if not dry:
                    return
                told = f"the shared budget {budget} has no more for now"
            case FellBack(_, model, instead_of):
                told = f"{instead_of} keeps failing; asking {model}"
            case Steered(prompt):
                said = " ".join(part.text for part in prompt if isinstance(part, Text))
                told, style = f"said meanwhile: {said}", QUIET
            case Hydrated(calls):
                for call in calls:
                    self._call_proposed(call)
                return
        self._line(self._screen.glyphs.progress, told, style)

    def _of_run(self, event: RunStarted | RunResumed | RunSuspended | RunEnded) -> None:
        glyphs = self._screen.glyphs
        match event:
            case RunStarted(prompt=prompt):
                said = "".join(part.text for part in prompt if isinstance(part, Text))
                self._line(glyphs.person, said, PERSON)
                self._screen.line()
            case RunResumed(drift):
                changed = f" (changed since: {'; '.join(drift)})" if drift else ""
                self._line(glyphs.progress, f"goes on where the journal ends{changed}", QUIET)
                self._last = ""
            case RunSuspended():
                self._line(glyphs.trouble, "waits for your answer", TROUBLE)
            case RunEnded("completed"):
                self._screen.end()
            case RunEnded(outcome, reason):
                told = outcome.replace("_", " ") + (f": {reason}" if reason else "")
                self._line(glyphs.no, told, BAD)

    def _of_step(
        self, event: AttemptStarted | AttemptFailed | AttemptDiscarded | StepProposed
    ) -> None:
        match event:
            case AttemptFailed():
                self._attempt_failed(event)
            case AttemptDiscarded():
                self._ask_again()
            case AttemptStarted(attempt=attempt):
                if attempt > 1:
                    self._ask_again()
                elif self._steps:
                    self._screen.end()
                    self._screen.line()
            case StepProposed(reply):
                self._steps += 1
                for call in reply.calls:
                    self._call_proposed(call)

    def _attempt_failed(self, event: AttemptFailed) -> None:
        silent_s = self._clock() - self._heard_at
        told = f"silent for {round(silent_s, 1):g} s"
        if event.visible:
            self._screen.stream(self._screen.glyphs.cut)
        self._screen.open(self._screen.glyphs.trouble, TROUBLE)
        self._screen.stream(told if event.fault.kind == "stalled" else event.fault.message, TROUBLE)
        self._troubled = True

    def _ask_again(self) -> None:
        if self._troubled:
            self._screen.stream(", asking again", TROUBLE)
            self._screen.end()
        self._troubled = False

    def _call_proposed(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        self._line(self._screen.glyphs.call, f"{call.name}({shown(call.arguments)})", CALLED)
        self._last = call.id

    def _of_call(
        self, event: CallJudged | CallAnswered | CallFinished | CallLate | CallProgress
    ) -> None:
        glyphs, call_id = self._screen.glyphs, event.call_id
        match event:
            case CallJudged(verdict=verdict) | CallAnswered(verdict=verdict):
                self._call_judged(call_id, verdict)
            case CallFinished(result=result):
                self._about(call_id, glyphs.result, _summed_up(result), _style_of(result))
            case CallLate(result=result):
                self._about(call_id, glyphs.result, f"(too late) {_summed_up(result)}", QUIET)
            case CallProgress(text=text):
                self._about(call_id, glyphs.progress, text, QUIET)

    def _call_judged(self, call_id: str, verdict: Allow | Deny | Modify | Ask | Invalid) -> None:
        glyphs = self._screen.glyphs
        match verdict:
            case Allow():
                pass
            case Deny(reason):
                self._about(call_id, glyphs.denied, f"denied: {reason}", BAD)
            case Modify(arguments, reason):
                told = f"changed to ({pairs(arguments)}): {reason}"
                self._about(call_id, glyphs.trouble, told, TROUBLE)
            case Ask(question):
                self._about(call_id, glyphs.trouble, f"waits for you: {question}", TROUBLE)
            case Invalid(message=message):
                self._about(call_id, glyphs.denied, f"not a valid call: {message}", BAD)

    def _reply_judged(self, verdict: Allow | Deny | Misfit) -> None:
        match verdict:
            case Allow():
                pass
            case Deny(reason):
                self._line(self._screen.glyphs.denied, f"reply denied: {reason}", BAD)
            case Misfit(message):
                self._line(self._screen.glyphs.trouble, message, TROUBLE)

    def _about(self, call_id: str, mark: str, text: str, style: str) -> None:
        """A line about a call, which is named unless it is the call above."""
        known = self._calls.get(call_id)
        named = f"{known.name if known else call_id}: " if call_id != self._last else ""
        self._line(mark, named + text, style)
        self._last = call_id

    def _line(self, mark: str, text: str, style: str) -> None:
        """One line, cut to the width; only what a person said may take more."""
        whole = text if style is PERSON else self._screen.clip(text)
        self._screen.line(whole, style, mark=mark)
        self._last = ""


def shown(arguments: str) -> str:
    """A call's arguments as one would write them in Python."""
    try:
        return pairs(msgspec.json.decode(arguments or "{}", type=dict[str, Any]))
    except msgspec.MsgspecError:
        return arguments


def pairs(arguments: Mapping[str, object]) -> str:
    """Arguments as one would write them in Python."""
    return ", ".join(
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in arguments.items()
    )


def _summed_up(result: Result) -> str:
    """The first line of a result, and how many more there are."""
    lines = [line for line in result.text.splitlines() if line.strip()]
    others = len(result.content) - sum(isinstance(part, Text) for part in result.content)
    told = lines[0] if lines else ("" if others else "nothing")
    more = [f"+{len(lines) - 1} lines"] if len(lines) > 1 else []
    more += [f"+{others} attachments"] if others else []
    kind = "" if result.kind == "value" else f"{result.kind.replace('_', ' ')}: "
    return f"{kind}{told}" + (f"  ({', '.join(more)})" if more else "")


def _style_of(result: Result) -> str:
    return QUIET if result.kind == "value" else TROUBLE
