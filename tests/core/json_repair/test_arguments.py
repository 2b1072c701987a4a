"""Repair of a call's arguments: what is repaired, what is refused, what is never touched.

The corpus beside this file was written by hand, by what a careful reader would say of each text.
"""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.json_repair.arguments import (
    MESSAGE_MAX,
    PreparedArguments,
    RefusedArguments,
    prepare_arguments,
)
from windlass.core.json_repair.coerce import has_schema_type, is_complete
from windlass.core.json_repair.lenient import REPAIR_CHARS_MAX, read_lenient, read_lenient_alone
from windlass.core.json_repair.strict import (
    CHANGES_MAX,
    KEYS_MAX,
    BrokenJson,
    ReadJson,
    read_strict,
)
from windlass.core.messages import ArgumentChange
from windlass.core.schema import JsonSchema, JsonValue, SchemaNode, declared_fields, json_type_of

DATA = Path(__file__).parents[1] / "data"
REPAIRED_MIN = 0.95
CUT = "arguments_truncated"
INVALID = "invalid_arguments"


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    arguments: dict[str, object] | None = None
    refused: str | None = None


class Case(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    kind: str
    schema: str
    text: str
    cut: bool
    expect: Expected


SCHEMAS = {
    name: JsonSchema(node)
    for name, node in msgspec.json.decode((DATA / "schemas.json").read_bytes()).items()
}
CASES = [
    msgspec.json.decode(line, type=Case)
    for line in (DATA / "broken_arguments.jsonl").read_text("utf-8").splitlines()
]
READ, WRITE, BASH = SCHEMAS["read"], SCHEMAS["write"], SCHEMAS["bash"]


def code(text: str, schema: JsonSchema = READ, *, cut: bool = False) -> str:
    refused = prepare_arguments(text, schema, cut=cut)
    assert isinstance(refused, RefusedArguments), refused
    return refused.code


def arguments(text: str, schema: JsonSchema = READ) -> dict[str, JsonValue]:
    prepared = prepare_arguments(text, schema)
    assert isinstance(prepared, PreparedArguments), prepared
    return prepared.arguments


def one_field(rule: SchemaNode) -> JsonSchema:
    return JsonSchema({"type": "object", "properties": {"x": rule}, "required": ["x"]})


# ── the corpus ───────────────────────────────────────────────────────────────


def test_the_corpus_is_large_and_varied() -> None:
    assert len(CASES) >= 200
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({(case.schema, case.text, case.cut) for case in CASES}) == len(CASES)
    assert len({case.kind for case in CASES}) >= 20
    assert {case.schema for case in CASES} == SCHEMAS.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_nothing_is_wrongly_executed(case: Case) -> None:
    """R1, R2, R3: the arguments that were meant, or none; and repair is idempotent."""
    match prepare_arguments(case.text, SCHEMAS[case.schema], cut=case.cut):
        case PreparedArguments(found):
            assert found == case.expect.arguments
            again = prepare_arguments(json.dumps(found), SCHEMAS[case.schema])
            assert again == PreparedArguments(found)
        case RefusedArguments(refused):
            assert case.expect.refused in {None, refused}


def test_the_rate_of_repair() -> None:
    """R1: of what can be repaired, nearly all is."""
    answers = [
        (case, prepare_arguments(case.text, SCHEMAS[case.schema], cut=case.cut)) for case in CASES
    ]
    repairable = [answer for case, answer in answers if case.expect.arguments is not None]
    repaired = sum(isinstance(answer, PreparedArguments) for answer in repairable)
    hopeless = [answer for case, answer in answers if case.expect.refused is not None]
    refused = sum(isinstance(answer, RefusedArguments) for answer in hopeless)
    print(f"repaired {repaired} of {len(repairable)}, refused {refused} of {len(hopeless)}")  # noqa: T201
    assert repaired / len(repairable) >= REPAIRED_MIN
    assert refused == len(hopeless)


# ── properties ───────────────────────────────────────────────────────────────

SIGNS = st.text(st.sampled_from("ab \"'{}[]:,\\/#\n\t`<é“”’0.-"), max_size=12)  # noqa: RUF001
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | SIGNS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SIGNS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(SIGNS, VALUES, max_size=4)


def schema_of(value: JsonValue, *, closed: bool) -> SchemaNode:
    """A schema that a value fits, and that declares all its fields."""
    match value:
        case dict():
            parts: SchemaNode = {
                name: schema_of(item, closed=closed) for name, item in value.items()
            }
            extra: SchemaNode = {"additionalProperties": False} if closed else {}
            return {"type": "object", "properties": parts, **extra}
        case list() if value:
            return {
                "type": "array",
                "items": {"anyOf": [schema_of(i, closed=closed) for i in value]},
            }
        case _:
            return {"type": json_type_of(value)}


def encodable(value: dict[str, JsonValue]) -> bool:
    try:
        return read_strict(json.dumps(value, ensure_ascii=False)) == ReadJson(value)
    except UnicodeEncodeError:
        return False


@given(
    value=OBJECTS.filter(encodable),
    closed=st.booleans(),
    indent=st.sampled_from([None, 1]),
    cut=st.booleans(),
)
def test_what_is_valid_is_never_changed(
    *, value: dict[str, JsonValue], closed: bool, indent: int | None, cut: bool
) -> None:
    """R1, T4: not a field, not the order, not a change on record; also where a reply was cut."""
    schema = JsonSchema(schema_of(value, closed=closed))
    prepared = prepare_arguments(json.dumps(value, indent=indent), schema, cut=cut)
    assert prepared == PreparedArguments(value)
    assert isinstance(prepared, PreparedArguments)
    assert list(prepared.arguments) == list(value)


@given(
    value=OBJECTS.filter(encodable),
    closed=st.booleans(),
    indent=st.sampled_from([None, 1]),
    raw=st.booleans(),
)
def test_a_text_that_was_cut_never_means_something_else(
    *, value: dict[str, JsonValue], closed: bool, indent: int | None, raw: bool
) -> None:
    """R2: at no position does what is left become other values than the ones that were meant.

    Where the reply did not end by length, optional fields at the end may be left out.
    """
    schema = JsonSchema(schema_of(value, closed=closed))
    text = json.dumps(value, indent=indent, ensure_ascii=raw)
    assert code(text[: len(text) // 2 or 1], schema, cut=True) == CUT
    for end in range(1, len(text)):
        match prepare_arguments(text[:end], schema):
            case PreparedArguments(found):
                assert is_beginning(found, value)
            case RefusedArguments(refused):
                assert refused == CUT


def is_beginning(found: JsonValue, value: JsonValue) -> bool:
    """Whether a value is another one with nothing but fields at its end left out."""
    if not (isinstance(found, dict) and isinstance(value, dict)) or not found:
        return found == value
    names = list(found)
    last = names[-1]
    if names != list(value)[: len(names)]:
        return False
    whole = all(found[name] == value[name] for name in names[:-1])
    return whole and is_beginning(found[last], value[last])


@given(
    st.builds(lambda path, content: {"path": path, "content": content}, SIGNS, SIGNS),
    st.sampled_from([None, 1]),
    st.data(),
)
def test_one_lost_sign_of_structure_never_changes_the_meaning(
    value: dict[str, JsonValue], indent: int | None, data: st.DataObject
) -> None:
    """R1: repaired to what was meant, or refused."""
    text = json.dumps(value, indent=indent)
    inner = [range(*found) for found in spans(text)]
    signs = [
        at for at, char in enumerate(text) if char in '"{}:,' and not any(at in s for s in inner)
    ]
    at = data.draw(st.sampled_from(signs))
    match prepare_arguments(text[:at] + text[at + 1 :], WRITE):
        case PreparedArguments(found):
            assert found == value
        case RefusedArguments():
            pass


def spans(text: str) -> list[tuple[int, int]]:
    """Where the contents of the strings of a JSON text are."""
    found: list[tuple[int, int]] = []
    at = text.find('"')
    while at >= 0:
        end = at + 1
        while text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        found.append((at + 1, end))
        at = text.find('"', end + 1)
    return found


PIECES = (
    *"{}[]:,\"'`\\\n \t#/*a1-.",
    *("path", '"path"', "limit", "null", "Tru", "12", "1e9", "NaN", '{"path":', '"x"}'),
    *("```json", "</a>", "\u201c", "\u201d", '"""', "//", "/*"),
    *("\\u00", "\\ud800", "\ud800", "\x00", "9" * 400, "9" * 5000),
)
JUNK = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@given(text=JUNK | st.text(), name=st.sampled_from(sorted(SCHEMAS)), cut=st.booleans())
def test_junk_is_answered_and_never_raises(*, text: str, name: str, cut: bool) -> None:
    """R3, T9: an answer for every text; what is prepared is valid, encodable and stays as it is."""
    match prepare_arguments(text, SCHEMAS[name], cut=cut):
        case PreparedArguments(found):
            assert SCHEMAS[name].accepts(found)
            assert prepare_arguments(
                msgspec.json.encode(found).decode(), SCHEMAS[name]
            ) == PreparedArguments(found)
            assert found or not text.strip() or "{" in text
        case RefusedArguments(message=message):
            assert len(message) <= MESSAGE_MAX


@given(OBJECTS, st.sampled_from(sorted(SCHEMAS)))
def test_values_of_any_shape_are_answered(value: dict[str, JsonValue], name: str) -> None:
    """R1: shape repair gives what is valid, or nothing."""
    renamed = dict(zip(declared_fields(SCHEMAS[name].node), value.values(), strict=False))
    match prepare_arguments(json.dumps(renamed), SCHEMAS[name]):
        case PreparedArguments(found):
            assert SCHEMAS[name].accepts(found)
        case RefusedArguments(refused):
            assert refused == INVALID


# ── text ─────────────────────────────────────────────────────────────────────


def test_each_repair_is_on_record() -> None:
    """R4: where, and what, in words without content."""
    prepared = prepare_arguments(
        "Sure: {'file_path': 'a.txt', limit: '5', offset: None,} // ok", READ
    )
    assert prepared == PreparedArguments(
        {"path": "a.txt", "limit": 5},
        (
            ArgumentChange("arguments", "text around the object"),
            ArgumentChange("arguments", "quotes replaced"),
            ArgumentChange("file_path", "quotes replaced"),
            ArgumentChange("limit", "field name quoted"),
            ArgumentChange("limit", "quotes replaced"),
            ArgumentChange("offset", "field name quoted"),
            ArgumentChange("offset", "literal spelled as JSON"),
            ArgumentChange("arguments", "trailing comma removed"),
            ArgumentChange("arguments", "comment removed"),
            ArgumentChange("path", "field renamed"),
            ArgumentChange("limit", "string to integer"),
            ArgumentChange("offset", "null for an optional field dropped"),
        ),
    )


def test_the_record_of_repairs_stays_short() -> None:
    """R4."""
    prepared = prepare_arguments(f"{{'pattern': 'x', 'include': {['a'] * 500}}}", SCHEMAS["grep"])
    assert isinstance(prepared, PreparedArguments)
    assert prepared.arguments == {"pattern": "x", "include": ["a"] * 500}
    assert len(prepared.changes) <= CHANGES_MAX + 1
    assert prepared.changes[-1] == ArgumentChange("arguments", "more repairs of these kinds")


def test_only_an_empty_buffer_is_no_arguments() -> None:
    """R3."""
    status = SCHEMAS["status"]
    assert arguments("", status) == arguments(" \n", status) == {}
    assert code("", READ) == INVALID
    assert code("", status, cut=True) == CUT
    for text in ("nothing", "null", "[]", "``````", "()", "0", '""'):
        assert code(text, status) == INVALID


def test_a_closer_is_added_only_where_nothing_can_be_missing() -> None:
    """R1, R2: all declared fields are there, or what follows shows that the model had gone on."""
    ab = JsonSchema({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}})
    assert arguments('{"a": 1, "b": "x"', ab) == {"a": 1, "b": "x"}
    assert arguments('{"b": "x"', ab) == {"b": "x"}
    assert code('{"b": "x"', ab, cut=True) == CUT
    assert code('{"b": "x",', ab) == CUT
    assert code('{"b": "x", "a": 1', ab) == CUT
    assert arguments('```\n{"b": "x"\n```', ab) == {"b": "x"}
    assert arguments('{"b": "x"</call>', ab) == {"b": "x"}
    nested = JsonSchema({"properties": {"in": {"$ref": "#/$defs/in"}}, "$defs": {"in": ab.node}})
    assert arguments('{"in": {"a": 1, "b": "x"', nested) == {"in": {"a": 1, "b": "x"}}
    assert arguments('{"in": {"b": "x"', nested) == {"in": {"b": "x"}}


def test_nobody_knows_whether_a_list_or_a_map_was_complete() -> None:
    """R2."""
    text: SchemaNode = {"type": "string"}
    assert not is_complete({}, {"properties": {"a": {}}}, {"a": ["x"]}, 2)
    assert not is_complete({}, {"additionalProperties": text}, {"a": "x"}, 1)
    assert not is_complete(
        {}, {"properties": {"a": text}, "additionalProperties": text}, {"a": "x"}, 1
    )
    assert not is_complete({}, {"anyOf": [{"type": "object"}, {"type": "object"}]}, {"a": "x"}, 1)
    assert is_complete({}, {"properties": {"a": text}}, {"a": "x"}, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "x" /* y */}', {"a": "x"}),
        ('{"a": true}', {"a": True}),
        ("{'a': none}", {"a": None}),
        ("{'a': -.5}", {"a": -0.5}),
        ("{'a': 1e3}", {"a": 1000.0}),
        ("{'a': '''it's'''}", {"a": "it's"}),
        (f"{{'a': {10**400}}}", {"a": 10**400}),
        ('{"a": ["x", "y"}', {"a": ["x", "y"]}),
        ('[{"a": 1]', [{"a": 1}]),
        ("{}}", {}),
        ("{'a': {}}", {"a": {}}),
        ("{'a': []}", {"a": []}),
    ],
)
def test_readings(text: str, value: JsonValue) -> None:
    """R1."""
    found = read_lenient(text)
    assert isinstance(found, ReadJson)
    assert found.value == value
    assert not found.open


@pytest.mark.parametrize(
    "text",
    [
        "{'a': 1 /* never closed}",
        "{'a': " + "9" * 5000 + "}",
        "{'a': -1e999}",
        "{'a': '\\ud800'}",
        "{'a': 'x\\",
        "{'a': 1} {'a': 2}",
        '\'{"a": 1}',
        "'a': {'b': 1}",
        '{"a": """x\\n"""}',
        '{"a": """x',
        '{"a": """\ud800"""}',
        "{'a': '''x''' y}",
        '{"a": "say "b": c"}',
        "{'a': " * 65,
        "x [1]",
        '{\\"a\\": \\x}',
        "{'a': 1, 'a': 2}",
        "{'a\nb': 1}",
        "{[1]: 2}",
        "{'a': 1 'b'}",
        "{'a': 1:2}",
        "{'a' 1}",
        "{'a': ;}",
    ],
)
def test_what_has_no_one_reading(text: str) -> None:
    """R1: ambiguity means refusal."""
    assert isinstance(read_lenient(text), BrokenJson)


def test_broken_text_is_read_up_to_a_bound() -> None:
    body = "x" * REPAIR_CHARS_MAX
    assert arguments(json.dumps({"path": body})) == {"path": body}
    assert code(f"{{'path': '{body}'}}") == INVALID


def test_deep_nesting_is_an_answer() -> None:
    """T7: not an exception."""
    tree = JsonSchema({"type": "object", "properties": {"a": {"$ref": "#"}}})
    for depth in (40, 900, 100_000):
        assert isinstance(
            prepare_arguments('{"a":' * depth + "1" + "}" * depth, tree), RefusedArguments
        )
        assert isinstance(
            prepare_arguments('{"a":' * depth + '"' + ":" * 9 + '"' + "}" * depth, tree),
            RefusedArguments,
        )


def test_a_field_given_twice() -> None:
    """R1: the same value is one value; two values have no meaning, whichever JSON lets win."""
    twice = prepare_arguments('{"path": "a:b", "path": "a:b"}', READ)
    assert twice == PreparedArguments(
        {"path": "a:b"}, (ArgumentChange("path", "the same field given twice"),)
    )
    assert code('{"path": "a", "path": "b"}') == INVALID
    assert code('{"path": "a", "limit": 1, "limit": true}') == INVALID
    assert arguments('{"path": "a://b:c"}') == {"path": "a://b:c"}


def test_json_in_json_in_json() -> None:
    """R1: unwrapped, but not for ever."""
    text = json.dumps({"path": "a"})
    for _ in range(3):
        text = json.dumps(text)
        assert arguments(text) == {"path": "a"}
    assert code(json.dumps(text)) == INVALID


def test_exact_reading_has_nothing_around_it() -> None:
    assert read_lenient_alone("['a']") == ReadJson(
        ["a"], (ArgumentChange("[0]", "quotes replaced"),)
    )
    assert read_lenient_alone("['a'") == BrokenJson("not closed", cut=True)
    assert read_lenient_alone("['a'] b") == BrokenJson("more text after the value")


# ── shape ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "value", "repaired"),
    [
        ({"type": "boolean"}, " TRUE ", True),
        ({"type": "number"}, "-3", -3),
        ({"type": "number"}, "1e2", 100.0),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "3", 3),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
        ({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}, 3, [3]),
        ({"type": "array", "items": {"type": "integer"}}, ["1", 2], [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, "['1', 2]", [1, 2]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": 1}),
        ({"enum": ["Red", "Blue"]}, "red", "Red"),
        ({"type": "string"}, ["only"], "only"),
    ],
)
def test_shapes_that_are_repaired(rule: SchemaNode, value: JsonValue, repaired: JsonValue) -> None:
    """R1."""
    assert arguments(json.dumps({"x": value}), one_field(rule)) == {"x": repaired}


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"enum": ["red", "RED"]}, "Red"),
        ({"enum": [1, 2]}, "1"),
        ({"const": "a"}, 1),
        ({"const": "a"}, "b"),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, "3"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}),
        ({"type": "array"}, None),
        ({"type": "array", "minItems": 1}, []),
        ({"type": "array", "items": {"type": "integer"}}, ["a"]),
        ({"type": "integer"}, None),
        ({"type": "object"}, "[1]"),
        ({"type": "object"}, "{'a': 1"),
        ({"type": "string"}, [1]),
    ],
)
def test_shapes_that_are_refused(rule: SchemaNode, value: JsonValue) -> None:
    """R1: nothing fits, or two things do."""
    assert code(json.dumps({"x": value}), one_field(rule)) == INVALID


def test_kinds_of_simple_schemas() -> None:
    assert has_schema_type({"type": "number"}, 1)
    assert has_schema_type({"properties": {}}, {})
    assert not has_schema_type({"properties": {}}, [])
    assert has_schema_type({}, [])


def test_a_known_alias_is_taken_only_where_it_is_clear() -> None:
    """R1."""
    assert arguments('{"fileName": "a"}') == {"path": "a"}
    assert code('{"file": "a", "filename": "b"}') == INVALID
    assert code('{"path": "a", "file": "a"}') == INVALID
    free = JsonSchema({"properties": {"path": {"type": "string"}, "n": {"type": "integer"}}})
    assert arguments('{"file": "a", "n": "1"}', free) == {"file": "a", "n": 1}


def test_no_field_with_content_is_dropped() -> None:
    """R1: a field that the tool does not know may be the one that matters."""
    assert arguments('{"command": "ls", "cwd": "", "env": {}, "x": null}', BASH) == {
        "command": "ls"
    }
    assert code('{"command": "rm -r build", "dry_run": true}', BASH) == INVALID
    assert code('{"command": "ls", "retries": 0}', BASH) == INVALID


def test_a_bare_list_is_the_only_field_where_it_fits() -> None:
    one = one_field({"type": "array", "items": {"type": "integer"}})
    assert arguments("[1, 2]", one) == {"x": [1, 2]}
    assert code("[1, 2]", one_field({"type": "string"})) == INVALID
    assert code("[1, 2]", READ) == INVALID
    assert code("12", one_field({"type": "integer"})) == INVALID


# ── what the model is told ───────────────────────────────────────────────────


def test_a_refusal_teaches() -> None:
    """T9: what was received, what is wrong with it, what is expected."""
    refused = prepare_arguments('{"path": ["hush", "hush"], "limit": "many", "rm -rf": 1}', READ)
    assert refused == RefusedArguments(
        INVALID,
        "Received: path: list of 2 items, limit: string of 4 characters, "
        "<name of 6 characters>: integer. "
        "Wrong: path: expected string, got list of 2 items; "
        "limit: expected integer, got string of 4 characters; "
        "arguments: has fields that do not exist: <name of 6 characters>. "
        "Expected: path: string (required), offset: integer (optional), limit: integer (optional).",
    )


def test_refusals_of_text_that_has_no_value() -> None:
    """R2, T9."""
    expected = "Expected: path: string (required), content: string (required)."
    assert prepare_arguments('{"path": "a", "content": "hus', WRITE) == RefusedArguments(
        CUT,
        f"The arguments were cut off after 29 characters. Send them whole, or in parts. {expected}",
    )
    assert prepare_arguments('{"content": "hush"', WRITE) == RefusedArguments(
        CUT,
        "The arguments end before they are closed, and fields may be missing. "
        f"Send them whole. {expected}",
    )
    assert prepare_arguments("hush", WRITE) == RefusedArguments(
        INVALID, f"Received: 4 characters, no JSON object. {expected}"
    )
    assert prepare_arguments("[1]", WRITE) == RefusedArguments(
        INVALID,
        "Received: list of 1 items. "
        f"Wrong: arguments: expected object, got list of 1 items. {expected}",
    )


@given(st.integers(1, 30), st.integers(1, 100), st.text("hush:{}[]\"'\\", max_size=30))
def test_a_refusal_is_short_and_holds_no_content(fields: int, length: int, tail: str) -> None:
    """T9."""
    parts: SchemaNode = {f"field_{at}_{'n' * length}": {"type": "integer"} for at in range(fields)}
    schema = JsonSchema({"type": "object", "properties": parts, "additionalProperties": False})
    value = {f"hush {name}": [f"hush {tail}"] for name in parts}
    for text in (json.dumps(value), json.dumps(value)[:-1], repr(value), tail):
        refused = prepare_arguments(text, schema)
        if isinstance(refused, RefusedArguments):
            assert len(refused.message) <= MESSAGE_MAX
            assert "hush" not in refused.message


def test_many_fields_are_counted() -> None:
    """T9: bounded."""
    many = json.dumps({f"a{at}": 1 for at in range(30)})
    refused = prepare_arguments(many, READ)
    assert isinstance(refused, RefusedArguments)
    assert "a11: integer and 18 more" in refused.message


@pytest.mark.contract("T9")
def test_arguments_of_countless_values_are_refused_and_long_texts_are_not() -> None:
    """T9: each value costs time and memory; what is in a string costs neither."""
    items = ",".join(["[]"] * KEYS_MAX)
    schema = JsonSchema({"type": "object", "properties": {"a": {"type": ["array", "string"]}}})
    refused = prepare_arguments(f'{{"a": [{items}]}}', schema)
    assert isinstance(refused, RefusedArguments)
    assert f"with more than {KEYS_MAX} keys and lists" in refused.message
    text = json.dumps({"a": items})
    assert isinstance(prepare_arguments(text, schema), PreparedArguments)
