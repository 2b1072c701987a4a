"""Questions of a run, answered where it runs: once, always, no, otherwise, or later.

The law: one question at a time, and a key that was pressed before its question was shown answers
nothing. Whoever leaves a question leaves the run suspended, with nothing lost.
"""

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from windlass.cli.renderer import BAD, CALL_STYLE, GOOD, QUIET, TROUBLE
from windlass.cli.screen import Screen
from windlass.cli.status import StatusLine
from windlass.cli.terminal import Keyboard
from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.result import Question
from windlass.core.schema import JsonSchema, outline_schema
from windlass.core.verdicts import Allow, AllowAlways, Deny, Modify, PersonAnswer
from windlass.gates.grants import grant_for

ANSWER_KEYS = "y once   a always   n no   e edit   q later"
VALUE_LINES_MAX = 12


class QuestionPrompt:
    """Asks the person at the terminal."""

    def __init__(
        self,
        screen: Screen,
        status: StatusLine,
        keyboard: Keyboard,
        specs: Sequence[ToolSpec] = (),
    ) -> None:
        self._screen = screen
        self._status = status
        self._keyboard = keyboard
        self.specs: Mapping[str, ToolSpec] = {spec.name: spec for spec in specs}
        self._one_at_a_time = asyncio.Lock()
        self._postponed = False
        """Somebody left: the other questions of the run are not asked either."""

    def start_run(self) -> None:
        """Another run begins; its questions are asked again."""
        self._postponed = False

    async def __call__(self, question: Question) -> PersonAnswer | None:
        async with self._one_at_a_time:
            if self._postponed:
                return None
            self._status.is_paused = True
            try:
                reply = await self._ask_until_answered(question)
            finally:
                self._status.is_paused = False
                self._screen.end_line()
            self._postponed = reply is None
            return reply

    async def _ask_until_answered(self, question: Question) -> PersonAnswer | None:
        self._show_question(question)
        while True:
            key = await self._keyboard.read_key(self._show_keys)
            match key.lower():
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
                    self._screen.write_verbatim("all of it", QUIET)
                    self._show_question(question, lines_max=None)
                    reply = None
                case "q" | "\x04" | "\x1b":
                    self._screen.write_verbatim("later", QUIET)
                    return None
                case _:
                    reply = None
            self._screen.end_line()
            if reply is not None:
                return reply

    def _show_keys(self) -> None:
        self._screen.begin_line(self._screen.glyphs.person, TROUBLE)
        self._screen.write_verbatim(f"{ANSWER_KEYS}  ", QUIET)

    def _show_question(self, question: Question, lines_max: int | None = VALUE_LINES_MAX) -> None:
        screen = self._screen
        screen.end_line()
        screen.write_line(question.question, TROUBLE, mark=screen.glyphs.trouble)
        for name, value in question.arguments.items():
            screen.write_verbatim(f"  {name}: ", QUIET)
            changes = _format_edits(value) if name == "edits" else None
            written = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            lines = written.splitlines() if changes is None else ["", *changes]
            self._show_lines(lines or [""], lines_max)

    def _show_lines(self, lines: Sequence[str], lines_max: int | None) -> None:
        """The first line where the page is, the others below it."""
        screen, (first, *others) = self._screen, lines
        screen.write_verbatim(first, CALL_STYLE)
        screen.start_new_line()
        shown = others[:lines_max]
        for line in shown:
            style = {"+": GOOD, "-": BAD}.get(line[:1], CALL_STYLE) if not first else CALL_STYLE
            screen.write_verbatim(f"    {line}", style)
            screen.start_new_line()
        if len(others) > len(shown):
            left = f"    {screen.glyphs.cut} +{len(others) - len(shown)} lines: s shows all of it"
            screen.write_verbatim(left, QUIET)
            screen.start_new_line()

    async def _read_line(self, prompt: str) -> str | None:
        self._screen.end_line()
        typed = await self._keyboard.read_line(
            lambda: self._screen.write_verbatim(f"  {prompt}: ", QUIET)
        )
        self._screen.forget_line()
        return typed

    async def _read_denial(self) -> Deny:
        reason = await self._read_line("why (for the model; may be empty)")
        return Deny((reason or "").strip() or "The user said no.", "person")

    async def _read_always(self, question: Question) -> AllowAlways | None:
        name = question.call.name
        self._screen.write_verbatim("always", GOOD)
        pattern = await self._read_line(f"for exactly this call, or a pattern such as {name}(…*)")
        spec = self.specs.get(name)
        if pattern is None:
            return None
        try:
            if spec is not None:
                grant_for(spec, question.arguments, pattern.strip(), ())
        except ConfigError as error:
            self._screen.write_line(str(error), BAD, mark=self._screen.glyphs.no)
            return None
        return AllowAlways(pattern.strip(), "person")

    async def _edit_arguments(self, question: Question) -> Modify | None:
        """The arguments as the person's own editor gives them back."""
        before = _format_json(question.arguments)
        try:
            written = await asyncio.to_thread(click.edit, before, extension=".json")
            after = msgspec.json.decode(written or before, type=dict[str, Any])
        except (click.ClickException, msgspec.MsgspecError) as error:
            told = (
                f"not taken: {error.message if isinstance(error, click.ClickException) else error}"
            )
            self._screen.write_line(told, BAD, mark=self._screen.glyphs.no)
            return None
        if after == question.arguments:
            self._screen.write_line("nothing was changed", QUIET, mark=self._screen.glyphs.progress)
            return None
        spec = self.specs.get(question.call.name)
        schema = JsonSchema(spec.parameters) if spec else None
        if schema and not schema.accepts(after):
            told = f"not taken: they do not fit {question.call.name}: {outline_schema(schema)}"
            self._screen.write_line(told, BAD, mark=self._screen.glyphs.no)
            return None
        self._show_change(before, _format_json(after))
        return Modify(after, "The user changed the arguments.", "person")

    def _show_change(self, before: str, after: str) -> None:
        self._screen.end_line()
        changed = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        for line in list(changed)[3:]:
            self._screen.write_verbatim(f"  {line}", GOOD if line.startswith("+") else BAD)
            self._screen.start_new_line()


class _TextEdit(msgspec.Struct):
    old: str
    new: str


def _format_edits(edits: object) -> list[str] | None:
    """The edits of a file as lines that go and lines that come, if that is what they are."""
    try:
        changes = msgspec.convert(edits, list[_TextEdit])
    except msgspec.ValidationError:
        return None
    return [
        line
        for one in changes
        for line in (
            *(f"- {gone}" for gone in one.old.splitlines()),
            *(f"+ {come}" for come in one.new.splitlines()),
        )
    ]


def _format_json(arguments: Mapping[str, object]) -> str:
    return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode() + "\n"
