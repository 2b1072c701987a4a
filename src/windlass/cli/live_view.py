"""A run as its own terminal shows it: the reply streams, calls are a line, results a few.

It says nothing that the person just did: a prompt they typed, an answer they gave.
"""

import time
from collections.abc import Callable, Iterable
from textwrap import dedent

from typing_extensions import override

from windlass.cli.markdown import MarkdownStream
from windlass.cli.renderer import (
    BAD,
    GOOD,
    QUIET,
    TEXT_STYLE,
    THINKING_STYLE,
    TROUBLE,
    EventRenderer,
    format_json_arguments,
)
from windlass.cli.screen import Screen
from windlass.cli.status import StatusLine
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    CallDelta,
    CallFinished,
    CallJudged,
    CallProgress,
    CallStarted,
    Event,
    Fact,
    NestedEvent,
    ReplyEnd,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepProposed,
    StreamStalled,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import TextPart, ToolResult
from windlass.core.verdicts import Ask
from windlass.project.settings import ThinkingMode

RESULT_LINES = 4
DIFF_LINES = 16


class LiveView(EventRenderer):
    """Shows the runs of one terminal, and keeps its status line up to date."""

    def __init__(
        self,
        screen: Screen,
        status: StatusLine,
        *,
        thinking: ThinkingMode = "show",
        with_text: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(screen, clock)
        self._status = status
        self._thinking_mode: ThinkingMode = thinking
        self._with_text = with_text
        self._markdown = MarkdownStream(screen) if screen.styled else None
        self._open_stream = self._shown_text = ""
        self._thinking_since: float | None = None
        self._last_failure = ""
        """What was last told of a failed attempt: it need not be told again."""
        self._page_started = False
        """Something stands on the page: what follows keeps a distance."""

    @override
    def __call__(self, event: Event) -> None:
        self._status(event)
        match event:
            case TextDelta(text):
                self._stream_text(text)
            case ThinkingDelta(text):
                self._stream_thinking(text)
            case (
                CallDelta()
                | UsageDelta()
                | ReplyEnd()
                | AttemptRetrying()
                | StreamStalled()
                | CallStarted()
            ):
                pass
            case CallProgress(text=text):
                self._status.set_note(text)
            case NestedEvent(agent=agent, event=StepProposed(reply)):
                for call in reply.calls:
                    told = f"{agent}: {call.name}({format_json_arguments(call.arguments)})"
                    self._show_line(self._screen.glyphs.progress, told, QUIET)
            case RunStarted() | RunSuspended() | CallJudged(verdict=Ask()):
                self.end_stream()
            case RunResumed(drift) if not drift:
                pass
            case RunEnded(outcome, reason):
                self.end_stream()
                if outcome not in ("completed", "cancelled") and reason not in (
                    "",
                    self._last_failure,
                ):
                    self._show_line(self._screen.glyphs.no, reason, BAD)
            case AttemptStarted(attempt=1):
                self.end_stream()
                self._shown_text = ""
            case AttemptFailed(fault):
                self._show_failure(fault.message, visible=event.visible)
            case CallFinished(call_id, result):
                self._show_result(call_id, result)
            case StepProposed(reply):
                self.end_stream()
                if reply.calls:
                    self._separate()
                super().__call__(event)
            case _:
                if not isinstance(event, AttemptStarted | AttemptDiscarded):
                    self.end_stream()
                super().__call__(event)

    def learn_calls(self, facts: Iterable[Fact]) -> None:
        """Learn the calls of a run that somebody else began to show."""
        for fact in facts:
            if isinstance(fact, StepProposed):
                self._calls |= {call.id: call for call in fact.reply.calls}
                self._status.learn_calls(fact)

    def end_stream(self) -> None:
        """End what is being said."""
        if self._thinking_since is not None and self._thinking_mode == "fold":
            silent_s = self._clock() - self._thinking_since
            self._show_line(self._screen.glyphs.progress, f"thought for {silent_s:.0f} s", QUIET)
        if self._open_stream == "text" and self._markdown is not None:
            self._markdown.end_reply()
        self._screen.end_line()
        self._open_stream, self._thinking_since = "", None

    def ensure_reply_shown(self, text: str) -> None:
        """See to it that the reply is on the page: a gate may have withheld it while it came."""
        if text and text not in self._shown_text:
            self._stream_text(text)
        self.end_stream()

    def _stream_text(self, text: str) -> None:
        if not self._with_text:
            return
        self._shown_text += text
        if self._open_stream != "text":
            self.end_stream()
            self._separate()
            self._open_stream = "text"
        if self._markdown is None:
            self._screen.stream_text(text, TEXT_STYLE)
        else:
            self._markdown.feed(text)

    def _stream_thinking(self, text: str) -> None:
        if self._thinking_mode == "hide" or not self._with_text:
            return
        if self._open_stream != "thinking":
            self.end_stream()
            self._separate()
            self._open_stream, self._thinking_since = "thinking", self._clock()
        if self._thinking_mode == "show":
            self._screen.stream_text(text, THINKING_STYLE)

    def _show_failure(self, told: str, *, visible: bool) -> None:
        """An attempt broke; whether it is made again is the footer's to say."""
        if visible and self._open_stream == "text":
            self._stream_text(self._screen.glyphs.cut)
        self.end_stream()
        self._last_failure = told
        self._screen.write_line(told, TROUBLE, mark=self._screen.glyphs.trouble)

    def _separate(self) -> None:
        if self._page_started:
            self._screen.write_line()
        self._page_started = True

    def _show_result(self, call_id: str, result: ToolResult) -> None:
        """What a call came to: its first lines; of an edit, what was changed."""
        self.end_stream()
        text = dedent(result.text.expandtabs(4))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        name = self._calls[call_id].name if call_id in self._calls else ""
        is_diff = name == "edit" and result.kind == "value"
        others = [part for part in result.content if not isinstance(part, TextPart)]
        if result.kind != "value":
            lines[:1] = [f"{result.kind.replace('_', ' ')}: {(lines or [''])[0]}"]
        if others:
            lines.append(f"+{len(others)} attachments")
        first = lines[: DIFF_LINES if is_diff else RESULT_LINES] or ["nothing"]
        style = QUIET if result.kind == "value" else TROUBLE
        named = f"{name or call_id}: " if call_id != self._last else ""
        self._screen.begin_line(self._screen.glyphs.result, style)
        self._screen.write_verbatim(self._screen.trim_to_width(named + first[0], 2), style)
        self._screen.end_line()
        for line in first[1:]:
            self._show_result_line(line, _diff_style(line) if is_diff else style)
        if len(lines) > len(first):
            self._show_result_line(
                f"{self._screen.glyphs.cut} +{len(lines) - len(first)} lines", QUIET
            )
        self._last = call_id

    def _show_result_line(self, text: str, style: str) -> None:
        """A line of a result, cut to the width, with its own spaces."""
        self._screen.write_verbatim("  " + self._screen.trim_to_width(text, 2), style)
        self._screen.end_line()


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return QUIET
    return {"+": GOOD, "-": BAD}.get(line[:1], QUIET)
