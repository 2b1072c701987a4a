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
    Fault,
    Json,
    Node,
    Schema,
    SchemaError,
    branches,
    exceeds,
    faults,
    kind_of,
    label,
    measure,
    outline,
    properties,
    required,
    spot,
)


def field(rule: Node) -> Schema:
    return Schema({"type": "object", "properties": {"x": rule}})


def fault(rule: Node, value: Json) -> str:
    (found,) = faults(field(rule), {"x": value})
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
        Schema(node)
    assert issubclass(SchemaError, ConfigError)


def test_the_error_of_a_wrong_schema_names_the_place() -> None:
    with pytest.raises(SchemaError, match=r"at properties\.a\.type"):
        Schema({"properties": {"a": {"type": "strin"}}})


def test_a_schema_that_holds_itself_is_refused() -> None:
    node: Node = {}
    node["not"] = node
    with pytest.raises(SchemaError):
        Schema(node)


def test_what_fits_has_no_faults() -> None:
    schema = field({"type": "integer"})
    assert schema.accepts({"x": 1})
    assert not schema.accepts({"x": "1"})
    assert faults(schema, {"x": 1}) == ()


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
def test_a_fault_says_what_was_expected(rule: Node, value: Json, message: str) -> None:
    """T9: types, sizes and the schema's own words."""
    assert fault(rule, value) == message


def test_a_fault_says_where() -> None:
    schema = Schema(
        {
            "type": "object",
            "properties": {"edits": {"items": {"type": "object", "required": ["old"]}}},
            "required": ["path"],
        },
    )
    assert set(faults(schema, {"edits": [{"old": 1}, {}]})) == {
        Fault("edits[1].old", "is required and missing"),
        Fault("path", "is required and missing"),
    }


def test_faults_are_few() -> None:
    """T9: bounded."""
    schema = field({"items": {"type": "integer"}})
    wrong: list[Json] = ["a"]
    right: list[Json] = [1]
    assert len(faults(schema, {"x": wrong * 100})) == FAULTS_MAX
    assert len(faults(schema, {"x": wrong * (NODES_MAX + 1)})) == 1
    assert faults(schema, {"x": right * (NODES_MAX + 1)}) == ()


@given(st.text("hush", min_size=1), st.integers(0, 7))
def test_no_fault_echoes_a_value(secret: str, which: int) -> None:
    """T9: never an echo of the content, neither of values nor of what landed in a name."""
    secret = f"SECRET {secret}"
    value: Json = [secret, {secret: 1}, [secret], {"a": secret}, {"a": {secret: [secret]}}][
        which % 5
    ]
    closed: Node = {"type": "object", "additionalProperties": False}
    rules: list[Node] = [{"type": "integer"}, {"enum": [1]}, {"not": {}}, closed]
    for rule in [*rules, {"type": "object", "additionalProperties": closed}]:
        for found in faults(field(rule), {"x": value}):
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
def test_kinds_and_sizes(value: Json, kind: str, words: str) -> None:
    assert (kind_of(value), measure(value)) == (kind, words)


def test_names_that_look_like_content_are_only_measured() -> None:
    """T9."""
    assert label("file_path") == "file_path"
    assert label("rm -rf /") == "<name of 8 characters>"
    assert label("a" * 41) == "<name of 41 characters>"


def test_spots() -> None:
    assert spot(()) == "arguments"
    assert spot(("a", 0, "b", 12)) == "a[0].b[12]"
    assert spot((0, "a")) == "[0].a"


def test_large_values_are_known_without_a_full_count() -> None:
    assert not exceeds({"a": [1, 2]}, 4)
    assert exceeds({"a": [1, 2]}, 3)
    empty: list[Json] = [[]]
    assert exceeds(empty * 100_000, 10)


def test_branches() -> None:
    root: Node = {"$defs": {"a/b": {"type": "string"}, "me": {"$ref": "#/$defs/me"}, "n": 3}}
    string: Node = {"type": "string"}
    assert branches(root, string) == (string,)
    assert branches(root, {"$ref": "#/$defs/a~1b"}) == (string,)
    assert branches(root, {"$ref": "#/$defs/n/deeper"}) == ({},)
    assert branches(root, {"$ref": "#/$defs/me"}) == ({},)
    assert branches(root, True) == ({},)
    assert branches(root, {"anyOf": [string, {"type": ["null", "array"], "minItems": 1}]}) == (
        string,
        {"type": "null", "minItems": 1},
        {"type": "array", "minItems": 1},
    )
    assert branches(root, {"oneOf": [string, string]}) == (string, string)
    assert branches(root, {"allOf": [string]}) == (string,)
    assert branches(root, {"allOf": [string, string]}) == ({},)
    keyed: Node = {"properties": {}, "anyOf": [{"required": ["a"]}]}
    assert branches(root, keyed) == (keyed,)
    assert branches(root, {"title": "x"}) == ({"title": "x"},)


def test_properties_and_required_of_odd_schemas() -> None:
    assert properties({}) == {}
    assert required({}) == frozenset()
    assert required({"required": ["a"]}) == {"a"}


def test_an_outline_is_one_line() -> None:
    """T9: the expected shape."""
    edit: Node = {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}
    deep: Node = {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}
    schema = Schema(
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
    assert outline(schema) == (
        "path: string (required), limit: integer or null (optional), "
        "edits: list of {old: string (required)} (optional), "
        'mode: "fast" | "slow" (optional), only: 1 (optional), any: any (optional), '
        "map: object (optional), deep: list of list of list of array (optional)"
    )


def test_outlines_of_odd_schemas() -> None:
    assert outline(Schema({})) == "no fields"
    long = Schema({"properties": {"a": {"const": "x" * 500}}})
    assert len(outline(long)) < 250
    tree: Node = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert outline(Schema(tree)).count("kids") == 2
