"""The forms that an MCP server may have a person fill in (elicitation in form mode).

Invariant: a form is a flat object of plain values, as the protocol says. One that is not, is too
long or asks for a secret is refused before anybody sees it. What a person gives is checked by the
form, and what they leave out gets its default.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from windlass.core.errors import ConfigError
from windlass.core.schema import JsonSchema, declared_fields
from windlass.core.schema_faults import find_faults
from windlass.core.text_clip import printable_line

FIELDS_MAX = 30
FIELD_CHARS_MAX = 100
"""Of the name of a field."""
PLAIN_TYPES = ("string", "number", "integer", "boolean")
_SECRET_WORDS = re.compile(
    r"pass[ _-]?(word|phrase|code)|secret|api[ _-]?key|private[ _-]?key|credential"
    r"|(access|auth|bearer|refresh)[ _-]?token|card[ _-]?number|\bcvv\b|\bpin\b",
    re.IGNORECASE,
)


class FormRefused(Exception):
    """A form that must not be shown, or values that do not fit it. The text says why."""


def read_form(schema: Mapping[str, Any]) -> JsonSchema:
    """Return the form of a server. Raises FormRefused if it cannot be shown."""
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise FormRefused("a form must be an object with properties")
    fields = schema["properties"]
    if len(fields) > FIELDS_MAX:
        raise FormRefused(f"a form may have at most {FIELDS_MAX} fields")
    for name, field in fields.items():
        _check_field(name, field)
    try:
        return JsonSchema(dict(schema))
    except ConfigError as error:
        raise FormRefused(f"the form is not a valid schema: {error}") from None


def _check_field(name: str, field: object) -> None:
    shown = printable_line(name)
    if len(name) > FIELD_CHARS_MAX:
        raise FormRefused(f"the name of a field may have at most {FIELD_CHARS_MAX} characters")
    if not isinstance(field, dict):
        raise FormRefused(f"the field {shown!r} is not described")
    described = cast("dict[str, Any]", field)
    kind = described.get("type")
    items = described.get("items")
    is_choice = kind == "array" and isinstance(items, dict) and not {"properties"} & items.keys()
    if kind not in PLAIN_TYPES and not is_choice:
        raise FormRefused(f"the field {shown!r} is not text, a number, a yes or no, or a choice")
    title = str(described.get("title", ""))
    if described.get("format") == "password" or any(map(_SECRET_WORDS.search, (name, title))):
        raise FormRefused(f"the field {shown!r} asks for a secret, which is not allowed in a form")


def default_values(form: JsonSchema) -> dict[str, Any]:
    """Return what the form suggests: the defaults of its fields."""
    fields = cast("dict[str, dict[str, Any]]", form.node["properties"])
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def complete_values(form: JsonSchema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the defaults of what was left out. Raises FormRefused."""
    completed = {**default_values(form), **values}
    unknown = completed.keys() - declared_fields(form.node).keys()
    if unknown:
        raise FormRefused(f"the form has no field {min(unknown)!r}")
    if not form.accepts(completed):
        faults = find_faults(form, completed)
        raise FormRefused("; ".join(f"{fault.path}: {fault.message}" for fault in faults))
    return completed
