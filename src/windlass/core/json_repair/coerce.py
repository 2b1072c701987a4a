"""A value of almost the right shape in, one of the right shape out, by the tool's schema.

Invariant: only a value that does not fit is changed, and only if exactly one conversion fits. A
value that could become two things stays as it is, and the validator refuses it. No field with
content is dropped.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from windlass.core.json_repair.lenient import read_lenient_alone
from windlass.core.json_repair.strict import ReadJson, note_change, same_json
from windlass.core.messages import ArgumentChange
from windlass.core.schema import (
    JsonSchema,
    JsonValue,
    SchemaNode,
    ValuePath,
    declared_fields,
    json_type_of,
    required_fields,
    simple_schemas,
)

DEPTH_MAX = 32

FIELD_ALIASES = (
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
"""Names that models confuse. No group mixes units: `timeout` is not `timeout_ms`."""
ENVELOPE_NAMES = frozenset(("arguments", "args", "parameters", "params", "input", "kwargs"))

ConversionCandidate: TypeAlias = tuple[JsonValue, str]

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,30})")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?")
_NULL_WORDS = frozenset(("", "null", "none"))
# `a, b` may be one item or two, and a text that begins like JSON was meant as JSON.
_NOT_ONE_ITEM = re.compile(r"\s*[\[{]|.*[,;\n]", re.DOTALL)


def coerce_to_schema(
    schema: JsonSchema, value: JsonValue
) -> tuple[JsonValue, tuple[ArgumentChange, ...]]:
    """Return the value in the shape of the schema, as far as that is clear, and the changes."""
    shaper = _Coercer(schema.node)
    fields = shaper.unwrap_object(schema.node, value)
    if isinstance(fields, dict):
        fields = shaper.coerce_value(schema.node, fields, ())
    return fields, tuple(shaper.changes)


def is_complete(root: SchemaNode, node: JsonValue, value: JsonValue, depth: int) -> bool:
    """Whether nothing can be missing in a text that left `depth` containers open at its end.

    The reply did not end by length, so the model had said what it wanted to say: only closers are
    missing. Each open container must be an object with declared fields, of which optional ones may
    be left out, as always. Whether a list or a free-form map had more items cannot be known.
    """
    if depth == 0:
        return True
    kinds = [part for part in simple_schemas(root, node) if has_schema_type(part, value)]
    if not isinstance(value, dict) or len(kinds) != 1:
        return False
    declared = declared_fields(kinds[0])
    if not value or not declared or kinds[0].get("additionalProperties"):
        return False
    last = next(reversed(value))
    return is_complete(root, declared.get(last), value[last], depth - 1)


def has_schema_type(node: SchemaNode, value: JsonValue) -> bool:
    """Whether a value has the type that a simple schema requires."""
    kind = json_type_of(value)
    match node:
        case {"type": wanted}:
            return kind == wanted or (wanted == "number" and kind == "integer")
        case {"const": only}:
            return kind == json_type_of(only)
        case {"enum": list() as options}:
            return kind in map(json_type_of, options)
        case {"properties": _}:
            return kind == "object"
        case _:
            return True


class _Coercer:
    """One walk over one value, beside its schema."""

    __slots__ = ("_containers", "changes", "root")

    def __init__(self, root: SchemaNode) -> None:
        self.root = root
        self.changes: list[ArgumentChange] = []
        # A text is read once, no matter how many branches of a union ask for it.
        self._containers: dict[str, JsonValue] = {}

    def note_change(self, path: ValuePath, what: str) -> None:
        note_change(self.changes, path, what)

    def unwrap_object(self, node: SchemaNode, value: JsonValue) -> JsonValue:
        """Return the object itself, if it came in a list, in an envelope or as its only field."""
        declared = declared_fields(node)
        match value:
            case [dict() as only]:
                self.note_change((), "list around the object removed")
                return only
            case list() if len(declared) == 1:
                # A bare string may be prose, and a bare number may be cut off, so they stay.
                name, part = next(iter(declared.items()))
                if any(
                    has_schema_type(branch, value) for branch in simple_schemas(self.root, part)
                ):
                    self.note_change((name,), "bare list put into the only field")
                    return {name: value}
                return value
            case dict() if len(value) == 1 and not value.keys() & declared.keys():
                return self.open_envelope(value)
            case _:
                return value

    def open_envelope(self, value: dict[str, JsonValue]) -> JsonValue:
        ((name, inner),) = value.items()
        if isinstance(inner, str):
            opened = self.parse_container(inner, dict)
        else:
            opened = inner
        if name not in ENVELOPE_NAMES or not isinstance(opened, dict):
            return value
        self.note_change((), "envelope around the arguments removed")
        return opened

    def coerce_value(self, node: JsonValue, value: JsonValue, path: ValuePath) -> JsonValue:
        if len(path) > DEPTH_MAX:
            return value
        options = simple_schemas(self.root, node)
        fitting = [option for option in options if has_schema_type(option, value)]
        if len(fitting) == 1:
            return self.coerce_content(fitting[0], value, path)
        if fitting:
            return value
        return self.convert_value(options, value, path)

    def coerce_content(self, node: SchemaNode, value: JsonValue, path: ValuePath) -> JsonValue:
        match value:
            case dict():
                return self.coerce_fields(node, value, path)
            case list() if "items" in node:
                items = node["items"]
                return [
                    self.coerce_value(items, item, (*path, at)) for at, item in enumerate(value)
                ]
            case str():
                return self.match_option(node, value, path)
            case _:
                return value

    def match_option(self, node: SchemaNode, value: str, path: ValuePath) -> JsonValue:
        options = node.get("enum")
        if not isinstance(options, list) or value in options:
            return value
        wanted = value.strip().casefold()
        near = [
            option for option in options if isinstance(option, str) and option.casefold() == wanted
        ]
        if len(near) != 1:
            return value
        self.note_change(path, "spelled as the schema spells it")
        return near[0]

    def coerce_fields(
        self, node: SchemaNode, value: dict[str, JsonValue], path: ValuePath
    ) -> JsonValue:
        declared = declared_fields(node)
        needed = required_fields(node)
        closed = node.get("additionalProperties") is False
        names = self.find_renames(node, value)
        result: dict[str, JsonValue] = {}
        for key, item in value.items():
            name = names.get(key, key)
            at = (*path, name)
            if name not in declared:
                if closed and item in (None, "", [], {}):
                    self.note_change(at, "unknown empty field dropped")
                    continue
                result[name] = self.coerce_value(node.get("additionalProperties"), item, at)
                continue
            if name != key:
                self.note_change(at, "field renamed")
            if name not in needed and self.is_null_like(declared[name], item):
                self.note_change(at, "null for an optional field dropped")
                continue
            result[name] = self.coerce_value(declared[name], item, at)
        return result

    def find_renames(self, node: SchemaNode, value: dict[str, JsonValue]) -> dict[str, str]:
        """Return new names for unknown fields, where each has exactly one that no other wants."""
        declared = declared_fields(node)
        needed = required_fields(node)
        closed = node.get("additionalProperties") is False
        free = [name for name in declared if name not in value and (closed or name in needed)]
        spelled, meant = _group_names(free, _normalize_name), _group_names(free, _alias_group)
        found: dict[str, str] = {}
        for key in value.keys() - declared.keys():
            near = spelled.get(_normalize_name(key)) or meant.get(_alias_group(key)) or []
            if len(near) == 1:
                found[key] = near[0]
        taken = Counter(found.values())
        return {key: name for key, name in found.items() if taken[name] == 1}

    def is_null_like(self, node: JsonValue, item: JsonValue) -> bool:
        """Whether a value means null in an optional field that cannot hold it."""
        if any(has_schema_type(option, item) for option in simple_schemas(self.root, node)):
            return False
        return item is None or (isinstance(item, str) and item.strip().casefold() in _NULL_WORDS)

    def convert_value(
        self, options: tuple[SchemaNode, ...], value: JsonValue, path: ValuePath
    ) -> JsonValue:
        found = [
            (candidate, node)
            for node in options
            for candidate in self.find_conversions(node, value)
        ]
        if not found:
            return value
        (result, what), node = found[0]
        # Two conversions with different results are ambiguous, so neither is made.
        if any(not same_json(other, result) for (other, _), _ in found):
            return value
        self.note_change(path, what)
        return self.coerce_content(node, result, path)

    def find_conversions(self, node: SchemaNode, value: JsonValue) -> Iterator[ConversionCandidate]:
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
            case "object", str() if (fields := self.parse_container(value, dict)) is not None:
                yield fields, "string to object"
            case "array", str() if (items := self.parse_container(value, list)) is not None:
                yield items, "string to list"
            case "array", None | list():
                return
            case "array", _ if self.can_be_item(node.get("items"), value):
                yield [value], "bare value to list"
            case "string" | "integer" | "number" | "boolean", [only] if has_schema_type(node, only):
                yield only, "list of one value to the value"
            case _:
                return

    def parse_container(
        self, text: str, kind: type[dict[str, JsonValue]] | type[list[JsonValue]]
    ) -> JsonValue:
        """Return the list or object that a string contains and nothing else; otherwise None."""
        if text.lstrip()[:1] not in {"{", "["}:
            return None
        if text not in self._containers:
            found = read_lenient_alone(text)
            self._containers[text] = found.value if isinstance(found, ReadJson) else None
        value = self._containers[text]
        return value if isinstance(value, kind) else None

    def can_be_item(self, node: JsonValue, value: JsonValue) -> bool:
        if isinstance(value, str) and _NOT_ONE_ITEM.match(value):
            return False
        return any(has_schema_type(option, value) for option in simple_schemas(self.root, node))


def _normalize_name(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _alias_group(name: str) -> str:
    return _ALIAS_GROUPS.get(_normalize_name(name), name)


_ALIAS_GROUPS = {_normalize_name(name): group[0] for group in FIELD_ALIASES for name in group}


def _group_names(names: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(key(name), []).append(name)
    return groups
