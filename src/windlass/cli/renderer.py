"""What changed in the view of a session, as lines: how a run looks on a screen.

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
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallLate,
    ContextCompacted,
    Event,
    KnowledgeRecalled,
    NoteGiven,
    RunEnded,
    RunResumed,
    RunSuspended,
    SteeringGiven,
    StreamStalled,
)
from windlass.core.messages import TextPart, ThinkingPart, ToolCall, ToolResult
from windlass.core.projection.entries import (
    EarlierEntry,
    FailureEntry,
    FallbackEntry,
    ModelNoteEntry,
    NoticeEntry,
    NoticeFact,
    PromptEntry,
    SteeringEntry,
)
from windlass.core.projection.project import apply_event
from windlass.core.projection.streaming import StreamingReply
from windlass.core.projection.view import CallView, Entry, NestedView, Projection, ReplyEntry
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify, OutputMismatch

NO_OUTPUT = "(no output)"

CallVerdict = Allow | Deny | Modify | Ask | InvalidCall


class EventRenderer:
    """Shows one session. Use the same renderer for a run and for its resumption.

    It keeps the projection that it has shown, and shows how the next one differs. A subclass shows
    a kind of change in another way by overriding the `_show_…` method for it.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._view = Projection()
        self._last_event_at = clock()
        self._call_names: dict[str, str] = {}
        self._last_call_id = ""
        """The call that the last line is about: the next line need not name it again."""
        self._failure_line_open = False
        """The line about a failed attempt is open until it is known whether it is retried."""
        self._streamed_text = ""
        """The text of the last attempt that is on the page."""
        self._has_streamed = False
        """Something of the last attempt is on the page."""

    def show_event(self, event: Event) -> None:
        """Write what an event means to a person; some events mean nothing."""
        self.show_view(apply_event(self._view, event))
        # A run that is paused was released, and the line about that says so.
        if isinstance(event, RunSuspended) and not self._is_paused:
            self.show_suspension()
        # The silence before a failure is counted from the last sign of life.
        if not isinstance(event, AttemptFailed | StreamStalled):
            self._last_event_at = self._clock()

    def show_view(self, view: Projection) -> None:
        """Write how a session differs from what is on the page."""
        before = self._view
        self._view = view
        if view is before:
            return
        if view.pending is not before.pending:
            for entry in view.pending[len(before.pending) :]:
                self._show_steering(entry)
        if view.tail is not before.tail:
            self._show_entries(before, view)
        if view.attempt is not None and view.attempt is not before.attempt:
            self._streamed_text = ""
            self._has_streamed = False
            self._show_attempt(view.attempt)
        if view.reply is not None and view.reply is not before.reply:
            self._show_reply_so_far(before.reply, view.reply)

    @property
    def _is_paused(self) -> bool:
        return self._view.status.waits_for == "continue"

    def show_suspension(self) -> None:
        """Write that the run waits for a person."""
        self._show_line(self._screen.glyphs.trouble, "waiting for your answer", TROUBLE)

    def _show_entries(self, before: Projection, view: Projection) -> None:
        first = len(before.settled)
        shown = before.tail
        announced = {entry.seq for entry in before.pending}
        for at in range(first, len(view.entries)):
            old = shown[at - first] if at - first < len(shown) else None
            entry = view.entries[at]
            if isinstance(entry, ReplyEntry):
                self._show_reply_changes(old if isinstance(old, ReplyEntry) else None, entry)
            elif old is None and not (isinstance(entry, SteeringEntry) and entry.seq in announced):
                self._show_entry(entry)

    def _show_entry(self, entry: Entry) -> None:
        match entry:
            case PromptEntry():
                self._show_prompt(entry)
            case FailureEntry():
                self._show_failure(entry)
            case FallbackEntry(model, instead_of):
                message = f"{instead_of} keeps failing; switching to {model}"
                self._show_line(self._screen.glyphs.progress, message, TROUBLE)
            case ModelNoteEntry():
                self._show_note(entry)
            case SteeringEntry():
                self._show_steering(entry)
            case NoticeEntry(fact):
                self._show_notice(fact)
            case EarlierEntry() | ReplyEntry():
                pass  # An earlier message was not said here; a reply has changes of its own.

    def _show_reply_so_far(self, before: StreamingReply | None, reply: StreamingReply) -> None:
        is_same = before is not None and before.chunks.is_beginning_of(reply.chunks)
        start = len(before.chunks) if before is not None and is_same else 0
        for chunk in reply.chunks.since(start):
            self._has_streamed = True
            if chunk.kind == "text":
                self._streamed_text += chunk.text
                self._show_text(chunk.text)
            else:
                self._show_thinking(chunk.text)

    def _show_reply_changes(self, before: ReplyEntry | None, reply: ReplyEntry) -> None:
        if before is None or before.parts != reply.parts:
            self._show_reply(reply)
        known = {call.id: call for call in before.calls} if before is not None else {}
        for call in reply.calls:
            if call is not known.get(call.id):
                self._show_call_changes(known.get(call.id) or CallView(call.call), call)

    def _show_reply(self, reply: ReplyEntry) -> None:
        """A reply that is complete: what has not streamed of it, and its calls."""
        self._show_rest(reply)
        for part in reply.parts:
            if isinstance(part, ToolCall):
                self._show_proposed_call(part)

    def _show_rest(self, reply: ReplyEntry) -> None:
        """Show a reply to a reader who came late or reads a record, and did not see it stream."""
        if reply.withheld:
            return
        if not self._has_streamed:
            for part in reply.parts:
                if isinstance(part, TextPart):
                    self._show_text(part.text)
                elif isinstance(part, ThinkingPart):
                    self._show_thinking(part.text)
        elif reply.text.startswith(self._streamed_text) and reply.text != self._streamed_text:
            self._show_text(reply.text[len(self._streamed_text) :])
        self._has_streamed = True
        self._streamed_text = reply.text

    def _show_text(self, text: str) -> None:
        self._screen.stream_text(text, TEXT_STYLE)

    def _show_thinking(self, text: str) -> None:
        self._screen.stream_text(text, THINKING_STYLE)

    def _show_recalled_notes(self, text: str) -> None:
        """Notes that were added to the prompt. Not shown here."""

    def _show_nested(self, before: NestedView | None, nested: NestedView) -> None:
        """What a sub-agent does. Not shown here: its result is the result of a call."""

    def _show_prompt(self, prompt: PromptEntry) -> None:
        self._show_line(self._screen.glyphs.person, prompt.text, PERSON)
        self._screen.write_line()

    def _show_steering(self, entry: SteeringEntry) -> None:
        described = SteeringGiven(entry.parts, entry.by).describe()
        self._show_line(self._screen.glyphs.progress, described, QUIET)

    def _show_note(self, note: ModelNoteEntry) -> None:
        glyphs = self._screen.glyphs
        match note.verdict:
            case Deny(reason):
                self._show_line(glyphs.denied, f"reply denied: {reason}", BAD)
            case OutputMismatch(message):
                self._show_line(glyphs.trouble, message, TROUBLE)
            case None:
                described = NoteGiven(note.text, "same_call").describe()
                self._show_line(glyphs.progress, described, QUIET)

    def _show_notice(self, fact: NoticeFact) -> None:
        """Something that happened to the run."""
        glyphs = self._screen.glyphs
        match fact:
            case RunResumed(drift):
                message = "resumed where the journal ends"
                if drift:
                    message += f" (changed since: {'; '.join(drift)})"
                self._show_line(glyphs.progress, message, QUIET)
            case RunEnded("completed"):
                self._screen.end_line()
            case RunEnded(outcome, reason, by=author):
                message = outcome.replace("_", " ")
                if author:
                    message += f" by {author}"
                if reason:
                    message += f": {fix_plural(reason)}"
                self._show_line(glyphs.no, message, BAD)
            case CallLate(call_id, result):
                summary = f"(too late) {_summarize_result(result)}"
                self._show_call_line(call_id, glyphs.result, summary, QUIET)
            case KnowledgeRecalled(text):
                self._show_recalled_notes(text)
            case ContextCompacted() | BudgetAllotted():
                self._show_line(glyphs.progress, fact.describe(), TROUBLE)
            case _:
                # A fact without its own case is shown in its own words.
                self._show_line(glyphs.progress, fact.describe(), QUIET)

    def _show_attempt(self, attempt: AttemptStarted) -> None:
        """A request goes out: again after a failure, or for the next step."""
        if attempt.attempt > 1:
            if self._failure_line_open:
                self._screen.stream_text(", retrying", TROUBLE)
                self._screen.end_line()
            self._failure_line_open = False
        elif self._view.steps:
            self._screen.end_line()
            self._screen.write_line()

    def _show_failure(self, entry: FailureEntry) -> None:
        fact = entry.fact
        message = fact.fault.message
        if fact.fault.kind == "stalled":
            silent_s = self._clock() - self._last_event_at
            message = f"no output for {round(silent_s, 1):g} s"
        if fact.visible:
            self._show_lost_text(fact.partial)
            self._screen.stream_text(self._screen.glyphs.cut)
        self._screen.begin_line(self._screen.glyphs.trouble, TROUBLE)
        self._screen.stream_text(message, TROUBLE)
        self._failure_line_open = True

    def _show_lost_text(self, text: str) -> None:
        """What watchers saw of a failed attempt, for readers who did not watch."""
        if not self._has_streamed and text:
            self._show_text(text)
            self._has_streamed = True
            self._streamed_text = text

    def _show_proposed_call(self, call: ToolCall) -> None:
        self._call_names[call.id] = call.name
        arguments = format_json_arguments(call.arguments)
        self._show_line(self._screen.glyphs.call, f"{call.name}({arguments})", CALL_STYLE)
        self._last_call_id = call.id

    def _show_call_changes(self, before: CallView, call: CallView) -> None:
        if call.verdict is not None and call.verdict is not before.verdict:
            self._show_call_verdict(call.id, call.verdict)
        if call.answer is not None and call.answer is not before.answer:
            self._show_call_verdict(call.id, call.answer)
        if call.progress and call.progress is not before.progress:
            self._show_progress(call)
        shown = {nested.session: nested for nested in before.agents}
        for nested in call.agents:
            if nested is not shown.get(nested.session):
                self._show_nested(shown.get(nested.session), nested)
        # A verdict that closes a call has its own line, and so has the end of a run.
        closed_by_verdict = call.state in ("denied", "invalid")
        if call.result is not before.result and not (closed_by_verdict or call.abandoned):
            self._show_result(call)

    def _show_progress(self, call: CallView) -> None:
        self._show_call_line(call.id, self._screen.glyphs.progress, call.progress, QUIET)

    def _show_result(self, call: CallView) -> None:
        if call.result is not None:
            summary = _summarize_result(call.result)
            style = result_style(call.result)
            self._show_call_line(call.id, self._screen.glyphs.result, summary, style)

    def _show_call_verdict(self, call_id: str, verdict: CallVerdict) -> None:
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

    def _show_call_line(self, call_id: str, mark: str, text: str, style: str) -> None:
        """A line about a call, with the call's name unless the line above is about it too."""
        self._show_line(mark, self._call_label(call_id) + text, style)
        self._last_call_id = call_id

    def _call_label(self, call_id: str) -> str:
        if call_id == self._last_call_id:
            return ""
        return f"{self._call_names.get(call_id) or call_id}: "

    def _show_line(self, mark: str, text: str, style: str) -> None:
        """One line, cut to the width; only a person's words may take more lines."""
        shown = text if style is PERSON else self._screen.clip_to_line(text)
        self._screen.write_line(shown, style, mark=mark)
        self._last_call_id = ""


def fix_plural(reason: str) -> str:
    """The reason of an end, in words for people: records keep `1 steps`, so that they compare."""
    return reason.replace(" of 1 steps ", " of 1 step ")


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
