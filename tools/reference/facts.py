"""Every event and fact with its fields."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from reference.cells import inline_code, table_cell
from reference.names import show_type
from windlass.core import events
from windlass.core.deltas import PlacedEvent

INTRO = """\
# Events and facts

A **fact** is written to the journal before anyone acts on it. A **delta** is shown to watchers
and not kept. `agent.stream`, `agent.watch`, the service and the journal all use these names.

Every event has `seq`, the number of the last fact so far, `nth`, which counts the deltas after
it, and `at`, the time in seconds since 1970. A fact has `worked_s`, the seconds at work since the
fact before it, where the wall clock shows others: it was set, or the machine slept. `hidden` lists
the fields that a caller of a service does not get to see; they have their defaults. In JSON,
`type` names the event; where that name differs from the one in Python, both are given. Fields that
have their default are left out.
"""


def build_events() -> str:
    """Return the page."""
    kinds = get_args(events.Event)
    facts = [kind for kind in kinds if kind in get_args(events.Fact)]
    deltas = [kind for kind in kinds if kind not in facts]
    sections = [
        "## Facts\n",
        *map(_event_section, facts),
        "## Deltas\n",
        *map(_event_section, deltas),
    ]
    return "\n".join((INTRO, *sections))


def _event_section(kind: type[PlacedEvent]) -> str:
    tag = str(kind.__struct_config__.tag)
    named = "" if tag == kind.__name__ else f"\n\nIn JSON, its `type` is `{tag}`."
    parts = [f"### {kind.__name__}\n\n{inspect.cleandoc(kind.__doc__ or '')}{named}\n"]
    own = [field for field in msgspec.structs.fields(kind) if field.name not in _PLACE]
    if own:
        parts.append(_field_table(kind, own))
    return "\n".join(parts)


_PLACE = frozenset(field.name for field in msgspec.structs.fields(PlacedEvent))


def _field_table(kind: type, fields: Sequence[msgspec.structs.FieldInfo]) -> str:
    about = field_docs(kind)
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for field in fields:
        words = " ".join(about.get(field.name, "").split())
        rows.append(
            f"| `{field.encode_name}` | {inline_code(show_type(field.type))} | "
            f"{_default_of(field)} | {table_cell(words)} |"
        )
    return "\n".join(rows) + "\n"


def _default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default is not msgspec.NODEFAULT:
        return inline_code(repr(field.default))
    made = field.default_factory()
    return inline_code(repr(made) if isinstance(made, dict | list | tuple) else "…")


def field_docs(kind: type) -> dict[str, str]:
    """Return the text below each field of a class and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("windlass."):
            found |= dict(_docs_in(base))
    return found


def _docs_in(kind: type) -> Iterator[tuple[str, str]]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - what the source of a class is
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(ast.Constant(str(words))),
            ):
                yield name, words
            case _:
                pass
