"""Patterns of rules: which calls a rule speaks of.

    bash                        every call of the tool
    bash(git status*)           its main argument: command, path, url or query, else the first text
    send(to=*@example.com)      an argument by its name
    github__*                   every tool with such a name, here of one MCP server
    @read, @external            every tool with this effect or label

The law: an argument is matched as what it is. A command is matched part by part, a path and an
address in their one spelling, anything else as text. A pattern speaks of one argument and says
nothing of the others. Which argument is the main one is the schema's to say, not the call's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect, Label, ToolSpec
from windlass.core.suggestions import did_you_mean
from windlass.gates.globs import Match, glob, shown
from windlass.gates.paths import match_path
from windlass.gates.shell_commands import Part, check_pattern, parts
from windlass.gates.urls import check_url, match_url

Kind: TypeAlias = Literal["command", "path", "url", "text"]

MAIN = ("command", "path", "url", "query")
TRAITS: tuple[str, ...] = (*get_args(Effect), *get_args(Label))
CORE: dict[str, str] = {
    "bash": "command",
    "shell": "command",
    "fetch": "url",
    "read": "path",
    "write": "path",
    "edit": "path",
    "glob": "path",
    "grep": "path",
}
"""The main argument of the tools that everyone has, so that their patterns are checked at once."""

_FORM = re.compile(r"(@?[A-Za-z0-9_.:*?-]+)(?:\((.*)\))?", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
_PATHS = re.compile(
    r"(.*_)?(path|paths|file|files|filename|filepath|dir|directory|folder|root|cwd|src|dst|dest|"
    r"source|destination)",
    re.IGNORECASE,
)
_COMMANDS = frozenset(["command", "cmd", "script"])
_FORMATS: dict[str, Kind] = {
    "path": "path",
    "file-path": "path",
    "directory-path": "path",
    "uri": "url",
    "iri": "url",
}
_BETWEEN_ADDRESSES = re.compile(r"[\s,;<>\"'()]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """What is judged by itself: a part of a command, an item of a list, or the whole argument."""

    value: object
    part: Part | None = None

    @property
    def aside(self) -> bool:
        return self.part is not None and self.part.aside

    @property
    def doubt(self) -> str:
        return self.part.doubt if self.part else ""

    @property
    def shown(self) -> str:
        return self.part.shown if self.part else shown(_text(self.value))


@dataclass(frozen=True)
class Call:
    """A call, made ready for rules."""

    tool: ToolSpec
    arguments: Mapping[str, Any]
    root: str | None = None

    @cached_property
    def fields(self) -> dict[str, dict[str, Any]]:
        """The schemas of the tool's arguments; of those given, if it has none."""
        listed: object = self.tool.parameters.get("properties")
        if not isinstance(listed, dict) or not listed:
            return {name: {} for name in self.arguments}
        known = cast("dict[str, object]", listed)
        return {
            name: cast("dict[str, Any]", field) if isinstance(field, dict) else {}
            for name, field in known.items()
        }

    @cached_property
    def guessed(self) -> bool:
        """Which argument counts is not known: the tool does not say, and the call names several."""
        return not self.tool.parameters.get("properties") and len(self.arguments) > 1

    @cached_property
    def main(self) -> str | None:
        fields = self.fields
        texts = (name for name, field in fields.items() if _is_text(field))
        return next((name for name in MAIN if name in fields), next(texts, None))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        name = self.main
        if name is None or (given := self.value(name)) is None:
            return (Piece(None),)
        if self.kind(name) == "command" and isinstance(given, str):
            return tuple(Piece(given, part) for part in parts(given))
        if isinstance(given, list) and given:
            return tuple(map(Piece, cast("list[object]", given)))
        return (Piece(cast("object", given)),)

    def value(self, name: str) -> object:
        return self.arguments.get(name, self.fields.get(name, {}).get("default"))

    def kind(self, name: str) -> Kind:
        return _FORMATS.get(str(self.fields.get(name, {}).get("format"))) or kind_of(name)


def kind_of(name: str) -> Kind:
    """What an argument of this name is taken for."""
    if name in _COMMANDS:
        return "command"
    if name in {"url", "uri", "urls", "href"} or name.endswith(("_url", "_uri")):
        return "url"
    return "path" if _PATHS.fullmatch(name) else "text"


@dataclass(frozen=True, slots=True)
class Pattern:
    text: str
    tool: str
    argument: str
    """The name of an argument, or nothing for the main one."""
    inside: str
    """What the argument must look like; `*` for anything."""

    def match(self, call: Call, piece: Piece) -> Match:
        if not self._names(call.tool):
            return Match.NO
        if not self.argument and self.inside in {"*", "**"}:
            return Match.YES
        if self.argument in call.fields:
            return self._match_named(call, piece)
        if self.argument and not (piece.part and self.argument.isupper()):
            return Match.MAYBE  # The tool has no such argument: perhaps by a slip of the pen.
        if call.main is None:
            return Match.MAYBE if call.arguments else Match.NO
        # What looks like a name may be the beginning of a command: `bash(CI=1)`.
        inside = f"{self.argument}={self.inside}" if self.argument else self.inside
        found = match_value(inside, piece.value, piece.part, call.kind(call.main), call.root)
        return min(found, Match.MAYBE) if call.guessed else found

    def _match_named(self, call: Call, piece: Piece) -> Match:
        kind = call.kind(self.argument)
        if self.argument == call.main:
            return match_value(self.inside, piece.value, piece.part, kind, call.root)
        given = call.value(self.argument)
        if kind == "command" and isinstance(given, str):
            return together([match_part(self.inside, part) for part in parts(given)])
        return match_value(self.inside, given, None, kind, call.root)

    def _names(self, tool: ToolSpec) -> bool:
        if self.tool.startswith("@"):
            return self.tool[1:] in {tool.effect, *tool.labels}
        # A rule that is meant must not miss for a capital, nor for the prefix that others give.
        names = [tool.name, f"mcp__{tool.name}"] if "__" in tool.name else [tool.name]
        return any(glob(self.tool).match(name) is not Match.NO for name in names)


def parse(text: str) -> Pattern:
    """Read a pattern; refuse one that cannot be meant."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ConfigError(f"{text!r} is no pattern: write tool, or tool(pattern)")
    tool, inside = form[1], form[2]
    if tool.startswith("@") and tool[1:] not in TRAITS:
        raise ConfigError(f"{tool} is no effect or label.{did_you_mean(tool[1:], TRAITS)}")
    if inside is not None and not inside.strip():
        raise ConfigError(f"{text!r} has an empty pattern: write {tool}, or {tool}(*)")
    named = _NAMED.fullmatch(inside or "")
    argument, wanted = (named[1], named[2].strip()) if named else ("", (inside or "*").strip())
    _check(text, wanted, kind_of(argument or CORE.get(tool.casefold(), "")))
    return Pattern(text.strip(), tool, argument, wanted)


def _check(text: str, inside: str, kind: Kind) -> None:
    if inside in {"*", "**"}:
        return
    if kind != "command" and re.search(r", *[a-z_]+=", inside):
        raise ConfigError(f"{text!r}: a pattern speaks of one argument: write a rule for each")
    try:
        if kind == "command":
            check_pattern(inside)
        elif kind == "url":
            check_url(inside)
    except ConfigError as error:
        raise ConfigError(f"{text!r}: {error}") from None


def together(found: Sequence[Match]) -> Match:
    """All for certain, or any perhaps."""
    if not found:
        return Match.NO
    return Match.YES if min(found) is Match.YES else min(Match.MAYBE, max(found))


def match_value(
    inside: str, value: object, part: Part | None, kind: Kind, root: str | None
) -> Match:
    """Whether a value is what the pattern means, as the kind of value that it is."""
    if part is not None:
        return match_part(inside, part)
    if value is None:
        return Match.NO
    if inside in {"*", "**"}:
        return Match.YES
    if isinstance(value, list):
        items = cast("list[object]", value)
        return together([match_value(inside, item, None, kind, root) for item in items])
    if isinstance(value, Mapping) or kind == "command":
        return Match.MAYBE
    return _match_text(inside, _text(value), kind, root)


def match_part(inside: str, part: Part) -> Match:
    """Whether a part of a command is what the pattern means. `git log:*` is `git log` and more."""
    wanted = " ".join(inside.split())
    wanted = [wanted[:-2], f"{wanted[:-2]} *"] if wanted.endswith(":*") else [wanted]
    return together([max(glob(one).match(text) for one in wanted) for text in part.texts])


def _match_text(inside: str, value: str, kind: Kind, root: str | None) -> Match:
    if kind == "path":
        return match_path(inside, value, root)
    as_text = glob(inside).match(value)
    if kind == "url" or "://" in inside:
        found = match_url(inside, value)
    elif "/" in inside or "**" in inside:
        found = match_path(inside, value, root)
    elif "@" in inside:
        found = _match_addresses(inside, value)
    else:
        return as_text
    # Where the kind is a guess, only what holds either way is certain.
    return found if found is Match.YES or kind == "url" else max(found, min(Match.MAYBE, as_text))


def _match_addresses(inside: str, value: str) -> Match:
    """One address, not a list of them that ends as it should."""
    given = [one for one in _BETWEEN_ADDRESSES.split(value) if one]
    found = max((glob(inside, "@").match(one) for one in given), default=Match.NO)
    return found if given == [value] else min(Match.MAYBE, found)


def _is_text(field: dict[str, Any]) -> bool:
    kind: object = field.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
