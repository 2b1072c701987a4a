"""Schemas and values of strangers: none of them keeps the runtime busy (T9, T15)."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from windlass.core.json_repair.arguments import PreparedArguments, prepare_arguments
from windlass.core.schema import (
    JsonSchema,
    SchemaError,
    outline_schema,
    simple_schemas,
)
from windlass.core.schema_faults import find_faults

pytestmark = pytest.mark.slow

SECONDS_MAX = 2.0
"""Generous for a busy machine; the attacks take from 8 seconds to hours without the bounds."""


@contextmanager
def takes_no_time() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < SECONDS_MAX


def chained_unions(levels: int, width: int = 2) -> dict[str, Any]:
    """A small schema of which each level doubles the work for the same value."""
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"} for _ in range(width)]}
        for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "integer"}
    properties = {"a": {"$ref": "#/$defs/d0"}}
    return {"type": "object", "properties": properties, "$defs": definitions}


@pytest.mark.contract("T9")
@pytest.mark.parametrize("levels", [18, 23, 100])
def test_chained_unions_are_refused_at_once(levels: int) -> None:
    with takes_no_time():
        schema = JsonSchema(chained_unions(levels))
        assert find_faults(schema, {"a": "text"})
        prepared = prepare_arguments('{"a": "text"}', schema)
    assert not isinstance(prepared, PreparedArguments)


def test_a_few_chained_unions_still_work() -> None:
    schema = JsonSchema(chained_unions(6))
    assert schema.accepts({"a": 1})
    assert not schema.accepts({"a": "text"})
    assert find_faults(schema, {"a": "text"})


@pytest.mark.contract("T9")
def test_a_recursive_union_cannot_multiply_with_the_depth_of_a_value() -> None:
    branch = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {
                "a": {"anyOf": [{**branch, "required": ["b"]}, {**branch, "required": ["c"]}]}
            },
        }
    )
    value: Any = 1
    for _ in range(60):
        value = {"a": value}
    with takes_no_time():
        assert not schema.accepts(value)
        assert "too large" in find_faults(schema, value)[0].message


def test_a_recursive_schema_accepts_an_ordinary_tree() -> None:
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {
                "children": {"type": "array", "items": {"$ref": "#"}},
                "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            },
        }
    )
    value: Any = {"next": None}
    for _ in range(20):
        value = {"children": [value, {"next": None}], "next": {"next": None}}
    assert schema.accepts(value)


@pytest.mark.contract("T9")
def test_chained_unevaluated_properties_are_refused_at_once() -> None:
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}], "unevaluatedProperties": False}
        for level in range(24)
    }
    definitions["d24"] = {"properties": {"a": {}}}
    with takes_no_time():
        schema = JsonSchema({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions})
        assert not schema.accepts({"a": 1})


@pytest.mark.contract("T9")
def test_a_pattern_cannot_step_back_for_seconds() -> None:
    schema = JsonSchema(
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)(a+)+$"}}}
    )
    with takes_no_time():
        assert not schema.accepts({"a": "a" * 60_000 + "!"})


def test_an_ordinary_pattern_with_a_lookahead_works() -> None:
    schema = JsonSchema(
        {"type": "object", "properties": {"a": {"pattern": r"^(?=.*[a-z])(?=.*\d)[\w-]{8,64}$"}}}
    )
    assert schema.accepts({"a": "abcdefg1"})
    assert not schema.accepts({"a": "abcdefgh"})


@pytest.mark.contract("T9")
@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"properties": {str(at): {} for at in range(30_000)}}, "more than 20000 parts"),
        ({"description": "x" * 2_000_000}, "more than 1000000 characters"),
        ({"allOf": [{"pattern": f"a{at}"} for at in range(1_001)]}, "more than 1000 patterns"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#"}}}, "leads back to itself"),
        ({"$id": "https://a/b", "$ref": "b#/$defs/a", "$defs": {"a": {}}}, "not in it"),
        ({"$defs": {"a": {"$id": "urn:a", "$ref": "#/b"}}}, "`$id` of its own"),
    ],
)
def test_a_schema_over_a_bound_is_refused_with_its_reason(node: dict[str, Any], why: str) -> None:
    with takes_no_time(), pytest.raises(SchemaError, match=re.escape(why)):
        JsonSchema({"type": "object", **node})


@pytest.mark.contract("T9")
@pytest.mark.parametrize("levels", [100, 300, 100_000])
def test_a_deep_schema_is_refused_with_its_reason(levels: int) -> None:
    node: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        node = {"type": "object", "properties": {"a": node}}
    with pytest.raises(SchemaError, match="levels deep"):
        JsonSchema(node)


@pytest.mark.contract("T9")
def test_wide_unions_inside_one_another_are_outlined_at_once() -> None:
    schema = JsonSchema(chained_unions(8, width=12))
    with takes_no_time():
        assert simple_schemas(schema.node, schema.node["properties"]) != ()
        assert len(outline_schema(schema)) < 1_000


@pytest.mark.contract("T9")
def test_wide_objects_inside_one_another_are_outlined_at_once() -> None:
    wide: dict[str, Any] = {f"f{at}": {"$ref": "#/$defs/a"} for at in range(200)}
    wider: dict[str, Any] = {f"f{at}": {"$ref": "#/$defs/b"} for at in range(200)}
    node: dict[str, Any] = {
        "type": "object",
        "properties": {f"f{at}": {"$ref": "#/$defs/c"} for at in range(200)},
        "$defs": {
            "a": {"type": "object", "properties": {f"f{at}": {} for at in range(200)}},
            "b": {"type": "object", "properties": wide},
            "c": {"type": "object", "properties": wider},
        },
    }
    schema = JsonSchema(node)
    with takes_no_time():
        assert len(outline_schema(schema)) < 20_000
