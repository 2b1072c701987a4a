"""Patterns of rules: which calls a rule applies to.

    bash                        every call of the tool
    bash(git status*)           its main argument: command, path, url or query, else the first text
    send(to=*@example.com)      an argument by its name
    github__*                   every tool with such a name, here of one MCP server
    @read, @external            every tool with this effect or label

Invariant: an argument is matched by its kind. A command is matched part by part, a path and a URL
in their normal form, anything else as text. A pattern is about one argument and says nothing about
the others. The schema of the tool decides which argument is the main one, not the call.
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
"""The main argument of the core tools, to check patterns for them without a schema."""

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
    """What is judged on its own: a part of a command, an item of a list, or the whole argument."""

    value: object
    part: CommandPart | None = None

    @property
    def is_aside(self) -> bool:
        """Whether rules may deny it or ask about it, but need not allow it."""
        return self.part is not None and self.part.is_aside

    @property
    def doubt(self) -> str:
        """Why it could not be read with certainty; empty if it could."""
        return self.part.doubt if self.part else ""

    @property
    def display_text(self) -> str:
        """The piece in one printable line."""
        if self.part:
            return self.part.display_text
        return printable_text(_to_text(self.value))


@dataclass(frozen=True)
class PreparedCall:
    """A call with its pieces, ready to be matched. `root`: where relative paths start."""

    tool: ToolSpec
    arguments: Mapping[str, Any]
    root: str | None = None

    @cached_property
    def argument_schemas(self) -> dict[str, dict[str, Any]]:
        """The schema of each argument. A tool without schemas has those that the call names."""
        listed: object = self.tool.parameters.get("properties")
        if not isinstance(listed, dict) or not listed:
            return {name: {} for name in self.arguments}
        schemas: dict[str, dict[str, Any]] = {}
        for name, schema in cast("dict[str, object]", listed).items():
            schemas[name] = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        return schemas

    @cached_property
    def is_main_guessed(self) -> bool:
        """Whether the main argument is a guess: the tool has no schema, and several are given."""
        return not self.tool.parameters.get("properties") and len(self.arguments) > 1

    @cached_property
    def main_argument(self) -> str | None:
        """The name of the argument that patterns without a name are matched against."""
        schemas = self.argument_schemas
        known = [name for name in MAIN_ARGUMENTS if name in schemas]
        texts = [name for name, schema in schemas.items() if _is_text_schema(schema)]
        return next(iter([*known, *texts]), None)

    @cached_property
    def pieces(self) -> tuple[CallPiece, ...]:
        """The parts of the main argument; rules decide on each of them."""
        name = self.main_argument
        if name is None or (given := self.argument_value(name)) is None:
            return (CallPiece(None),)
        if self.argument_kind(name) == "command" and isinstance(given, str):
            return tuple(CallPiece(given, part) for part in split_command(given, self.root))
        if isinstance(given, list) and given:
            return tuple(map(CallPiece, cast("list[object]", given)))
        return (CallPiece(cast("object", given)),)

    def argument_value(self, name: str) -> object:
        """The value that the tool will get: the one given, or its default."""
        return self.arguments.get(name, self.argument_schemas.get(name, {}).get("default"))

    def argument_kind(self, name: str) -> ArgumentKind:
        """How the argument is matched, by the format in its schema or else by its name."""
        declared = str(self.argument_schemas.get(name, {}).get("format"))
        return _KINDS_BY_FORMAT.get(declared) or kind_by_name(name)


def kind_by_name(name: str) -> ArgumentKind:
    """How an argument of this name is matched."""
    if name in _COMMAND_NAMES:
        return "command"
    if name in {"url", "uri", "urls", "href"} or name.endswith(("_url", "_uri")):
        return "url"
    return "path" if _PATH_NAMES.fullmatch(name) else "text"


@dataclass(frozen=True, slots=True)
class CallPattern:
    """A parsed pattern."""

    text: str
    tool: str
    argument: str
    """The name of an argument; empty for the main one."""
    value_pattern: str
    """A pattern for the value of the argument; `*` for any value."""

    def match(self, call: PreparedCall, piece: CallPiece) -> MatchResult:
        """Whether the pattern matches this piece of the call."""
        if not self._names_tool(call.tool):
            return MatchResult.NO
        if not self.argument and self.value_pattern in {"*", "**"}:
            return MatchResult.YES
        if self.argument in call.argument_schemas:
            return self._match_named(call, piece)
        if self.argument and not (piece.part and self.argument.isupper()):
            return MatchResult.MAYBE  # The tool has no such argument: the pattern may have a typo.
        if call.main_argument is None:
            return MatchResult.MAYBE if call.arguments else MatchResult.NO
        pattern = self.value_pattern
        if self.argument:
            # In `bash(CI=1)`, what looks like the name of an argument is an assignment.
            pattern = f"{self.argument}={pattern}"
        kind = call.argument_kind(call.main_argument)
        found = match_value(pattern, piece.value, piece.part, kind, call.root)
        return found.doubted_if(call.is_main_guessed)

    def _match_named(self, call: PreparedCall, piece: CallPiece) -> MatchResult:
        kind = call.argument_kind(self.argument)
        if self.argument == call.main_argument:
            return match_value(self.value_pattern, piece.value, piece.part, kind, call.root)
        given = call.argument_value(self.argument)
        if kind == "command" and isinstance(given, str):
            parts = split_command(given, call.root)
            return combine_matches([match_command_part(self.value_pattern, part) for part in parts])
        return match_value(self.value_pattern, given, None, kind, call.root)

    def _names_tool(self, tool: ToolSpec) -> bool:
        if self.tool.startswith("@"):
            return self.tool[1:] in {tool.effect, *tool.labels}
        # A rule must not miss a tool because of upper case or the `mcp__` that other programs add.
        if "__" in tool.name:
            names = [tool.name, f"mcp__{tool.name}"]
        else:
            names = [tool.name]
        return any(compile_glob(self.tool).match(name) is not MatchResult.NO for name in names)


def parse_pattern(text: str) -> CallPattern:
    """Parse a pattern. Raises ConfigError if it is not one, or can never match."""
    form = _PATTERN_FORM.fullmatch(text.strip())
    if form is None:
        raise ConfigError(f"{text!r} is not a pattern: write tool, or tool(pattern)")
    tool = form[1]
    inside = form[2]
    if tool.startswith("@") and tool[1:] not in TOOL_TRAITS:
        hint = suggest_names(tool[1:], TOOL_TRAITS)
        raise ConfigError(f"{tool} is not an effect or a label.{hint}")
    if inside is not None and not inside.strip():
        raise ConfigError(f"{text!r} has an empty pattern: write {tool}, or {tool}(*)")
    argument = ""
    value_pattern = (inside or "*").strip()
    if named := _NAMED_ARGUMENT.fullmatch(inside or ""):
        argument = named[1]
        value_pattern = named[2].strip()
    kind = kind_by_name(argument or CORE_MAIN_ARGUMENTS.get(tool.casefold(), ""))
    _check_value_pattern(text, value_pattern, kind)
    return CallPattern(text.strip(), tool, argument, value_pattern)


def _check_value_pattern(text: str, value_pattern: str, kind: ArgumentKind) -> None:
    if value_pattern in {"*", "**"}:
        return
    if kind != "command" and re.search(r", *[a-z_]+=", value_pattern):
        raise ConfigError(f"{text!r}: a pattern is about one argument: write a rule for each")
    try:
        if kind == "command":
            check_command_pattern(value_pattern)
        elif kind == "url":
            check_url_pattern(value_pattern)
    except ConfigError as error:
        raise ConfigError(f"{text!r}: {error}") from None


def combine_matches(matches: Sequence[MatchResult]) -> MatchResult:
    """YES if all match for certain, MAYBE if any might, else NO."""
    if not matches:
        return MatchResult.NO
    if min(matches) is MatchResult.YES:
        return MatchResult.YES
    return min(MatchResult.MAYBE, max(matches))


def match_value(
    pattern: str, value: object, part: CommandPart | None, kind: ArgumentKind, root: str | None
) -> MatchResult:
    """Whether a value matches a pattern, by its kind."""
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
    """Whether a part of a command matches. `git log:*` is `git log` with any arguments."""
    wanted = " ".join(pattern.split())
    globs = [compile_glob(wanted)]
    if wanted.endswith(":*"):
        command = wanted.removesuffix(":*")
        globs = [compile_glob(command), compile_glob(f"{command} *")]
    return combine_matches([max(glob.match(text) for glob in globs) for text in part.spellings])


def _match_text(pattern: str, value: str, kind: ArgumentKind, root: str | None) -> MatchResult:
    if kind == "path":
        return match_path(pattern, value, root)
    as_text = compile_glob(pattern).match(value)
    if kind == "url" or "://" in pattern:
        found = match_url(pattern, value)
    elif "/" in pattern or "**" in pattern:
        found = match_path(pattern, value, root)
    elif "@" in pattern:
        # A list of them must not match because its last one does.
        addresses = [address for address in _BETWEEN_ADDRESSES.split(value) if address]
        glob = compile_glob(pattern, "@")
        best = max((glob.match(address) for address in addresses), default=MatchResult.NO)
        found = best.doubted_if(addresses != [value])
    else:
        return as_text
    if found is MatchResult.YES or kind == "url":
        return found
    # The kind is a guess from the pattern: a match as plain text may count, too.
    return max(found, min(MatchResult.MAYBE, as_text))


def _is_text_schema(field: dict[str, Any]) -> bool:
    kind: object = field.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
