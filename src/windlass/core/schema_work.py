"""Bounds for schemas that others wrote: how large one may be, and how much work a value may make.

Invariant: a schema or a value that is over a bound is refused before the validator sees it. The
validator is native code: while it works, no signal is served and no other task runs. A schema of
1.6 kB whose unions refer to one another can keep it busy for hours, and a report of what is wrong
costs a thousand times as much as the check.
"""

from collections.abc import Iterator
from typing import TypeAlias, cast
from urllib.parse import unquote

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
SchemaNode: TypeAlias = dict[str, JsonValue]
"""A schema, or a part of one, as plain JSON."""

SCHEMA_DEPTH_MAX = 128
"""Levels of JSON in a schema. An object inside an object takes two."""
SCHEMA_NODES_MAX = 20_000
SCHEMA_CHARS_MAX = 1_000_000
PATTERNS_MAX = 1_000
WORK_MAX = 1_000_000
"""Evaluations of a schema at a value that the validator may make for one value. One takes about
30 ns."""
VISITS_MAX = 200_000
"""Pairs of a schema and a value that are looked at to count the work. One takes about 1 µs."""
LEVELS_MAX = 400
"""Schemas and values inside one another that are followed."""
BACKTRACKS_MAX = 1_000
"""Steps back that a pattern may make at each position of a text."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_CONDITIONS = ("not", "if", "then", "else")
_PART_KEYWORDS = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "prefixItems",
    "items",
    "additionalItems",
    "contains",
    "unevaluatedItems",
)
_BRANCHING_KEYWORDS = frozenset(
    (
        *_REFERENCES,
        *_ALTERNATIVES,
        *_CONDITIONS,
        "contains",
        "dependencies",
        "dependentSchemas",
        "enum",
        "pattern",
        "patternProperties",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
"""A schema without any of them looks at each part of a value once."""
_LOOKAROUNDS = ("(?=", "(?!", "(?<", "\\1", "\\2", "\\3", "\\k")
"""Patterns with these are matched with steps back; all others in linear time."""
_STEP_BACK_COST = 200
_CHARS_PER_EVALUATION = 8
_OPTIONS_PER_EVALUATION = 16
_UNEVALUATED_FACTOR = 3
"""For `unevaluated…` the validator looks at the same schemas again, at each level."""


class TooMuchWork(Exception):
    """A value would keep the validator busy for too long."""


def find_schema_excess(root: SchemaNode) -> str | None:
    """Return which bound a schema exceeds, in words, or None if it is within all of them."""
    nodes = 0
    chars = 0
    patterns = 0
    stack: list[tuple[JsonValue, int]] = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        nodes += 1
        if depth > SCHEMA_DEPTH_MAX:
            return f"it is nested more than {SCHEMA_DEPTH_MAX} levels deep"
        if nodes > SCHEMA_NODES_MAX:
            return f"it has more than {SCHEMA_NODES_MAX} parts"
        if isinstance(node, dict):
            chars += sum(map(len, node))
            patterns += _count_patterns(node)
            stack.extend((part, depth + 1) for part in node.values())
        elif isinstance(node, list):
            stack.extend((part, depth + 1) for part in node)
        elif isinstance(node, str):
            chars += len(node)
        if chars > SCHEMA_CHARS_MAX:
            return f"it has more than {SCHEMA_CHARS_MAX} characters"
        if patterns > PATTERNS_MAX:
            return f"it has more than {PATTERNS_MAX} patterns"
        if node is not root and _declares_base(root, node):
            # References below it would be resolved against another document than they seem to be.
            return (
                "it contains a schema with an `$id` of its own: only the whole schema may have one"
            )
    return _find_bad_reference(root)


def _find_bad_reference(root: SchemaNode) -> str | None:
    """Return what is wrong with the references of a schema, in words, or None.

    A reference that leads back to itself at the same value never ends, by the standard. In this
    validator it ends after all the ways around, of which there may be a factorial number.
    """
    search = _ReferenceSearch(root)
    while search.waiting:
        problem = search.visit(search.waiting.pop(), 0)
        if problem is not None:
            return problem
    return None


class _ReferenceSearch:
    """One walk over all schemas in a schema, along their references."""

    def __init__(self, root: SchemaNode) -> None:
        self._root = root
        self._finished: set[int] = set()
        self._on_path: set[int] = set()
        self.waiting: list[JsonValue] = [root]
        """Schemas that look at parts of a value, which begin their own path."""

    def visit(self, node: JsonValue, level: int) -> str | None:
        if not isinstance(node, dict) or id(node) in self._finished:
            return None
        if id(node) in self._on_path:
            return "it has a reference that leads back to itself at the same value"
        if level > LEVELS_MAX:
            return f"its references follow one another for more than {LEVELS_MAX} levels"
        missing = _find_missing_reference(self._root, node)
        if missing is not None:
            return f"it refers to {missing[:100]!r}, which is not in it"
        self.waiting.extend(_schemas_below(node))
        self._on_path.add(id(node))
        for part in _schemas_in_place(self._root, node):
            problem = self.visit(part, level + 1)
            if problem is not None:
                return problem
        self._on_path.discard(id(node))
        self._finished.add(id(node))
        return None


def _find_missing_reference(root: SchemaNode, node: SchemaNode) -> str | None:
    for keyword in _REFERENCES:
        reference = node.get(keyword)
        if isinstance(reference, str) and resolve_reference(root, reference) is None:
            return reference
    return None


def _schemas_in_place(root: SchemaNode, node: SchemaNode) -> Iterator[JsonValue]:
    """Yield the schemas that look at the same value as this one."""
    for keyword in _REFERENCES:
        reference = node.get(keyword)
        if isinstance(reference, str):
            yield resolve_reference(root, reference)
    for keyword in _ALTERNATIVES:
        yield from _as_list(node.get(keyword))
    for keyword in _CONDITIONS:
        yield node.get(keyword)
    for keyword in ("dependentSchemas", "dependencies"):
        yield from _as_dict(node.get(keyword)).values()


def _schemas_below(node: SchemaNode) -> Iterator[JsonValue]:
    """Yield the schemas that look at parts of the value."""
    for keyword in ("properties", "patternProperties"):
        yield from _as_dict(node.get(keyword)).values()
    for keyword in _PART_KEYWORDS:
        part = node.get(keyword)
        if isinstance(part, list):
            yield from part
        else:
            yield part


def _count_patterns(node: SchemaNode) -> int:
    patterns = node.get("patternProperties")
    own = 1 if isinstance(node.get("pattern"), str) else 0
    return own + (len(patterns) if isinstance(patterns, dict) else 0)


def _declares_base(root: SchemaNode, node: JsonValue) -> bool:
    if not isinstance(node, dict):
        return False
    if isinstance(node.get("$id"), str):
        return True
    # Until draft 4 the keyword was `id`, which today is only a common name of a field.
    is_old = "draft-04" in str(root.get("$schema")) or "draft-03" in str(root.get("$schema"))
    return is_old and isinstance(node.get("id"), str)


def has_branches(root: SchemaNode) -> bool:
    """Whether a schema may look at a part of a value more than once."""
    stack: list[JsonValue] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if not _BRANCHING_KEYWORDS.isdisjoint(node):
                return True
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return False


def resolve_reference(root: SchemaNode, reference: str) -> JsonValue:
    """Return the part of a schema that a reference names; None if it is not in this schema.

    It follows `#`, `#/a/pointer` and `#anchor`, with or without the schema's own `$id` before it.
    """
    base, _, fragment = reference.partition("#")
    if base and base != str(root.get("$id", "")).partition("#")[0]:
        return None
    if fragment and not fragment.startswith("/"):
        return _find_anchor(root, unquote(fragment))
    found: JsonValue = root
    for step in unquote(fragment).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _find_anchor(root: SchemaNode, name: str) -> JsonValue:
    stack: list[JsonValue] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if name in (node.get("$anchor"), node.get("$dynamicAnchor")):
                return node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return None


class WorkCounter:
    """Counts the evaluations that a validator makes for one value, without making them.

    A pair of schema and value is looked at once and its count is used again, so that counting takes
    linear time where the validator takes exponential time.
    """

    def __init__(self, root: SchemaNode) -> None:
        self._root = root
        self._counts: dict[tuple[int, int], int] = {}
        # Names of fields are values too. They are kept, so that no two have the same id.
        self._kept: list[object] = []
        self.largest_union = 0
        """The work of the largest union: what a report about it may have to list."""

    def count(self, value: JsonValue) -> int:
        """Return the evaluations for a value. Raises TooMuchWork if they exceed a bound."""
        return self._count(self._root, value, 0)

    def _count(self, node: JsonValue, value: JsonValue, level: int) -> int:
        if not isinstance(node, dict):
            return 1
        pair = (id(node), id(value))
        known = self._counts.get(pair)
        if known is not None:
            return known
        if level > LEVELS_MAX or len(self._counts) > VISITS_MAX:
            raise TooMuchWork
        work = 1 + _direct_work(node, value)
        work += sum(
            self._count(part, value, level + 1) for part in _schemas_in_place(self._root, node)
        )
        if "anyOf" in node or "oneOf" in node:
            self.largest_union = max(self.largest_union, work)
        if "unevaluatedProperties" in node or "unevaluatedItems" in node:
            work *= _UNEVALUATED_FACTOR
        work += sum(
            self._count(part, item, level + 1) for part, item in self._parts_below(node, value)
        )
        if work > WORK_MAX:
            raise TooMuchWork
        self._counts[pair] = work
        return work

    def _parts_below(
        self, node: SchemaNode, value: JsonValue
    ) -> Iterator[tuple[JsonValue, JsonValue]]:
        """Yield the schemas that look at the parts of a value, each with its part."""
        if isinstance(value, dict):
            yield from self._field_parts(node, value)
        elif isinstance(value, list):
            yield from _item_parts(node, value)

    def _field_parts(
        self, node: SchemaNode, value: dict[str, JsonValue]
    ) -> Iterator[tuple[JsonValue, JsonValue]]:
        declared = _as_dict(node.get("properties"))
        patterns = _as_dict(node.get("patternProperties"))
        for name, item in value.items():
            if name in declared:
                yield declared[name], item
            else:
                yield node.get("additionalProperties"), item
            for part in patterns.values():
                yield part, item
            yield node.get("unevaluatedProperties"), item
            if "propertyNames" in node:
                self._kept.append(name)
                yield node["propertyNames"], name


def _item_parts(node: SchemaNode, value: list[JsonValue]) -> Iterator[tuple[JsonValue, JsonValue]]:
    first = _as_list(node.get("prefixItems")) or _as_list(node.get("items"))
    yield from zip(first, value, strict=False)
    for keyword in ("items", "additionalItems", "contains", "unevaluatedItems"):
        part = node.get(keyword)
        if isinstance(part, dict):
            for item in value:
                yield part, item


def _direct_work(node: SchemaNode, value: JsonValue) -> int:
    """Return the work of the keywords that have no schemas in them."""
    work = len(_as_list(node.get("enum"))) // _OPTIONS_PER_EVALUATION
    pattern = node.get("pattern")
    if isinstance(pattern, str) and isinstance(value, str):
        work += _pattern_work(pattern, len(value))
    if isinstance(value, dict):
        chars = sum(map(len, value)) if "patternProperties" in node else 0
        work += sum(_pattern_work(each, chars) for each in _as_dict(node.get("patternProperties")))
    return work


def _pattern_work(pattern: str, chars: int) -> int:
    if any(sign in pattern for sign in _LOOKAROUNDS):
        return chars * _STEP_BACK_COST
    return chars // _CHARS_PER_EVALUATION


def _as_list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _as_dict(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else cast("dict[str, JsonValue]", {})
