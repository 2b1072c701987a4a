"""A run as its own terminal shows it: the reply streams, calls are a line, results a few.

It says nothing that the person just did: a prompt they typed, an answer they gave.
"""

import time
from collections.abc import Callable, Iterable
from textwrap import dedent

from typing_extensions import override

from windlass.cli.markdown import Markdown
from windlass.cli.renderer import BAD, GOOD, QUIET, SAID, THOUGHT, TROUBLE, Renderer, shown
from windlass.cli.screen import Screen
from windlass.cli.status import Status
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptStarted,
    CallDelta,
    CallFinished,
    CallJudged,
    CallProgress,
    CallStarted,
    Event,
    Fact,
    Nested,
    ReplyEnd,
    Retrying,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    Stalled,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Result, Text
from windlass.core.verdicts import Ask
from windlass.project.settings import ThinkingMode

RESULT_LINES = 4
DIFF_LINES = 16


class Live(Renderer):
    """Shows the runs of one terminal, and keeps its status line up to date."""

    def __init__(
        self,
        screen: Screen,
        status: Status,
        *,
        thinking: ThinkingMode = "show",
        with_text: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(screen, clock)
        self._status = status
        self._thinking: ThinkingMode = thinking
        self._with_text = with_text
        self._markdown = Markdown(screen) if screen.styled else None
        self._speaking = self._said = ""
        self._thought_at: float | None = None
        self._trouble = ""
        """What was last told of a failed attempt: it need not be told again."""
        self._begun = False
        """Something stands on the page: what follows keeps a distance."""

    @override
    def __call__(self, event: Event) -> None:
        self._status(event)
        match event:
            case TextDelta(text):
                self._say(text)
            case ThinkingDelta(text):
                self._think(text)
            case CallDelta() | UsageDelta() | ReplyEnd() | Retrying() | Stalled() | CallStarted():
                pass
            case CallProgress(text=text):
                self._status.note(text)
            case Nested(agent=agent, event=StepProposed(reply)):
                for call in reply.calls:
                    told = f"{agent}: {call.name}({shown(call.arguments)})"
                    self._line(self._screen.glyphs.progress, told, QUIET)
            case RunStarted() | RunSuspended() | CallJudged(verdict=Ask()):
                self.finish()
            case RunResumed(drift) if not drift:
                pass
            case RunEnded(outcome, reason):
                self.finish()
                if outcome not in ("completed", "cancelled") and reason not in ("", self._trouble):
                    self._line(self._screen.glyphs.no, reason, BAD)
            case AttemptStarted(attempt=1):
                self.finish()
                self._said = ""
            case AttemptFailed(fault):
                self._failed(fault.message, visible=event.visible)
            case CallFinished(call_id, result):
                self._finished(call_id, result)
            case StepProposed(reply):
                self.finish()
                if reply.calls:
                    self._distance()
                super().__call__(event)
            case _:
                if not isinstance(event, AttemptStarted | AttemptDiscarded):
                    self.finish()
                super().__call__(event)

    def know(self, facts: Iterable[Fact]) -> None:
        """Learn the calls of a run that somebody else began to show."""
        for fact in facts:
            if isinstance(fact, StepProposed):
                self._calls |= {call.id: call for call in fact.reply.calls}
                self._status.know(fact)

    def finish(self) -> None:
        """End what is being said."""
        if self._thought_at is not None and self._thinking == "fold":
            silent_s = self._clock() - self._thought_at
            self._line(self._screen.glyphs.progress, f"thought for {silent_s:.0f} s", QUIET)
        if self._speaking == "text" and self._markdown is not None:
            self._markdown.end()
        self._screen.end()
        self._speaking, self._thought_at = "", None

    def conclude(self, text: str) -> None:
        """See to it that the reply is on the page: a gate may have withheld it while it came."""
        if text and text not in self._said:
            self._say(text)
        self.finish()

    def _say(self, text: str) -> None:
        if not self._with_text:
            return
        self._said += text
        if self._speaking != "text":
            self.finish()
            self._distance()
            self._speaking = "text"
        if self._markdown is None:
            self._screen.stream(text, SAID)
        else:
            self._markdown.feed(text)

    def _think(self, text: str) -> None:
        if self._thinking == "hide" or not self._with_text:
            return
        if self._speaking != "thinking":
            self.finish()
            self._distance()
            self._speaking, self._thought_at = "thinking", self._clock()
        if self._thinking == "show":
            self._screen.stream(text, THOUGHT)

    def _failed(self, told: str, *, visible: bool) -> None:
        """An attempt broke; whether it is made again is the footer's to say."""
        if visible and self._speaking == "text":
            self._say(self._screen.glyphs.cut)
        self.finish()
        self._trouble = told
        self._screen.line(told, TROUBLE, mark=self._screen.glyphs.trouble)

    def _distance(self) -> None:
        if self._begun:
            self._screen.line()
        self._begun = True

    def _finished(self, call_id: str, result: Result) -> None:
        """What a call came to: its first lines; of an edit, what was changed."""
        self.finish()
        text = dedent(result.text.expandtabs(4))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        name = self._calls[call_id].name if call_id in self._calls else ""
        is_diff = name == "edit" and result.kind == "value"
        others = [part for part in result.content if not isinstance(part, Text)]
        if result.kind != "value":
            lines[:1] = [f"{result.kind.replace('_', ' ')}: {(lines or [''])[0]}"]
        if others:
            lines.append(f"+{len(others)} attachments")
        first = lines[: DIFF_LINES if is_diff else RESULT_LINES] or ["nothing"]
        style = QUIET if result.kind == "value" else TROUBLE
        named = f"{name or call_id}: " if call_id != self._last else ""
        self._screen.open(self._screen.glyphs.result, style)
        self._screen.verbatim(self._screen.trim(named + first[0], 2), style)
        self._screen.end()
        for line in first[1:]:
            self._more(line, _diff_style(line) if is_diff else style)
        if len(lines) > len(first):
            self._more(f"{self._screen.glyphs.cut} +{len(lines) - len(first)} lines", QUIET)
        self._last = call_id

    def _more(self, text: str, style: str) -> None:
        """A line of a result, cut to the width, with its own spaces."""
        self._screen.verbatim("  " + self._screen.trim(text, 2), style)
        self._screen.end()


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return QUIET
    return {"+": GOOD, "-": BAD}.get(line[:1], QUIET)
