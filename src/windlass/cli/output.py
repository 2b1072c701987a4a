"""The result of a run, for programs and for people.

A program gets one JSON object, or a line of JSON for each event and the same object at the end.
"""

import sys
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.cli.screen import BAD, CALL_STYLE, GOOD, QUIET, TROUBLE, Screen
from windlass.cli.status import format_figures
from windlass.cli.wrapping import write_wrapped
from windlass.core.events import Event
from windlass.core.phrases import format_count
from windlass.core.question import Question
from windlass.core.result import RunResult
from windlass.core.text_clip import reveal_line, reveal_lines
from windlass.core.verdicts import CallPreview

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("text", "json", "stream-json")

UNENDED_OUTCOMES = ("suspended", "paused", "released")
"""The run has not ended: there is no reply yet, and something to do."""


def print_event(event: Event) -> None:
    """Print an event as a line of JSON, and flush it."""
    _print_line(event.to_json())


def print_result(result: RunResult[Any]) -> None:
    """Print the result as a line of JSON, and flush it."""
    _print_line(result.to_json())


def _print_line(line: str) -> None:
    sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def show_whole_call(screen: Screen, question: Question) -> None:
    """Write all that would run, and leave nothing out: what is not shown cannot be approved."""
    for name, value in question.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        # A character that is not seen must not be approved unseen.
        first, *others = reveal_lines(text)
        label = f"{reveal_line(name)}: "
        write_wrapped(screen, [(QUIET, label), (CALL_STYLE, first.expandtabs(4))], "  ")
        for line in others:
            write_wrapped(screen, [(CALL_STYLE, line.expandtabs(4))], "    ")


def show_preview(screen: Screen, preview: CallPreview, label: str = "as things are now: ") -> None:
    """Write what a call would change, with the lines that differ."""
    write_wrapped(screen, [(QUIET, f"{label}{reveal_line(preview.note)}")], "  ")
    for line in preview.diff.split("\n") if preview.diff else ():
        style = {"+": GOOD, "-": BAD}.get(line[:1], QUIET)
        write_wrapped(screen, [(style, reveal_line(line).expandtabs(4))], "    ")


def show_summary(screen: Screen, result: RunResult[Any], *, show_session: bool = True) -> None:
    """Write the last line of a run: its outcome, what it cost, and the session's name."""
    glyphs = screen.glyphs
    parts = [result.outcome.replace("_", " "), format_count(result.steps, "step")]
    parts += format_figures(result.usage, result.cost, result.duration_s)
    if show_session:
        parts.append(f"session {result.session_id}")
    line = f" {glyphs.dot} ".join(parts)
    if result.completed:
        screen.write_line(line, QUIET, mark=glyphs.yes)
    elif result.outcome in UNENDED_OUTCOMES:
        screen.write_line(line, TROUBLE, mark=glyphs.trouble)
    else:
        screen.write_line(line, BAD, mark=glyphs.no)
    if result.undo_due:
        undone = f"What it did is undone by a run of its own: windlass watch {result.session_id}"
        screen.write_line(undone, QUIET, indent=2)
    if result.still_running:
        calls = ", ".join(result.still_running)
        left = f"Abandoned while it ran, and may still take effect: {calls}"
        screen.write_line(left, TROUBLE, indent=2)
    if result.outcome in ("paused", "released"):
        screen.write_line(f"windlass resume {result.session_id}", indent=2)


def show_answer_commands(screen: Screen, session: str, questions: tuple[Question, ...]) -> None:
    """Write the calls that a run waits for, whole, and the commands that answer them."""
    for question in questions:
        line = f"waiting for {'people' if question.approvals else 'your answer'}: {question.tool}"
        screen.write_line(line, TROUBLE, mark=screen.glyphs.trouble)
        show_whole_call(screen, question)
        if question.approvals:
            needed = ", and ".join(one.describe() for one in question.approvals)
            agreed = f"; agreed so far: {', '.join(question.agreed)}" if question.agreed else ""
            line = f"It needs {needed}{agreed}. They answer on the page of the service."
            screen.write_line(line, QUIET, indent=2)
            continue
        # In one piece, so that it can be copied.
        screen.write_verbatim(
            f"  windlass approve {session} {question.call_id} --digest {question.digest}"
        )
        screen.start_new_line()
        screen.write_line(f"windlass deny {session} {question.call_id} --reason WHY", indent=2)


class _TextEdit(msgspec.Struct, forbid_unknown_fields=True):
    old: str
    new: str
    replace_all: bool = False


def format_edits(edits: object) -> list[str] | None:
    """The edits of a file as removed and added lines.

    None if the value is not a list of edits, or has more in it than these lines would show.
    """
    try:
        changes = msgspec.convert(edits, list[_TextEdit])
    except msgspec.ValidationError:
        return None
    lines: list[str] = []
    for change in changes:
        if change.replace_all:
            lines.append("everywhere in the file:")
        for sign, text in (("-", change.old), ("+", change.new)):
            lines += [f"{sign} {line}" for line in reveal_lines(text) if text]
    return lines
