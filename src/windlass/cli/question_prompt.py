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

from windlass.cli.renderer import BAD, CALLED, GOOD, QUIET, TROUBLE
from windlass.cli.screen import Screen
from windlass.cli.status import Status
from windlass.cli.terminal import Keyboard
from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.result import Question
from windlass.core.schema import Schema, outline
from windlass.core.verdicts import Allow, Always, Deny, Modify, Reply
from windlass.gates.grants import grant_for

KEYS = "y once   a always   n no   e edit   q later"
VALUE_LINES = 12


class Asker:
    """Asks the person at the terminal."""

    def __init__(
        self,
        screen: Screen,
        status: Status,
        keyboard: Keyboard,
        specs: Sequence[ToolSpec] = (),
    ) -> None:
        self._screen = screen
        self._status = status
        self._keyboard = keyboard
        self.specs: Mapping[str, ToolSpec] = {spec.name: spec for spec in specs}
        self._turn = asyncio.Lock()
        self._left = False
        """Somebody left: the other questions of the run are not asked either."""

    def begin(self) -> None:
        """Another run begins; its questions are asked again."""
        self._left = False

    async def __call__(self, question: Question) -> Reply | None:
        async with self._turn:
            if self._left:
                return None
            self._status.held = True
            try:
                reply = await self._ask(question)
            finally:
                self._status.held = False
                self._screen.end()
            self._left = reply is None
            return reply

    async def _ask(self, question: Question) -> Reply | None:
        self._show(question)
        while True:
            key = await self._keyboard.key(self._show_keys)
            match key.lower():
                case "y":
                    self._screen.verbatim("yes", GOOD)
                    return Allow("person")
                case "n":
                    self._screen.verbatim("no", BAD)
                    return await self._deny()
                case "a":
                    reply = await self._always(question)
                case "e":
                    reply = await self._edit(question)
                case "s":
                    self._screen.verbatim("all of it", QUIET)
                    self._show(question, lines_max=None)
                    reply = None
                case "q" | "\x04" | "\x1b":
                    self._screen.verbatim("later", QUIET)
                    return None
                case _:
                    reply = None
            self._screen.end()
            if reply is not None:
                return reply

    def _show_keys(self) -> None:
        self._screen.open(self._screen.glyphs.person, TROUBLE)
        self._screen.verbatim(f"{KEYS}  ", QUIET)

    def _show(self, question: Question, lines_max: int | None = VALUE_LINES) -> None:
        screen = self._screen
        screen.end()
        screen.line(question.question, TROUBLE, mark=screen.glyphs.trouble)
        for name, value in question.arguments.items():
            screen.verbatim(f"  {name}: ", QUIET)
            changes = _changes(value) if name == "edits" else None
            written = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            lines = written.splitlines() if changes is None else ["", *changes]
            self._show_lines(lines or [""], lines_max)

    def _show_lines(self, lines: Sequence[str], lines_max: int | None) -> None:
        """The first line where the page is, the others below it."""
        screen, (first, *others) = self._screen, lines
        screen.verbatim(first, CALLED)
        screen.newline()
        shown = others[:lines_max]
        for line in shown:
            style = {"+": GOOD, "-": BAD}.get(line[:1], CALLED) if not first else CALLED
            screen.verbatim(f"    {line}", style)
            screen.newline()
        if len(others) > len(shown):
            left = f"    {screen.glyphs.cut} +{len(others) - len(shown)} lines: s shows all of it"
            screen.verbatim(left, QUIET)
            screen.newline()

    async def _line(self, prompt: str) -> str | None:
        self._screen.end()
        typed = await self._keyboard.line(lambda: self._screen.verbatim(f"  {prompt}: ", QUIET))
        self._screen.typed()
        return typed

    async def _deny(self) -> Deny:
        reason = await self._line("why (for the model; may be empty)")
        return Deny((reason or "").strip() or "The user said no.", "person")

    async def _always(self, question: Question) -> Always | None:
        name = question.call.name
        self._screen.verbatim("always", GOOD)
        pattern = await self._line(f"for exactly this call, or a pattern such as {name}(…*)")
        spec = self.specs.get(name)
        if pattern is None:
            return None
        try:
            if spec is not None:
                grant_for(spec, question.arguments, pattern.strip(), ())
        except ConfigError as error:
            self._screen.line(str(error), BAD, mark=self._screen.glyphs.no)
            return None
        return Always(pattern.strip(), "person")

    async def _edit(self, question: Question) -> Modify | None:
        """The arguments as the person's own editor gives them back."""
        before = _pretty(question.arguments)
        try:
            written = await asyncio.to_thread(click.edit, before, extension=".json")
            after = msgspec.json.decode(written or before, type=dict[str, Any])
        except (click.ClickException, msgspec.MsgspecError) as error:
            told = (
                f"not taken: {error.message if isinstance(error, click.ClickException) else error}"
            )
            self._screen.line(told, BAD, mark=self._screen.glyphs.no)
            return None
        if after == question.arguments:
            self._screen.line("nothing was changed", QUIET, mark=self._screen.glyphs.progress)
            return None
        spec = self.specs.get(question.call.name)
        schema = Schema(spec.parameters) if spec else None
        if schema and not schema.accepts(after):
            told = f"not taken: they do not fit {question.call.name}: {outline(schema)}"
            self._screen.line(told, BAD, mark=self._screen.glyphs.no)
            return None
        self._show_change(before, _pretty(after))
        return Modify(after, "The user changed the arguments.", "person")

    def _show_change(self, before: str, after: str) -> None:
        self._screen.end()
        changed = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        for line in list(changed)[3:]:
            self._screen.verbatim(f"  {line}", GOOD if line.startswith("+") else BAD)
            self._screen.newline()


class _Change(msgspec.Struct):
    old: str
    new: str


def _changes(edits: object) -> list[str] | None:
    """The edits of a file as lines that go and lines that come, if that is what they are."""
    try:
        changes = msgspec.convert(edits, list[_Change])
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


def _pretty(arguments: Mapping[str, object]) -> str:
    return msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode() + "\n"
