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
from windlass.core.suggestions import suggest_names
from windlass.gates.globs import MatchResult, compile_glob, printable_text
from windlass.gates.paths import match_path
from windlass.gates.shell_commands import CommandPart, check_command_pattern, split_command
from windlass.gates.urls import check_url_pattern, match_url

ArgumentKind: TypeAlias = Literal["command", "path", "url", "text"]

MAIN_ARGUMENTS = ("command", "path", "url", "query")
TOOL_TRAITS: tuple[str, ...] = (*get_args(Effect), *get_args(Label))
CORE_MAIN_ARGUMENTS: dict[str, str] = {
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

_PATTERN_FORM = re.compile(r"(@?[A-Za-z0-9_.:*?-]+)(?:\((.*)\))?", re.DOTALL)
_NAMED_ARGUMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)
_PATH_NAMES = re.compile(
    r"(.*_)?(path|paths|file|files|filename|filepath|dir|directory|folder|root|cwd|src|dst|dest|"
    r"source|destination)",
    re.IGNORECASE,
)
_COMMAND_NAMES = frozenset(["command", "cmd", "script"])
_KINDS_BY_FORMAT: dict[str, ArgumentKind] = {
    "path": "path",
    "file-path": "path",
    "directory-path": "path",
    "uri": "url",
    "iri": "url",
}
_BETWEEN_ADDRESSES = re.compile(r"[\s,;<>\"'()]+")


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What is judged by itself: a part of a command, an item of a list, or the whole argument."""

    value: object
    part: CommandPart | None = None

    @property
    def is_aside(self) -> bool:
        return self.part is not None and self.part.is_aside

    @property
    def doubt(self) -> str:
        return self.part.doubt if self.part else ""

    @property
    def display_text(self) -> str:
        return self.part.display_text if self.part else printable_text(_to_text(self.value))


@dataclass(frozen=True)
class PreparedCall:
    """A call, made ready for rules."""

    tool: ToolSpec
    arguments: Mapping[str, Any]
    root: str | None = None

    @cached_property
    def argument_schemas(self) -> dict[str, dict[str, Any]]:
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
    def is_main_guessed(self) -> bool:
        """Which argument counts is not known: the tool does not say, and the call names several."""
        return not self.tool.parameters.get("properties") and len(self.arguments) > 1

    @cached_property
    def main_argument(self) -> str | None:
        fields = self.argument_schemas
        texts = (name for name, field in fields.items() if _is_text_schema(field))
        return next((name for name in MAIN_ARGUMENTS if name in fields), next(texts, None))

    @cached_property
    def pieces(self) -> tuple[CallPiece, ...]:
        name = self.main_argument
        if name is None or (given := self.argument_value(name)) is None:
            return (CallPiece(None),)
        if self.argument_kind(name) == "command" and isinstance(given, str):
            return tuple(CallPiece(given, part) for part in split_command(given))
        if isinstance(given, list) and given:
            return tuple(map(CallPiece, cast("list[object]", given)))
        return (CallPiece(cast("object", given)),)

    def argument_value(self, name: str) -> object:
        return self.arguments.get(name, self.argument_schemas.get(name, {}).get("default"))

    def argument_kind(self, name: str) -> ArgumentKind:
        return _KINDS_BY_FORMAT.get(
            str(self.argument_schemas.get(name, {}).get("format"))
        ) or kind_by_name(name)


def kind_by_name(name: str) -> ArgumentKind:
    """What an argument of this name is taken for."""
    if name in _COMMAND_NAMES:
        return "command"
    if name in {"url", "uri", "urls", "href"} or name.endswith(("_url", "_uri")):
        return "url"
    return "path" if _PATH_NAMES.fullmatch(name) else "text"


@dataclass(frozen=True, slots=True)
class CallPattern:
    text: str
    tool: str
    argument: str
    """The name of an argument, or nothing for the main one."""
    value_pattern: str
    """What the argument must look like; `*` for anything."""

    def match(self, call: PreparedCall, piece: CallPiece) -> MatchResult:
        if not self._names_tool(call.tool):
            return MatchResult.NO
        if not self.argument and self.value_pattern in {"*", "**"}:
            return MatchResult.YES
        if self.argument in call.argument_schemas:
            return self._match_named(call, piece)
        if self.argument and not (piece.part and self.argument.isupper()):
            return MatchResult.MAYBE  # The tool has no such argument: perhaps by a slip of the pen.
        if call.main_argument is None:
            return MatchResult.MAYBE if call.arguments else MatchResult.NO
        # What looks like a name may be the beginning of a command: `bash(CI=1)`.
        inside = f"{self.argument}={self.value_pattern}" if self.argument else self.value_pattern
        found = match_value(
            inside, piece.value, piece.part, call.argument_kind(call.main_argument), call.root
        )
        return min(found, MatchResult.MAYBE) if call.is_main_guessed else found

    def _match_named(self, call: PreparedCall, piece: CallPiece) -> MatchResult:
        kind = call.argument_kind(self.argument)
        if self.argument == call.main_argument:
            return match_value(self.value_pattern, piece.value, piece.part, kind, call.root)
        given = call.argument_value(self.argument)
        if kind == "command" and isinstance(given, str):
            return combine_matches(
                [match_command_part(self.value_pattern, part) for part in split_command(given)]
            )
        return match_value(self.value_pattern, given, None, kind, call.root)

    def _names_tool(self, tool: ToolSpec) -> bool:
        if self.tool.startswith("@"):
            return self.tool[1:] in {tool.effect, *tool.labels}
        # A rule that is meant must not miss for a capital, nor for the prefix that others give.
        names = [tool.name, f"mcp__{tool.name}"] if "__" in tool.name else [tool.name]
        return any(compile_glob(self.tool).match(name) is not MatchResult.NO for name in names)


def parse_pattern(text: str) -> CallPattern:
    """Read a pattern; refuse one that cannot be meant."""
    form = _PATTERN_FORM.fullmatch(text.strip())
    if form is None:
        raise ConfigError(f"{text!r} is no pattern: write tool, or tool(pattern)")
    tool, inside = form[1], form[2]
    if tool.startswith("@") and tool[1:] not in TOOL_TRAITS:
        raise ConfigError(f"{tool} is no effect or label.{suggest_names(tool[1:], TOOL_TRAITS)}")
    if inside is not None and not inside.strip():
        raise ConfigError(f"{text!r} has an empty pattern: write {tool}, or {tool}(*)")
    named = _NAMED_ARGUMENT.fullmatch(inside or "")
    argument, wanted = (named[1], named[2].strip()) if named else ("", (inside or "*").strip())
    _check_value_pattern(
        text, wanted, kind_by_name(argument or CORE_MAIN_ARGUMENTS.get(tool.casefold(), ""))
    )
    return CallPattern(text.strip(), tool, argument, wanted)


def _check_value_pattern(text: str, value_pattern: str, kind: ArgumentKind) -> None:
    if value_pattern in {"*", "**"}:
        return
    if kind != "command" and re.search(r", *[a-z_]+=", value_pattern):
        raise ConfigError(f"{text!r}: a pattern speaks of one argument: write a rule for each")
    try:
        if kind == "command":
            check_command_pattern(value_pattern)
        elif kind == "url":
            check_url_pattern(value_pattern)
    except ConfigError as error:
        raise ConfigError(f"{text!r}: {error}") from None


def combine_matches(matches: Sequence[MatchResult]) -> MatchResult:
    """All for certain, or any perhaps."""
    if not matches:
        return MatchResult.NO
    return (
        MatchResult.YES if min(matches) is MatchResult.YES else min(MatchResult.MAYBE, max(matches))
    )


def match_value(
    pattern: str, value: object, part: CommandPart | None, kind: ArgumentKind, root: str | None
) -> MatchResult:
    """Whether a value is what the pattern means, as the kind of value that it is."""
    if part is not None:
        return match_command_part(pattern, part)
    if value is None:
        return MatchResult.NO
    if pattern in {"*", "**"}:
        return MatchResult.YES
    if isinstance(value, list):
        items = cast("list[object]", value)
        return combine_matches([match_value(pattern, item, None, kind, root) for item in items])
    if isinstance(value, Mapping) or kind == "command":
        return MatchResult.MAYBE
    return _match_text(pattern, _to_text(value), kind, root)


def match_command_part(pattern: str, part: CommandPart) -> MatchResult:
    """Whether a part of a command is what the pattern means. `git log:*` is `git log` and more."""
    wanted = " ".join(pattern.split())
    wanted = [wanted[:-2], f"{wanted[:-2]} *"] if wanted.endswith(":*") else [wanted]
    return combine_matches(
        [max(compile_glob(one).match(text) for one in wanted) for text in part.spellings]
    )


def _match_text(pattern: str, value: str, kind: ArgumentKind, root: str | None) -> MatchResult:
    if kind == "path":
        return match_path(pattern, value, root)
    as_text = compile_glob(pattern).match(value)
    if kind == "url" or "://" in pattern:
        found = match_url(pattern, value)
    elif "/" in pattern or "**" in pattern:
        found = match_path(pattern, value, root)
    elif "@" in pattern:
        found = _match_addresses(pattern, value)
    else:
        return as_text
    # Where the kind is a guess, only what holds either way is certain.
    return (
        found
        if found is MatchResult.YES or kind == "url"
        else max(found, min(MatchResult.MAYBE, as_text))
    )


def _match_addresses(pattern: str, value: str) -> MatchResult:
    """One address, not a list of them that ends as it should."""
    given = [one for one in _BETWEEN_ADDRESSES.split(value) if one]
    found = max((compile_glob(pattern, "@").match(one) for one in given), default=MatchResult.NO)
    return found if given == [value] else min(MatchResult.MAYBE, found)


def _is_text_schema(field: dict[str, Any]) -> bool:
    kind: object = field.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
