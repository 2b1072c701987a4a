"""Validation of values against JSON Schemas, and the words for what is wrong."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.core.schema import (
    FAULTS_MAX,
    NODES_MAX,
    JsonSchema,
    JsonValue,
    SchemaError,
    SchemaFault,
    SchemaNode,
    declared_fields,
    describe_size,
    field_label,
    format_path,
    has_more_nodes,
    json_type_of,
    outline_schema,
    required_fields,
    simple_schemas,
)
from windlass.core.schema_faults import find_faults


def field(rule: SchemaNode) -> JsonSchema:
    return JsonSchema({"type": "object", "properties": {"x": rule}})


def fault(rule: SchemaNode, value: JsonValue) -> str:
    (found,) = find_faults(field(rule), {"x": value})
    assert found.path == "x"
    return found.message


def test_importing_does_not_load_the_validator() -> None:
    """A program without tools does not pay for the validator."""
    code = "import sys, windlass.core.json_repair.arguments; print('jsonschema_rs' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize(
    "node",
    [
        {"type": "strin"},
        {"properties": []},
        {"properties": {"a": {"type": 5}}},
        {"pattern": "("},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"$schema": "https://example.com/none"},
        {"default": object()},
    ],
)
def test_a_wrong_schema_is_refused_when_it_is_built(node: dict[str, Any]) -> None:
    """T4: no tool is built on a schema that cannot judge."""
    with pytest.raises(SchemaError, match="not a JSON Schema"):
        JsonSchema(node)
    assert issubclass(SchemaError, ConfigError)


def test_the_error_of_a_wrong_schema_names_the_place() -> None:
    with pytest.raises(SchemaError, match=r"at properties\.a\.type"):
        JsonSchema({"properties": {"a": {"type": "strin"}}})


def test_a_schema_that_holds_itself_is_refused() -> None:
    node: SchemaNode = {}
    node["not"] = node
    with pytest.raises(SchemaError):
        JsonSchema(node)


def test_what_fits_has_no_faults() -> None:
    schema = field({"type": "integer"})
    assert schema.accepts({"x": 1})
    assert not schema.accepts({"x": "1"})
    assert find_faults(schema, {"x": 1}) == ()


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        ({"type": "integer"}, "hush", "expected integer, got string of 4 characters"),
        ({"type": ["string", "null"]}, 1.5, "expected null or string, got number"),
        ({"enum": ["a", "b"]}, "hush", 'expected one of ["a","b"], got string of 4 characters'),
        ({"const": 1}, True, "expected 1, got boolean"),
        ({"pattern": "^a$"}, "hush", 'must match the pattern "^a$", got string of 4 characters'),
        ({"minimum": 3}, 2, "must be at least 3, got integer"),
        ({"maximum": 3}, 4, "must be at most 3, got integer"),
        ({"exclusiveMinimum": 3}, 3, "must be more than 3, got integer"),
        ({"exclusiveMaximum": 3}, 3, "must be less than 3, got integer"),
        ({"multipleOf": 2}, 3, "must be a multiple of 2, got integer"),
        ({"minLength": 5}, "hush", "must have at least 5 characters, got string of 4 characters"),
        ({"maxLength": 3}, "hush", "must have at most 3 characters, got string of 4 characters"),
        ({"minItems": 1}, [], "must have at least 1 items, got list of 0 items"),
        ({"maxItems": 1}, [1, 2], "must have at most 1 items, got list of 2 items"),
        ({"minProperties": 1}, {}, "must have at least 1 fields, got object of 0 fields"),
        ({"maxProperties": 0}, {"a": 1}, "must have at most 0 fields, got object of 1 fields"),
        (
            {"anyOf": [{"type": "null"}, {"type": "array"}]},
            1,
            "fits none of the allowed shapes, got integer",
        ),
        ({"uniqueItems": True}, [1, 1], "must have no item twice, got list of 2 items"),
        ({"not": {}}, None, "has a shape that is ruled out, got null"),
        ({"contains": {"const": 1}}, [2], "breaks the rule 'contains', got list of 1 items"),
        (
            {"additionalProperties": False},
            {"a": 1},
            "has fields or items that do not exist, got object of 1 fields",
        ),
        (
            {"properties": {}, "additionalProperties": False},
            {"a": 1},
            "has fields that do not exist: a",
        ),
    ],
)
def test_a_fault_says_what_was_expected(rule: SchemaNode, value: JsonValue, message: str) -> None:
    """T9: types, sizes and the schema's own words."""
    assert fault(rule, value) == message


def test_a_fault_says_where() -> None:
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {"edits": {"items": {"type": "object", "required": ["old"]}}},
            "required": ["path"],
        },
    )
    assert set(find_faults(schema, {"edits": [{"old": 1}, {}]})) == {
        SchemaFault("edits[1].old", "is required and missing"),
        SchemaFault("path", "is required and missing"),
    }


def test_faults_are_few() -> None:
    """T9: bounded."""
    schema = field({"items": {"type": "integer"}})
    wrong: list[JsonValue] = ["a"]
    right: list[JsonValue] = [1]
    assert len(find_faults(schema, {"x": wrong * 100})) == FAULTS_MAX
    assert len(find_faults(schema, {"x": wrong * (NODES_MAX + 1)})) == 1
    assert find_faults(schema, {"x": right * (NODES_MAX + 1)}) == ()


@given(st.text("hush", min_size=1), st.integers(0, 7))
def test_no_fault_echoes_a_value(secret: str, which: int) -> None:
    """T9: never an echo of the content, neither of values nor of what landed in a name."""
    secret = f"SECRET {secret}"
    value: JsonValue = [secret, {secret: 1}, [secret], {"a": secret}, {"a": {secret: [secret]}}][
        which % 5
    ]
    closed: SchemaNode = {"type": "object", "additionalProperties": False}
    rules: list[SchemaNode] = [{"type": "integer"}, {"enum": [1]}, {"not": {}}, closed]
    for rule in [*rules, {"type": "object", "additionalProperties": closed}]:
        for found in find_faults(field(rule), {"x": value}):
            assert "SECRET" not in found.message
            assert "SECRET" not in found.path


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (None, "null", "null"),
        (True, "boolean", "boolean"),
        (1, "integer", "integer"),
        (1.0, "integer", "integer"),
        (1.5, "number", "number"),
        ("ab", "string", "string of 2 characters"),
        ([1], "array", "list of 1 items"),
        ({}, "object", "object of 0 fields"),
    ],
)
def test_kinds_and_sizes(value: JsonValue, kind: str, words: str) -> None:
    assert (json_type_of(value), describe_size(value)) == (kind, words)


def test_names_that_look_like_content_are_only_measured() -> None:
    """T9."""
    assert field_label("file_path") == "file_path"
    assert field_label("rm -rf /") == "<name of 8 characters>"
    assert field_label("a" * 41) == "<name of 41 characters>"


def test_spots() -> None:
    assert format_path(()) == "arguments"
    assert format_path(("a", 0, "b", 12)) == "a[0].b[12]"
    assert format_path((0, "a")) == "[0].a"


def test_large_values_are_known_without_a_full_count() -> None:
    assert not has_more_nodes({"a": [1, 2]}, 4)
    assert has_more_nodes({"a": [1, 2]}, 3)
    empty: list[JsonValue] = [[]]
    assert has_more_nodes(empty * 100_000, 10)


def test_branches() -> None:
    root: SchemaNode = {"$defs": {"a/b": {"type": "string"}, "me": {"$ref": "#/$defs/me"}, "n": 3}}
    string: SchemaNode = {"type": "string"}
    assert simple_schemas(root, string) == (string,)
    assert simple_schemas(root, {"$ref": "#/$defs/a~1b"}) == (string,)
    assert simple_schemas(root, {"$ref": "#/$defs/n/deeper"}) == ({},)
    assert simple_schemas(root, {"$ref": "#/$defs/me"}) == ({},)
    assert simple_schemas(root, True) == ({},)
    assert simple_schemas(
        root, {"anyOf": [string, {"type": ["null", "array"], "minItems": 1}]}
    ) == (
        string,
        {"type": "null", "minItems": 1},
        {"type": "array", "minItems": 1},
    )
    assert simple_schemas(root, {"oneOf": [string, string]}) == (string, string)
    assert simple_schemas(root, {"allOf": [string]}) == (string,)
    assert simple_schemas(root, {"allOf": [string, string]}) == ({},)
    keyed: SchemaNode = {"properties": {}, "anyOf": [{"required": ["a"]}]}
    assert simple_schemas(root, keyed) == (keyed,)
    assert simple_schemas(root, {"title": "x"}) == ({"title": "x"},)


def test_properties_and_required_of_odd_schemas() -> None:
    assert declared_fields({}) == {}
    assert required_fields({}) == frozenset()
    assert required_fields({"required": ["a"]}) == {"a"}


def test_an_outline_is_one_line() -> None:
    """T9: the expected shape."""
    edit: SchemaNode = {
        "type": "object",
        "properties": {"old": {"type": "string"}},
        "required": ["old"],
    }
    deep: SchemaNode = {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
                "mode": {"enum": ["fast", "slow"]},
                "only": {"const": 1},
                "any": {},
                "map": {"type": "object"},
                "deep": {"type": "array", "items": deep},
            },
            "required": ["path"],
            "$defs": {"Edit": edit},
        },
    )
    assert outline_schema(schema) == (
        "path: string (required), limit: integer or null (optional), "
        "edits: list of {old: string (required)} (optional), "
        'mode: "fast" | "slow" (optional), only: 1 (optional), any: any (optional), '
        "map: object (optional), deep: list of list of list of array (optional)"
    )


def test_outlines_of_odd_schemas() -> None:
    assert outline_schema(JsonSchema({})) == "no fields"
    long = JsonSchema({"properties": {"a": {"const": "x" * 500}}})
    assert len(outline_schema(long)) < 250
    tree: SchemaNode = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert outline_schema(JsonSchema(tree)).count("kids") == 2
