"""A run as its own terminal shows it: the reply streams, a call is a line, a result a few lines.

What the person just did is not repeated: the prompt they typed, the answer they gave.
"""

import time
from collections.abc import Callable, Iterable
from textwrap import dedent

from typing_extensions import override

from windlass.cli.markdown.stream import MarkdownStream
from windlass.cli.renderer import (
    NO_OUTPUT,
    CallVerdict,
    EventRenderer,
    fix_plural,
    format_json_arguments,
    result_prefix,
    result_style,
)
from windlass.cli.screen import (
    BAD,
    GOOD,
    PERSON,
    QUIET,
    TEXT_STYLE,
    THINKING_STYLE,
    TROUBLE,
    Screen,
)
from windlass.cli.status import StatusLine
from windlass.cli.wrapping import write_wrapped
from windlass.core.events import (
    AttemptRetrying,
    AttemptStarted,
    Event,
    Fact,
    RunEnded,
    RunResumed,
)
from windlass.core.messages import TextPart, ToolCall, ToolResult
from windlass.core.projection.entries import FailureEntry, NoticeFact, PromptEntry, SteeringEntry
from windlass.core.projection.project import project_events
from windlass.core.projection.view import CallView, NestedView, Projection, ReplyEntry
from windlass.core.verdicts import Ask, Deny, InvalidCall
from windlass.environ import find_login_name
from windlass.project.settings import ThinkingMode
from windlass.runtime.judging import HOPELESS_RULE

RESULT_LINES = 4
DIFF_LINES = 16
ERROR_LINES_MAX = 60


class LiveView(EventRenderer):
    """Shows the runs of one terminal, and keeps its status line up to date."""

    def __init__(
        self,
        screen: Screen,
        status: StatusLine,
        *,
        thinking: ThinkingMode = "show",
        with_text: bool = True,
        has_shown_diff: Callable[[str], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(screen, clock)
        self._status = status
        self._thinking_mode: ThinkingMode = thinking
        self._with_text = with_text
        self._has_shown_diff = has_shown_diff
        """Whether the question about a call has shown what it changes."""
        self._markdown = MarkdownStream(screen) if screen.styled else None
        self._open_stream = ""
        """What is being streamed: `text`, `thinking`, or nothing."""
        self._shown_text = ""
        self._thinking_since: float | None = None
        self._last_failure = ""
        """The last failure that was shown: the end of the run need not repeat it."""
        self._person = find_login_name()
        self._steering: list[SteeringEntry] = []
        """What was said to the run while the model was writing, to be shown after it."""
        self.last_view = Projection()
        """The session of the last run, as it was shown at the end of it."""
        self._page_started = False
        """Note that something is on the page: a blank line separates what follows."""

    @override
    def show_event(self, event: Event) -> None:
        super().show_event(event)
        if isinstance(event, AttemptRetrying):
            self._status.start_retry(event.wait_s)

    @override
    def show_view(self, view: Projection) -> None:
        self._status.follow(view)
        super().show_view(view)

    @override
    def show_suspension(self) -> None:
        """Not shown here: the commands that answer are shown instead."""
        self.end_stream()

    def learn_calls(self, facts: Iterable[Fact]) -> None:
        """Learn what happened in a session that another process began to show."""
        self._view = project_events(facts)
        self._status.start_from(self._view)
        for entry in self._view.entries:
            if isinstance(entry, ReplyEntry):
                self._call_names |= {call.id: call.name for call in entry.calls}

    def end_run(self) -> None:
        """Forget the session: the next run may be one of another session."""
        self.end_stream()
        self.last_view = self._view
        self._view = Projection()

    def end_stream(self) -> None:
        """End the text or the thinking that is being streamed."""
        if self._thinking_since is not None and self._thinking_mode == "fold":
            seconds = self._clock() - self._thinking_since
            super()._show_line(self._screen.glyphs.progress, f"thought for {seconds:.0f} s", QUIET)
        if self._open_stream == "text" and self._markdown is not None:
            self._markdown.end_reply()
        self._screen.end_line()
        self._open_stream = ""
        self._thinking_since = None
        self._show_held_steering()

    def ensure_reply_shown(self, text: str) -> None:
        """Show the reply if it has not streamed: a gate may have held it back to judge it."""
        if text and text not in self._shown_text:
            self._show_text(text)
        self.end_stream()

    @override
    def _show_text(self, text: str) -> None:
        if not self._with_text:
            return
        self._shown_text += text
        self._begin_stream("text")
        if self._markdown is None:
            self._screen.stream_text(text, TEXT_STYLE)
        else:
            self._markdown.feed(text)

    @override
    def _show_thinking(self, text: str) -> None:
        if self._thinking_mode == "hide" or not self._with_text:
            return
        if self._begin_stream("thinking"):
            self._thinking_since = self._clock()
        if self._thinking_mode == "show":
            self._screen.stream_text(text, THINKING_STYLE)

    def _begin_stream(self, kind: str) -> bool:
        """Whether a new stream was begun; False if one of this kind is open already."""
        if self._open_stream == kind:
            return False
        self.end_stream()
        self._separate()
        self._open_stream = kind
        return True

    @override
    def _show_prompt(self, prompt: PromptEntry) -> None:
        self.end_stream()

    @override
    def _show_steering(self, entry: SteeringEntry) -> None:
        """What was said to the run; not in the middle of a sentence of the model."""
        self._steering.append(entry)
        if not self._open_stream:
            self._show_held_steering()

    def _show_held_steering(self) -> None:
        entries = self._steering
        self._steering = []
        for entry in entries:
            text = entry.text if entry.by in ("", self._person) else f"{entry.by}: {entry.text}"
            self._screen.write_line(text, PERSON, mark=self._screen.glyphs.person)

    @property
    def unheard_texts(self) -> list[str]:
        """What was said to the run, and is not part of its conversation yet."""
        return [entry.text for entry in self._view.pending]

    @override
    def _show_notice(self, fact: NoticeFact) -> None:
        match fact:
            case RunResumed(drift):
                self.end_stream()
                if drift:
                    super()._show_notice(fact)
            case RunEnded(outcome, reason):
                self.end_stream()
                is_news = reason not in ("", self._last_failure)
                if is_news and outcome not in ("completed", "cancelled"):
                    self._show_line(self._screen.glyphs.no, fix_plural(reason), BAD)
            case _:
                super()._show_notice(fact)

    @override
    def _show_attempt(self, attempt: AttemptStarted) -> None:
        # The status line shows retries.
        if attempt.attempt == 1:
            self.end_stream()
            self._shown_text = ""

    @override
    def _show_reply(self, reply: ReplyEntry) -> None:
        self._show_rest(reply)
        self.end_stream()
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        if calls and reply.kind == "reply":
            self._separate()
        for call in calls:
            self._show_proposed_call(call)

    @override
    def _show_proposed_call(self, call: ToolCall) -> None:
        if not call.name.startswith("undo_"):
            super()._show_proposed_call(call)
            return
        # Its arguments are those of the call that is undone, and would read as if made again.
        self._call_names[call.id] = call.name
        self._last_call_id = ""

    @override
    def _show_progress(self, call: CallView) -> None:
        self._status.set_note(call.progress)

    @override
    def _show_call_verdict(self, call_id: str, verdict: CallVerdict) -> None:
        match verdict:
            case Ask():
                self.end_stream()  # The question itself is shown by the question prompt.
            case Deny(reason, rule):
                word = "refused" if rule == HOPELESS_RULE else "denied"
                self._show_whole_verdict(call_id, f"{word}: {reason}")
            case InvalidCall(message=message):
                self._show_whole_verdict(call_id, f"not a valid call: {message}")
            case _:
                super()._show_call_verdict(call_id, verdict)

    def _show_whole_verdict(self, call_id: str, text: str) -> None:
        """Show in full why a call did not run: the person who corrects it needs every word."""
        self.end_stream()
        text = self._call_label(call_id) + text
        self._screen.write_line(text, BAD, mark=self._screen.glyphs.denied)
        self._last_call_id = call_id

    @override
    def _show_nested(self, before: NestedView | None, nested: NestedView) -> None:
        seen = len(before.projection.entries) if before is not None else 0
        for entry in nested.projection.entries[seen:]:
            for part in entry.parts if isinstance(entry, ReplyEntry) else ():
                if isinstance(part, ToolCall):
                    arguments = format_json_arguments(part.arguments)
                    message = f"{nested.agent}: {part.name}({arguments})"
                    self._show_line(self._screen.glyphs.progress, message, QUIET)

    @override
    def _show_line(self, mark: str, text: str, style: str) -> None:
        self.end_stream()
        super()._show_line(mark, text, style)

    @override
    def _show_failure(self, entry: FailureEntry) -> None:
        """An attempt failed. The status line says whether it is retried."""
        message = entry.fact.fault.message
        if entry.fact.visible:
            self._show_lost_text(entry.fact.partial)
            if self._open_stream == "text":
                self._show_text(self._screen.glyphs.cut)
        self.end_stream()
        if message == self._last_failure and entry.attempt > 1:
            # The status line counts the attempts: the same failure is written once.
            return
        self._last_failure = message
        self._screen.write_line(message, TROUBLE, mark=self._screen.glyphs.trouble)

    def _separate(self) -> None:
        if self._page_started:
            self._screen.write_line()
        self._page_started = True

    @override
    def _show_result(self, call: CallView) -> None:
        """The first lines of a result; of an edit, what was changed."""
        self.end_stream()
        result = call.result
        if result is None:
            return
        style = result_style(result)
        if result.kind != "value":
            self._show_whole_error(call, result, style)
            return
        is_diff = call.name == "edit"
        lines = _result_lines(result)
        if is_diff and self._has_shown_diff is not None and self._has_shown_diff(call.id):
            del lines[1:]
        first, *others = lines[: DIFF_LINES if is_diff else RESULT_LINES] or [NO_OUTPUT]
        self._screen.begin_line(self._screen.glyphs.result, style)
        first = self._screen.trim_to_width(self._call_label(call.id) + first, 2)
        self._screen.write_verbatim(first, style)
        self._screen.end_line()
        for line in others:
            self._show_result_line(line, diff_style(line) if is_diff else style)
        hidden = len(lines) - len(others) - 1
        if hidden > 0:
            self._show_result_line(f"{self._screen.glyphs.cut} +{hidden} lines", QUIET)
        self._last_call_id = call.id

    def _show_whole_error(self, call: CallView, result: ToolResult, style: str) -> None:
        """All that a tool said about its failure: who has to correct something needs every word."""
        first, *others = _result_lines(result)
        mark = f"{self._screen.glyphs.result} "
        write_wrapped(self._screen, [(style, f"{mark}{self._call_label(call.id)}{first}")])
        for line in others[:ERROR_LINES_MAX]:
            write_wrapped(self._screen, [(style, line)], "  ")
        hidden = len(others) - ERROR_LINES_MAX
        if hidden > 0:
            self._show_result_line(f"{self._screen.glyphs.cut} +{hidden} lines", QUIET)
        self._last_call_id = call.id

    def _show_result_line(self, text: str, style: str) -> None:
        """One line of a result, cut to the width, with its own spaces."""
        self._screen.write_verbatim("  " + self._screen.trim_to_width(text, 2), style)
        self._screen.end_line()


def _result_lines(result: ToolResult) -> list[str]:
    """The lines of a result that are not blank, with what went wrong before the first one."""
    text = dedent(result.text.expandtabs(4))
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    prefix = result_prefix(result)
    if prefix:
        lines[:1] = [prefix + "".join(lines[:1])]
    attachments = sum(not isinstance(part, TextPart) for part in result.content)
    if attachments:
        lines.append(f"+{attachments} attachments")
    return lines


def diff_style(line: str) -> str:
    """The style of a line of a unified diff."""
    if line.startswith(("+++", "---", "@@")):
        return QUIET
    return {"+": GOOD, "-": BAD}.get(line[:1], QUIET)
