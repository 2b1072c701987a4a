"""A run's questions, asked at the terminal: once, always, no, edit, or later.

Invariant: one question at a time, and a key that was pressed before its question was shown does not
answer it. A person who answers "later", or closes the terminal, leaves the run suspended, with
nothing lost: a closed terminal is not a "no".
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import click
import msgspec

from windlass.cli.form_prompt import fill_form
from windlass.cli.notify import notify
from windlass.cli.output import format_edits
from windlass.cli.renderer import format_arguments
from windlass.cli.screen import BAD, CALL_STYLE, GOOD, QUIET, TROUBLE, Screen
from windlass.cli.status import StatusLine
from windlass.cli.terminal import TERMINAL_GONE, Keyboard
from windlass.cli.wrapping import write_wrapped
from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.question import Question
from windlass.core.schema import JsonSchema, outline_schema
from windlass.core.text_clip import reveal_line, reveal_lines
from windlass.core.verdicts import Allow, AllowAlways, CallPreview, Deny, Modify, PersonAnswer
from windlass.gates.grant_proposals import covers_call, describe_reach, propose_pattern
from windlass.gates.grants import make_grant

ANSWER_KEYS = "y once   a always   n no   e edit   q later"
LIVE_KEYS = "y yes   n no   e edit   q not now"
"""A call that runs asks: the answer is for this once."""
FORM_KEYS = "y fill it in   n no   q not now"
CHANGE_ARGUMENTS = ("edits", "content")
"""The arguments of `edit` and `write` that say how a file changes."""
EARLIER_CALLS_MAX = 50
EXAMPLES_MAX = 3
VALUE_LINES_MAX = 12
GiveBack = Callable[[str], None]
"""Puts what was typed by mistake back where the person was typing."""
HoldInput = Callable[[], AbstractAsyncContextManager[GiveBack | None]]
"""Takes the keyboard from another prompt. Yields a function if a person was typing there."""
PreviewFunction = Callable[[str, Mapping[str, Any], Sequence[str]], Awaitable[CallPreview | None]]
"""Says what a call of a tool would change, here or of a sub-agent."""


class QuestionPrompt:
    """Asks the person at the terminal whether a call may run. Is an `Approver`."""

    def __init__(
        self, screen: Screen, status: StatusLine, keyboard: Keyboard, notify_by: str = "off"
    ) -> None:
        self._screen = screen
        self._status = status
        self._keyboard = keyboard
        self._notify_by = notify_by
        self._specs: Mapping[str, ToolSpec] = {}
        self._preview: PreviewFunction | None = None
        self._hold: HoldInput = lambda: nullcontext(None)
        self._waiting: list[Question] = []
        """The questions of the run that are not answered yet, in their order."""
        self._seen_calls: list[tuple[str, Mapping[str, Any]]] = []
        """The calls that were asked about, as examples of what a pattern would allow."""
        self._one_at_a_time = asyncio.Lock()
        self._postponed = False
        """The person said "later": the other questions of this run are not asked either."""
        self._diffs_shown: set[str] = set()
        """The calls of this run that were allowed with the whole difference on the page."""
        self._answer_first: Callable[[Question], Awaitable[PersonAnswer | None]] | None = None

    def use_tools(self, specs: Sequence[ToolSpec], preview: PreviewFunction | None = None) -> None:
        """Check patterns and edited arguments against these tools from now on.

        `preview` says what a call of one of them would change.
        """
        self._specs = {spec.name: spec for spec in specs}
        self._preview = preview

    def use_hold(self, hold: HoldInput) -> None:
        """Take the keyboard by this from now on, whenever something is asked."""
        self._hold = hold

    async def choose_key(self, keys: str, allowed: str) -> str:
        """Show what keys do, and return the one that was pressed; the last one for any other."""
        self._screen.begin_line(self._screen.glyphs.person, TROUBLE)
        async with self._hold() as give_back:
            if give_back is not None:
                give_back(await self._keyboard.wait_for_quiet())
            key = await self._keyboard.read_key(
                lambda: self._screen.write_verbatim(f"{keys}  ", QUIET)
            )
        chosen = key.lower() if key.lower() in allowed else allowed[-1]
        self._screen.write_verbatim(chosen, GOOD)
        self._screen.end_line()
        return chosen

    def start_run(self) -> None:
        """Ask the questions of the next run, even if those of the last one were postponed."""
        self._postponed = False
        self._diffs_shown.clear()

    def has_shown_diff(self, call_id: str) -> bool:
        """Return whether a call was allowed with the whole difference on the page."""
        return call_id in self._diffs_shown

    @contextmanager
    def answer_by(
        self, answer: Callable[[Question], Awaitable[PersonAnswer | None]]
    ) -> Generator[None]:
        """Answer by this function in the block; the person is asked only if it returns None."""
        self._answer_first = answer
        try:
            yield
        finally:
            self._answer_first = None

    async def __call__(self, question: Question) -> PersonAnswer | None:
        """The person's answer; None for "later", which suspends the run."""
        known = await self._answer_first(question) if self._answer_first else None
        if known is not None:
            return known
        self._waiting.append(question)
        try:
            # The other questions of the same step are asked at the same time: let them come.
            await asyncio.sleep(0)
            async with self._one_at_a_time:
                return None if self._postponed else await self._ask_person(question)
        except TERMINAL_GONE:
            self._postponed = True
            return None
        finally:
            self._waiting.remove(question)

    async def _ask_person(self, question: Question) -> PersonAnswer | None:
        async with self._hold() as give_back:
            with self._status.pause():
                try:
                    preview = await self._find_preview(question)
                    notify(self._notify_by, f"windlass asks: {question.question}")
                    reply = await self._ask_until_answered(question, preview, give_back)
                finally:
                    self._screen.end_line()
        # What a running call asks cannot wait, and says nothing about the run's other questions.
        self._postponed = reply is None and not question.is_live
        if isinstance(reply, Allow | AllowAlways) and preview is not None and preview.is_whole:
            self._diffs_shown.add(question.call_id)
        self._seen_calls.append((question.tool, question.arguments))
        del self._seen_calls[:-EARLIER_CALLS_MAX]
        return reply

    def _show_waiting(self) -> None:
        """Write the questions that wait, if there are several, so that none comes unexpected."""
        if len(self._waiting) < 2:  # noqa: PLR2004 - the one is shown in full anyway
            return
        screen = self._screen
        line = f"{len(self._waiting)} calls wait for your answer:"
        screen.write_line(line, TROUBLE, mark=screen.glyphs.trouble)
        for number, question in enumerate(self._waiting, 1):
            call = f"{question.tool}({format_arguments(question.arguments)})"
            screen.write_line(screen.clip_to_line(reveal_line(call), 3), mark=f"{number:>3}")

    async def _ask_until_answered(
        self, question: Question, preview: CallPreview | None, give_back: GiveBack | None
    ) -> PersonAnswer | None:
        self._show_waiting()
        hidden_lines = self._show_question(question, preview=preview)
        if give_back is not None:
            # Words that were meant for the prompt must not answer the question.
            give_back(await self._keyboard.wait_for_quiet())
        while True:
            reply: PersonAnswer | None = None
            match await self._read_answer_key(question):
                case "y" | "a" if hidden_lines:
                    # The end of a command must be seen before it can be approved.
                    self._show_error(
                        f"{hidden_lines} lines are not shown yet: press s, and read on"
                    )
                case "y" if question.form is not None:
                    reply = await self._fill_form(question.form)
                case "y":
                    self._screen.write_verbatim("yes", GOOD)
                    return Allow("person")
                case "n":
                    self._screen.write_verbatim("no", BAD)
                    return await self._read_denial()
                case "a":
                    reply = await self._read_always(question)
                case "e":
                    reply = await self._edit_arguments(question)
                case "s":
                    self._screen.write_verbatim("show all", QUIET)
                    hidden_lines = self._show_question(question, None, preview)
                case "q" | "\x04" | "\x1b":  # Ctrl-D and Escape mean "later" too.
                    self._screen.write_verbatim("later", QUIET)
                    return None
                case _:
                    pass
            self._screen.end_line()
            if reply is not None:
                return reply

    async def _read_answer_key(self, question: Question) -> str:
        """Show what keys do, and return the one that was pressed; empty if it does nothing here."""
        keys = LIVE_KEYS if question.is_live else ANSWER_KEYS
        if question.form is not None:
            keys = FORM_KEYS
        key = (await self._keyboard.read_key(partial(self._show_keys, keys))).lower()
        is_offered = key not in "ae" or f"{key} " in keys
        return key if is_offered else ""

    def _show_keys(self, keys: str) -> None:
        self._screen.begin_line(self._screen.glyphs.person, TROUBLE)
        self._screen.write_verbatim(f"{keys}  ", QUIET)

    async def _fill_form(self, form: Mapping[str, Any]) -> Modify | None:
        """The values that the person fills in; None to ask again."""
        self._screen.write_verbatim("fill it in", GOOD)
        values = await fill_form(form, self._read_line, self._show_error)
        return None if values is None else Modify(values, "The user filled in the form.", "person")

    async def _find_preview(self, question: Question) -> CallPreview | None:
        if self._preview is None:
            return None
        return await self._preview(question.tool, question.arguments, question.chain)

    def _show_question(
        self,
        question: Question,
        lines_max: int | None = VALUE_LINES_MAX,
        preview: CallPreview | None = None,
    ) -> int:
        """Write the question, the arguments and what would change. Returns the lines not shown.

        Long values are cut, unless `lines_max` is None.
        """
        screen = self._screen
        hidden_lines = 0
        screen.end_line()
        screen.write_line(question.question, TROUBLE, mark=screen.glyphs.trouble)
        # A whole difference says what these arguments say, and shows where.
        implied = CHANGE_ARGUMENTS if preview is not None and preview.is_whole else ()
        for name, value in question.arguments.items():
            if name in implied:
                continue
            label = f"{reveal_line(name)}: "
            edits = format_edits(value) if name == "edits" else None
            if edits is not None:
                hidden_lines += self._show_value("", edits, lines_max, label=label, is_diff=True)
                continue
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            first, *others = reveal_lines(text)
            hidden_lines += self._show_value(first, others, lines_max, label=label)
        if preview is not None:
            label = "as things are now: "
            # Split here, so that line ends which change are seen: `_show_value` reveals them.
            changes = preview.diff.split("\n") if preview.diff else []
            note = preview.note
            hidden_lines += self._show_value(note, changes, lines_max, label=label, is_diff=True)
        return hidden_lines

    def _show_value(
        self,
        first: str,
        others: Sequence[str],
        lines_max: int | None,
        *,
        label: str = "",
        is_diff: bool = False,
    ) -> int:
        """Write the first line of a value behind a label, and the others below it.

        Returns how many lines are hidden.
        """
        screen = self._screen
        # A character that is not seen must not be approved unseen.
        first = reveal_line(first, keep="\t").expandtabs(4)
        others = [reveal_line(line, keep="\t").expandtabs(4) for line in others]
        write_wrapped(screen, [(QUIET, label), (CALL_STYLE, first)], "  ")
        shown = others[:lines_max]
        for line in shown:
            style = {"+": GOOD, "-": BAD}.get(line[:1], CALL_STYLE) if is_diff else CALL_STYLE
            write_wrapped(screen, [(style, line)], "    ")
        hidden = len(others) - len(shown)
        if hidden:
            screen.write_verbatim(f"    {screen.glyphs.cut} +{hidden} lines: s shows all", QUIET)
            screen.start_new_line()
        return hidden

    async def _read_line(self, label: str, default: str = "") -> str | None:
        self._screen.end_line()
        typed = await self._keyboard.read_line(f"  {label}: ", default)
        self._screen.forget_line()
        return typed

    async def _read_denial(self) -> Deny:
        reason = await self._read_line("reason (for the model; may be empty)")
        return Deny((reason or "").strip() or "The user said no.", "person")

    async def _read_always(self, question: Question) -> AllowAlways | None:
        """A grant for the rest of the session; None if the pattern is not valid."""
        name = question.tool
        self._screen.write_verbatim("always", GOOD)
        self._screen.end_line()
        spec = self._specs.get(name)
        proposed = propose_pattern(spec, question.arguments) if spec is not None else ""
        if proposed:
            self._show_reach(proposed, spec)
        pattern = await self._read_line("pattern (empty: exactly this call)", proposed)
        if pattern is None:
            return None
        pattern = pattern.strip()
        # A pattern that is wrong is reported now, while the person can still correct it.
        try:
            if spec is not None:
                make_grant(spec, question.arguments, pattern, ())
        except ConfigError as error:
            self._show_error(str(error))
            return None
        if pattern and pattern != proposed:
            self._show_reach(pattern, spec)
        return AllowAlways(pattern, "person")

    def _show_reach(self, pattern: str, spec: ToolSpec | None) -> None:
        """Write what else a pattern would allow, with calls of this chat as examples."""
        screen = self._screen
        mark = screen.glyphs.progress
        screen.write_line(f"{pattern} allows {describe_reach(pattern)}", QUIET, mark=mark)
        examples = [
            format_arguments(arguments)
            for name, arguments in self._seen_calls
            if spec is not None and name == spec.name and covers_call(spec, arguments, pattern)
        ]
        for example in dict.fromkeys(examples[-EXAMPLES_MAX:]):
            line = screen.clip_to_line(f"also, from before: {reveal_line(example)}", 2)
            screen.write_line(line, QUIET, indent=2)

    async def _edit_arguments(self, question: Question) -> Modify | None:
        """The arguments as the person's editor returns them; None if they cannot be used."""
        before = _format_json(question.arguments)
        try:
            text = await asyncio.to_thread(click.edit, before, extension=".json")
            arguments = msgspec.json.decode(text or before, type=dict[str, Any])
        except click.ClickException as error:
            self._show_error(f"not accepted: {error.message}")
            return None
        except msgspec.MsgspecError as error:
            self._show_error(f"not accepted: {error}")
            return None
        if arguments == question.arguments:
            self._screen.write_line("nothing changed", QUIET, mark=self._screen.glyphs.progress)
            return None
        spec = self._specs.get(question.tool)
        schema = JsonSchema(spec.parameters) if spec else None
        if schema and not schema.accepts(arguments):
            outline = outline_schema(schema)
            self._show_error(f"not accepted: {question.tool} takes other arguments: {outline}")
            return None
        self._show_changes(before, _format_json(arguments))
        return Modify(arguments, "The user changed the arguments.", "person")

    def _show_error(self, message: str) -> None:
        self._screen.write_line(message, BAD, mark=self._screen.glyphs.no)

    def _show_changes(self, before: str, after: str) -> None:
        self._screen.end_line()
        diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        # The first three lines of a diff are the file names and the place.
        for line in list(diff)[3:]:
            self._screen.write_verbatim(f"  {line}", GOOD if line.startswith("+") else BAD)
            self._screen.start_new_line()


def _format_json(arguments: Mapping[str, object]) -> str:
    return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode() + "\n"
