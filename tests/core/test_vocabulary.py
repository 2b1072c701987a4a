"""The words of the records are frozen: a journal that was ever written must read unchanged.

`data/vocabulary.json` has a line for each struct and each field that a record can hold, by its
path from the fact and never by the name of a class. `python tests/core/test_vocabulary.py` adds
what is new to it, when a version is made; what stands in it is never changed.
"""

import ast
import inspect
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest
from msgspec import inspect as types

from windlass.core import deltas, events, messages, verdicts
from windlass.core.events import Fact

TABLE = Path(__file__).parent / "data" / "vocabulary.json"
FROZEN = (
    "names, literals and defaults of records are frozen, because old journals must read unchanged"
)
REQUIRED = "(required)"

Entry = dict[str, Any]
Table = dict[str, Entry]


def vocabulary(of: Any) -> Table:
    """Every struct and field that a record of this type can hold."""
    return dict(_entries(types.type_info(of), ""))


def _entries(kind: types.Type, path: str) -> Iterator[tuple[str, Entry]]:
    for struct in _structs(kind):
        here = f"{path}<{'' if struct.tag is None else struct.tag}>"
        yield here, {"tag": struct.tag, "tag_field": struct.tag_field}
        for field in struct.fields:
            place = f"{here}.{field.encode_name}"
            names, literals = _plain(field.type)
            yield (
                place,
                {
                    "types": sorted(names),
                    "literals": sorted(literals, key=str),
                    "default": _default(field),
                },
            )
            yield from _entries(field.type, place)


def _structs(kind: types.Type) -> Iterator[types.StructType]:
    for one in _parts(kind):
        if isinstance(one, types.StructType):
            yield one


def _plain(kind: types.Type) -> tuple[set[str], set[Any]]:
    """Kinds of JSON that a field may be, and the words that it may say."""
    names, literals = set[str](), set[Any]()
    for one in _parts(kind):
        if isinstance(one, types.LiteralType):
            literals |= set(one.values)
        else:
            names.add(type(one).__name__.removesuffix("Type").lower())
    return names, literals


def _parts(kind: types.Type) -> Iterator[types.Type]:
    """A type, and those that it is made of, down to the structs."""
    match kind:
        case types.UnionType():
            for one in kind.types:
                yield from _parts(one)
        case types.Metadata():
            yield from _parts(kind.type)
        case types.CollectionType():
            yield kind
            yield from _parts(kind.item_type)
        case types.TupleType():
            yield kind
            for one in kind.item_types:
                yield from _parts(one)
        case types.DictType():
            yield kind
            yield from _parts(kind.value_type)
        case _:
            yield kind


def _default(field: types.Field) -> Any:
    if field.required:
        return REQUIRED
    made = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return json.loads(msgspec.json.encode(made))


def broken(frozen: Table, now: Table) -> Iterator[str]:
    """Where a vocabulary does not read what the frozen one wrote."""
    for path, was in frozen.items():
        if path not in now:
            yield f"{path} is gone"
            continue
        if gone := [
            word
            for part in ("types", "literals")
            for word in was.get(part, ())
            if word not in now[path][part]
        ]:
            yield f"{path} cannot be {', '.join(map(str, gone))} any longer"
        for part in ("tag", "tag_field", "default"):
            if (before := was.get(part)) != (after := now[path].get(part)):
                yield f"{path}: its {part} was {before!r} and is {after!r}"
    for path in now.keys() - frozen.keys():
        parent = path.rpartition(".")[0]
        if parent in frozen and now[path].get("default") == REQUIRED:
            yield f"{path} is new and has no default"


def test_the_vocabulary_reads_what_was_ever_written() -> None:
    frozen = json.loads(TABLE.read_text("utf-8"))
    found = list(broken(frozen, vocabulary(Fact)))
    assert not found, f"{FROZEN}:\n" + "\n".join(sorted(found))


@pytest.mark.parametrize(
    "module", [events, deltas, messages, verdicts], ids=lambda one: one.__name__
)
def test_a_tag_is_written_out_so_that_a_class_may_be_renamed(module: ModuleType) -> None:
    for node in ast.parse(inspect.getsource(module)).body:
        one = getattr(module, node.name) if isinstance(node, ast.ClassDef) else None
        if not isinstance(node, ast.ClassDef) or one in (deltas.PlacedEvent, messages.MessagePart):
            continue
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            said = [word.value for word in node.keywords if word.arg == "tag"]
            literal = [word.value for word in said if isinstance(word, ast.Constant)]
            assert literal == (
                [] if one.__struct_config__.tag is None else [one.__struct_config__.tag]
            )


# ── what the test would notice ───────────────────────────────────────────────

Word = Literal["one", "two"]


class Inner(msgspec.Struct, omit_defaults=True):
    word: Word = "one"


class Old(msgspec.Struct, tag="old", omit_defaults=True):
    a: int
    b: tuple[Inner, ...] = ()
    c: Inner | None = None


class Renamed(msgspec.Struct, tag="old", omit_defaults=True):
    """Another class for the same record, that can say more."""

    a: int
    more: dict[str, Any] = {}
    c: Optional["OtherInner"] = None
    b: tuple["OtherInner", ...] = ()


class OtherInner(msgspec.Struct, omit_defaults=True):
    word: Literal["one", "two", "three"] = "one"


class Retagged(Old, tag="Old"): ...


class NewName(msgspec.Struct, tag="old"):
    a: int
    b: Annotated[tuple[Inner, ...], "as before"] = ()
    d: Inner | None = None


class NewDefault(msgspec.Struct, tag="old"):
    a: int = 0
    b: tuple[Inner, ...] = (Inner("two"),)
    c: Inner | None = None


class Fewer(msgspec.Struct):
    word: Literal["one"] = "one"


class LessToSay(msgspec.Struct, tag="old"):
    a: int
    b: tuple[Fewer, ...] = ()
    c: Inner | None = None


class NeedsMore(Old, tag="old", kw_only=True):
    e: int


def told(other: type[Any]) -> list[str]:
    return sorted(broken(vocabulary(Old), vocabulary(other)))


def test_a_renamed_class_is_the_same_record_and_may_say_more() -> None:
    assert told(Renamed) == []


def test_a_changed_name_default_or_word_is_noticed() -> None:
    assert "<old> is gone" in told(Retagged)
    assert "<old>.c is gone" in told(NewName)
    assert told(NewDefault) == [
        "<old>.a: its default was '(required)' and is 0",
        "<old>.b: its default was [] and is [{'word': 'two'}]",
    ]
    assert told(LessToSay) == ["<old>.b<>.word cannot be two any longer"]
    assert told(NeedsMore) == ["<old>.e is new and has no default"]


def test_every_kind_of_fact_is_in_the_table() -> None:
    tags = {kind.__struct_config__.tag for kind in typing.get_args(Fact)}
    frozen = json.loads(TABLE.read_text("utf-8"))
    assert {entry["tag"] for path, entry in frozen.items() if "." not in path} <= tags


if __name__ == "__main__":
    kept = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    added = {path: one for path, one in vocabulary(Fact).items() if path not in kept}
    lines = [f"{json.dumps(path)}: {json.dumps(one)}" for path, one in {**kept, **added}.items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
