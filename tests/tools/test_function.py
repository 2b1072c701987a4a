"""`@tool`: what a model is told of a function, and what is refused when the tool is built."""

import functools
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import annotated_types
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from windlass.core.errors import ConfigError
from windlass.core.schema import JsonSchema
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext
from windlass.tools.schemas import ArgumentMismatch


class Unit(Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclass
class Place:
    """Somewhere."""

    name: str
    height: Annotated[int, msgspec.Meta(ge=0, description="In metres.")] = 0


class Span(TypedDict, total=False):
    first: int
    last: int


class Node(msgspec.Struct):
    title: str
    children: "list[Node]" = []


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(default=1, ge=1)


@pydantic.dataclasses.dataclass
class PydanticPlace:
    height: Annotated[int, pydantic.Field(ge=0)]


@dataclass
class Basket:
    orders: list[Order]


def properties(made: Tool[..., Any]) -> dict[str, Any]:
    JsonSchema(made.spec.parameters)  # It is a schema, whatever else it is.
    return made.spec.parameters["properties"]


def test_a_typed_function_is_a_tool() -> None:
    """T1, T2: name, description, parameters and schema; a write unless told."""

    @tool
    def weather(city: str, days: int = 1) -> str:
        """Forecast the weather.

        Args:
            city: Where.
            days: How far.
        """
        return f"{city} {days}"

    assert weather.spec.name == "weather"
    assert weather.spec.description == "Forecast the weather."
    assert weather.spec.effect == "write"
    assert weather.spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "description": "How far.", "default": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert weather("Rome", days=2) == "Rome 2", "it is still the function"
    assert [*inspect.signature(weather).parameters] == ["city", "days"]


def test_options_are_kept() -> None:
    """T1, T2: what the decorator says."""

    def check(context: RunContext, path: str) -> bool:
        return True

    @tool(
        name="put",
        description="Puts.",
        effect="idempotent",
        timeout=None,
        resource="{path}",
        reconcile=check,
        untrusted=True,
        external=True,
        retries=0,
    )
    async def save(path: str = "a") -> None:
        """Save."""

    assert (save.name, save.spec.description, save.spec.effect) == ("put", "Puts.", "idempotent")
    assert save.spec.labels == ("untrusted", "external")
    assert (save.timeout_s, save.retries, save.reconcile) == (None, 0, check)
    assert save.find_resource({}) == "a", "a default is an argument too"
    assert save.find_resource({"path": "b"}) == "b"


def test_a_resource_may_be_a_function_and_may_fail() -> None:
    """T2: what cannot be told may be anything."""

    @tool(resource=lambda given: given["x"].upper())
    def shout(x: object) -> None: ...

    assert shout.find_resource({"x": "a"}) == "A"
    assert shout.find_resource({"x": 1}) is None


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (float, {"type": "number"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Unit, {"enum": ["celsius", "kelvin"]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Unit | None, {"anyOf": [{"enum": ["celsius", "kelvin"]}, {"type": "null"}]}),
        (Path, {"type": "string", "format": "path"}),
        (Any, {}),
        (Annotated[str, "Words."], {"type": "string", "description": "Words."}),
        (
            Annotated[int, msgspec.Meta(ge=1, le=9, description="A digit.")],
            {"type": "integer", "minimum": 1, "maximum": 9, "description": "A digit."},
        ),
        (
            Annotated[int, "A digit.", msgspec.Meta(ge=1)],
            {"type": "integer", "minimum": 1, "description": "A digit."},
        ),
        (Annotated[int, annotated_types.Gt(3)], {"type": "integer", "exclusiveMinimum": 3}),
        (
            Annotated[list[str], annotated_types.Len(1, 2)],
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        ),
        (
            Annotated[int, pydantic.Field(ge=2, description="Some.")],
            {"type": "integer", "minimum": 2, "description": "Some."},
        ),
    ],
)
def test_annotations_become_schemas(annotation: Any, schema: dict[str, Any]) -> None:
    """T1: constraints, enums, unions; inline, without titles."""

    def f(x: Any) -> None: ...

    f.__annotations__["x"] = annotation
    assert properties(tool(f)) == {"x": schema}


@pytest.mark.parametrize("kind", [Place, Span, Node, Order, Basket, list[Order], Order | None])
def test_nested_types_become_definitions(kind: Any) -> None:
    """T1: dataclasses, typed dicts, structs, pydantic models, one inside another."""

    def f(x: Any, y: Any) -> None: ...

    f.__annotations__.update(x=kind, y=Place)
    made = tool(f)
    assert "x" in properties(made)
    assert made.spec.parameters["$defs"]["Place"]["properties"]["height"] == {
        "description": "In metres.",
        "type": "integer",
        "minimum": 0,
        "default": 0,
    }


def test_a_property_that_is_called_title_stays() -> None:
    def f(node: Node) -> None: ...

    definitions = tool(f).spec.parameters["$defs"]
    assert definitions["Node"]["properties"]["title"] == {"type": "string"}
    assert "title" not in definitions["Node"]


@pytest.mark.slow
def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    """T1: an import of the tools, and a tool, without pydantic."""
    code = (
        "import sys\nfrom windlass.tools.function import tool\n"
        "import windlass.tools.toolbox\ndef f(x: int) -> int: return x\n"
        "tool(f)\nprint('pydantic' in sys.modules, 'jsonschema_rs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_context_is_not_the_models() -> None:
    """T1: the first parameter may be the run's context."""

    @tool
    def one(context: RunContext, x: int) -> None: ...

    @tool
    def two(ctx: RunContext[dict[str, str]], x: int) -> str:
        return ctx.deps["a"]

    assert [*properties(one)] == [*properties(two)] == ["x"]
    assert two(RunContext(deps={"a": "b"}), 1) == "b"


def test_methods_partials_and_objects_are_functions() -> None:
    """T1: what a partial has bound is not the model's to choose."""

    class Desk:
        """A desk."""

        def look(self, drawer: str) -> str:
            """Look."""
            return drawer

        def __call__(self, x: int) -> None: ...

    def send(key: str, text: str) -> str:
        return key + text

    assert [*properties(tool(Desk().look))] == ["drawer"]
    assert [*properties(tool(Desk(), name="desk"))] == ["x"]
    assert [*properties(tool(functools.partial(send, key="k"), name="send"))] == ["text"]


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def untyped(x): ...  # noqa: ANN001, ANN201
def starred(*x: int) -> None: ...
def double_starred(**x: int) -> None: ...
def function_taker(call: Callable[[], int]) -> None: ...
def two_objects(x: Place | Node) -> None: ...
def two_texts(x: str | bytes) -> None: ...
def late_context(x: int, context: RunContext) -> None: ...
def unknown_name(x: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def field_default(x: int = pydantic.Field(3)) -> None: ...
def plain(x: int) -> None: ...


def odd(**options: Any) -> Any:
    """Options that a type checker would not let through."""
    return options


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: tool(untyped), ["'untyped'", "'x'", "annotate it"]),
        (lambda: tool(starred), ["'starred'", "*x"]),
        (lambda: tool(double_starred), ["'double_starred'", "**x"]),
        (lambda: tool(function_taker), ["'function_taker'", "'call'"]),
        (lambda: tool(two_objects), ["'two_objects'", "'x'", "tag=True"]),
        (lambda: tool(two_texts), ["'two_texts'", "'x'", "keep one"]),
        (lambda: tool(print), ["'print'"]),
        (lambda: tool(late_context), ["'late_context'", "first parameter"]),
        (lambda: tool(unknown_name), ["'unknown_name'", "'NoSuchType'"]),
        (lambda: tool(field_default), ["'field_default'", "'x'", "Annotated"]),
        (lambda: tool(generator), ["'generator'", "return the whole value"]),
        (lambda: tool(async_generator), ["'async_generator'", "return the whole value"]),
        (lambda: tool(lambda: 1), ["<lambda>", "name="]),
        (lambda: tool(functools.partial(plain)), ["name="]),
        (lambda: tool(3), ["3", "function"]),  # type: ignore[arg-type]
        (lambda: tool(tool(plain)), ["'plain'", "already"]),
        (lambda: tool(plain, name="bad name"), ["'bad name'", "64"]),
        (lambda: tool(plain, name="x" * 65), ["64"]),
        (lambda: tool(plain, **odd(effect="reed")), ["'plain'", "'reed'", "Did you mean read?"]),
        (lambda: tool(plain, timeout=0), ["timeout=0"]),
        (lambda: tool(plain, timeout=float("nan")), ["timeout=nan"]),
        (lambda: tool(plain, retries=-1), ["retries=-1"]),
        (lambda: tool(plain, **odd(timeot=1)), ["'timeot'", "Did you mean timeout"]),
        (lambda: tool(plain, resource="{y}"), ["'{y}'", "x"]),
        (lambda: tool(plain, resource="{"), ["resource"]),
        (lambda: tool(plain, reconcile=lambda x: x), ["reconcile must take (context, x)"]),
    ],
)
def test_what_cannot_be_a_tool_fails_when_it_is_built(
    build: Callable[[], object], words: list[str]
) -> None:
    """T1: one line, with the names and the fix."""
    with pytest.raises(ConfigError) as caught:
        build()
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_method_in_a_class_body_is_told_how_to_be_a_tool() -> None:
    class Desk:
        def look(self, drawer: str) -> None: ...

    with pytest.raises(ConfigError, match=r"tool\(thing.look\)"):
        tool(Desk.look)


def test_a_tool_from_a_json_schema() -> None:
    """T1: plain JSON Schema, and arguments as they are."""
    schema = {"type": "object", "properties": {"when-ever": {"type": "string"}}}
    made = Tool.from_schema("later", "Do it later.", schema, lambda **given: given, effect="read")
    assert made.spec.parameters == schema
    assert made.spec.effect == "read"
    context = RunContext(deps=None)
    assert made.signature.bind_arguments({"when-ever": "now"}, context) == (
        [],
        {"when-ever": "now"},
    )


def test_a_tool_from_a_list_of_parameters() -> None:
    """T1: the list style of other frameworks."""
    listed = [
        {"name": "path", "type": "str", "description": "The file.", "required": True},
        {"name": "mode", "type": "string", "enum": ["r", "w"]},
        {"name": "rest"},
    ]
    made = Tool.from_schema("open", "Open.", listed, lambda **given: given)
    assert made.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file."},
            "mode": {"type": "string", "enum": ["r", "w"]},
            "rest": {},
        },
        "additionalProperties": False,
        "required": ["path"],
    }


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "string"}, "arguments are an object"),
        ({"type": "object", "properties": {"x": {"type": "strong"}}}, "not a JSON Schema"),
        ([{"type": "string"}], "no name"),
        ([{"name": "x", "type": "strin"}], "Did you mean string"),
        ([{"name": "x"}, {"name": "x"}], "listed twice"),
    ],
)
def test_a_wrong_schema_is_refused(parameters: Any, words: str) -> None:
    """T1: when the tool is built."""
    with pytest.raises(ConfigError, match=words) as caught:
        Tool.from_schema("t", "", parameters, lambda: None)
    assert "'t'" in str(caught.value)


class Fussy(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        raise LookupError("not today")


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (list[Place], [{"name": "a"}, {"name": 1}], "x[1].name: Expected `str`, got `int`"),
        (list[Order], [{"item": "a", "count": 0}], "x[0].count: Input should be greater"),
        (PydanticPlace, {"height": -1}, "x.height: Input should be greater"),
        (
            Basket,
            {"orders": [{"item": "a", "count": 0}]},
            "x.orders[0]: count: Input should be greater",
        ),
        (Fussy, {"x": 1}, "x: LookupError: not today"),
        (Path, 3, "x: Expected a path"),
    ],
)
def test_a_misfit_names_the_field(annotation: Any, value: object, words: str) -> None:
    """T1, T9: whoever finds it."""

    def f(x: Any) -> None: ...

    f.__annotations__["x"] = annotation
    with pytest.raises(ArgumentMismatch) as caught:
        tool(f).signature.bind_arguments({"x": value}, RunContext(deps=None))
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("returns", "short"),
    [
        (int, True),
        (None, True),
        (bool | None, True),
        (Annotated[float, "x"], True),
        (Literal["a", "b"], True),
        (Unit, True),
        (str, False),
        (int | str, False),
        (list[int], False),
        (Any, False),
    ],
)
def test_what_is_short_by_its_type(returns: Any, *, short: bool) -> None:
    """T10: such a tool needs no artifacts."""

    def f() -> Any: ...

    f.__annotations__["return"] = returns
    assert tool(f).has_short_result is short


def test_types_arrive_as_annotated() -> None:
    """T1: JSON in, Python out."""

    def f(  # noqa: PLR0913, PLR0917
        place: Place,
        unit: Unit,
        when: datetime,
        path: Path,
        order: Order,
        basket: Basket,
        count: int,
        anything: object,
        /,
        tail: tuple[int, ...] = (),
    ) -> None: ...

    given = {
        "place": {"name": "here"},
        "unit": "kelvin",
        "when": "2026-01-02T03:04:05Z",
        "path": "a/b",
        "order": {"item": "tea"},
        "basket": {"orders": [{"item": "tea", "count": 2}]},
        "count": 3.0,
        "anything": [1],
    }
    places, names = tool(f).signature.bind_arguments(given, RunContext(deps=None))
    assert places[:2] == [Place("here"), Unit.KELVIN]
    assert (places[2].year, places[3]) == (2026, Path("a/b"))
    assert places[4:6] == [Order(item="tea"), Basket([Order(item="tea", count=2)])]
    assert places[6:] == [3, [1]]
    assert names == {"tail": ()}
