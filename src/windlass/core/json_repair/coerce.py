"""A value of almost the right shape in, one of the right shape out, by the tool's schema.

The law: only what does not fit is touched, and only where one conversion fits. A value that could
become two things stays as it is, and is refused by the validator. No field with content is dropped.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from windlass.core.json_repair.lenient import read_exactly
from windlass.core.json_repair.strict import Read, note, same
from windlass.core.messages import Change
from windlass.core.schema import (
    Json,
    Node,
    Path,
    Schema,
    branches,
    kind_of,
    properties,
    required,
)

DEPTH_MAX = 32

ALIASES = (
    ("path", "file_path", "filename", "file", "target_file", "file_to_read"),
    ("command", "cmd", "shell_command", "bash_command"),
    ("query", "q", "search_query", "search_term"),
    ("content", "contents", "file_content", "file_contents", "file_text"),
    ("url", "uri", "link", "href"),
    ("old", "old_string", "old_str", "old_text"),
    ("new", "new_string", "new_str", "new_text"),
    ("pattern", "regex", "regexp"),
    ("directory", "dir", "folder"),
    ("limit", "max_results", "num_results"),
)
"""Names that models use for one another. No group mixes units: `timeout` is not `timeout_ms`."""
ENVELOPES = frozenset(("arguments", "args", "parameters", "params", "input", "kwargs"))

Candidate: TypeAlias = tuple[Json, str]

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,30})")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?")
_NOTHING = frozenset(("", "null", "none"))
# `a, b` may be one item or two, and what begins as JSON but is none was meant to be some.
_NOT_ONE_ITEM = re.compile(r"\s*[\[{]|.*[,;\n]", re.DOTALL)


def reshape(schema: Schema, value: Json) -> tuple[Json, tuple[Change, ...]]:
    """The value as the schema wants it, as far as that is clear, and what was done."""
    shaper = _Shaper(schema.node)
    fields = shaper.whole(schema.node, value)
    if isinstance(fields, dict):
        fields = shaper.fit(schema.node, fields, ())
    return fields, tuple(shaper.changes)


def complete(root: Node, node: Json, value: Json, depth: int) -> bool:
    """Whether nothing can be missing at the end of text that left so many containers open.

    Each of them is an object that has all its declared fields; of a list or a free-form map,
    nobody can say whether it had more.
    """
    if depth == 0:
        return True
    kinds = [part for part in branches(root, node) if fits(part, value)]
    if not isinstance(value, dict) or len(kinds) != 1:
        return False
    declared = properties(kinds[0])
    if not declared or kinds[0].get("additionalProperties") or not declared.keys() <= value.keys():
        return False
    last = next(reversed(value))
    return complete(root, declared.get(last), value[last], depth - 1)


def fits(node: Node, value: Json) -> bool:
    """Whether a value is of the kind that a simple schema asks for."""
    kind = kind_of(value)
    match node:
        case {"type": wanted}:
            return kind == wanted or (wanted == "number" and kind == "integer")
        case {"const": only}:
            return kind == kind_of(only)
        case {"enum": list() as options}:
            return kind in map(kind_of, options)
        case {"properties": _}:
            return kind == "object"
        case _:
            return True


class _Shaper:
    """One walk over one value, beside its schema."""

    __slots__ = ("changes", "root")

    def __init__(self, root: Node) -> None:
        self.root = root
        self.changes: list[Change] = []

    def note(self, path: Path, what: str) -> None:
        note(self.changes, path, what)

    def whole(self, node: Node, value: Json) -> Json:
        """The object itself, where it came in a list, in an envelope or as its only field."""
        declared = properties(node)
        match value:
            case [dict() as only]:
                self.note((), "list around the object removed")
                return only
            case list() if len(declared) == 1:
                # Not so a string, which may be prose, nor a number, which may be cut.
                name, part = next(iter(declared.items()))
                if any(fits(branch, value) for branch in branches(self.root, part)):
                    self.note((name,), "bare list put into the only field")
                    return {name: value}
                return value
            case dict() if len(value) == 1 and not value.keys() & declared.keys():
                return self.enveloped(value)
            case _:
                return value

    def enveloped(self, value: dict[str, Json]) -> Json:
        ((name, inner),) = value.items()
        opened = self.parsed(inner, dict) if isinstance(inner, str) else inner
        if name not in ENVELOPES or not isinstance(opened, dict):
            return value
        self.note((), "envelope around the arguments removed")
        return opened

    def fit(self, node: Json, value: Json, path: Path) -> Json:
        if len(path) > DEPTH_MAX:
            return value
        options = branches(self.root, node)
        fitting = [option for option in options if fits(option, value)]
        if len(fitting) == 1:
            return self.inside(fitting[0], value, path)
        return value if fitting else self.converted(options, value, path)

    def inside(self, node: Node, value: Json, path: Path) -> Json:
        match value:
            case dict():
                return self.fields(node, value, path)
            case list() if "items" in node:
                items = node["items"]
                return [self.fit(items, item, (*path, at)) for at, item in enumerate(value)]
            case str():
                return self.option(node, value, path)
            case _:
                return value

    def option(self, node: Node, value: str, path: Path) -> Json:
        options = node.get("enum")
        if not isinstance(options, list) or value in options:
            return value
        meant = value.strip().casefold()
        near = [one for one in options if isinstance(one, str) and one.casefold() == meant]
        if len(near) != 1:
            return value
        self.note(path, "spelled as the schema spells it")
        return near[0]

    def fields(self, node: Node, value: dict[str, Json], path: Path) -> Json:
        declared, needed = properties(node), required(node)
        closed = node.get("additionalProperties") is False
        names = self.renamed(node, value)
        result: dict[str, Json] = {}
        for key, item in value.items():
            name = names.get(key, key)
            at = (*path, name)
            if name not in declared:
                if closed and item in (None, "", [], {}):
                    self.note(at, "unknown empty field dropped")
                    continue
                result[name] = self.fit(node.get("additionalProperties"), item, at)
                continue
            if name != key:
                self.note(at, "field renamed")
            if name not in needed and self.is_nothing(declared[name], item):
                self.note(at, "null for an optional field dropped")
                continue
            result[name] = self.fit(declared[name], item, at)
        return result

    def renamed(self, node: Node, value: dict[str, Json]) -> dict[str, str]:
        """New names of unknown fields, where each has one, and no two have the same."""
        declared, needed = properties(node), required(node)
        closed = node.get("additionalProperties") is False
        free = [name for name in declared if name not in value and (closed or name in needed)]
        spelled, meant = _grouped(free, _plain), _grouped(free, _meaning)
        found: dict[str, str] = {}
        for key in value.keys() - declared.keys():
            near = spelled.get(_plain(key)) or meant.get(_meaning(key)) or []
            if len(near) == 1:
                found[key] = near[0]
        taken = Counter(found.values())
        return {key: name for key, name in found.items() if taken[name] == 1}

    def is_nothing(self, node: Json, item: Json) -> bool:
        """Null, or a word for it where no text can stand, for a field that may be left out."""
        if any(fits(option, item) for option in branches(self.root, node)):
            return False
        return item is None or (isinstance(item, str) and item.strip().casefold() in _NOTHING)

    def converted(self, options: tuple[Node, ...], value: Json, path: Path) -> Json:
        found = [(one, node) for node in options for one in self.candidates(node, value)]
        if not found or any(not same(one[0], found[0][0][0]) for one, _ in found):
            return value
        (result, what), node = found[0]
        self.note(path, what)
        return self.inside(node, result, path)

    def candidates(self, node: Node, value: Json) -> Iterator[Candidate]:
        match node.get("type"), value:
            case "boolean", str() if value.strip().casefold() in {"true", "false"}:
                yield value.strip().casefold() == "true", "string to boolean"
            case "integer", str() if _INTEGER.fullmatch(value.strip()):
                yield int(value), "string to integer"
            case "number", str() if _INTEGER.fullmatch(value.strip()):
                yield int(value), "string to number"
            case "number", str() if _NUMBER.fullmatch(value.strip()):
                yield float(value), "string to number"
            case "string", int() if not isinstance(value, bool):
                yield str(value), "integer to string"
            case "object", str() if (fields := self.parsed(value, dict)) is not None:
                yield fields, "string to object"
            case "array", str() if (items := self.parsed(value, list)) is not None:
                yield items, "string to list"
            case "array", None | list():
                return
            case "array", _ if self.is_item(node.get("items"), value):
                yield [value], "bare value to list"
            case "string" | "integer" | "number" | "boolean", [only] if fits(node, only):
                yield only, "list of one value to the value"
            case _:
                return

    def parsed(self, text: str, kind: type[dict[str, Json]] | type[list[Json]]) -> Json:
        """The list or object that a string spells, and nothing beside it; else None."""
        match read_exactly(text) if text.lstrip()[:1] in {"{", "["} else None:
            case Read(value) if isinstance(value, kind):
                return value
            case _:
                return None

    def is_item(self, node: Json, value: Json) -> bool:
        if isinstance(value, str) and _NOT_ONE_ITEM.match(value):
            return False
        return any(fits(option, value) for option in branches(self.root, node))


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _meaning(name: str) -> str:
    return _MEANINGS.get(_plain(name), name)


_MEANINGS = {_plain(name): group[0] for group in ALIASES for name in group}


def _grouped(names: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(key(name), []).append(name)
    return groups
