"""The HTTP API, from its OpenAPI document."""

from collections.abc import Mapping
from typing import Any

from reference.cells import inline_code, table_cell
from windlass.server.dispatch import all_routes
from windlass.server.openapi import build_document

INTRO = """\
# HTTP API

The routes of `windlass serve`, from the OpenAPI document that every service has at
`/openapi.json`. A token goes into `Authorization: Bearer …`; [serving agents](../service.md)
says how to get one. Errors have a [code and a hint](errors.md#codes-of-the-service).
"""


def build_http() -> str:
    """Return the page."""
    document = build_document(all_routes())
    parts = [INTRO]
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        first = path.split("/")[1] or "page"
        for method, operation in methods.items():
            section = _route_section(method.upper(), path, operation)
            groups.setdefault(first.partition("{")[0] or "page", []).append(section)
    for group, sections in groups.items():
        parts.append(f"## {group}\n")
        parts.extend(sections)
    parts.append("## Schemas\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(_schema_section(name, schema))
    return "\n".join(parts)


def _route_section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    about = operation["summary"]
    needs = operation.get("description", "Needs no token.")
    lines = [f"### {method} {path} {{ #{operation['operationId']} }}\n\n{about} {needs}\n"]
    rows = [
        f"| `{each['name']}` | {each['in']} | {inline_code(_schema_words(each['schema']))} | "
        f"{table_cell(each.get('description') or each['schema'].get('description', ''))} |"
        for each in operation["parameters"]
    ]
    if rows:
        lines.append("| parameter | in | type | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    for kind, shape in operation.get("requestBody", {}).get("content", {}).items():
        body = _schema_link(shape["schema"]) if "json" in kind else f"`{kind}`"
        lines.append(f"Body: {body}.\n")
    for status, reply in operation["responses"].items():
        if status == "default":
            continue
        shapes = [
            f"{_schema_link(shape['schema'])} as `{kind}`" if "json" in kind else f"`{kind}`"
            for kind, shape in reply.get("content", {}).items()
        ]
        lines.append(f"Reply {status}: {' or '.join(shapes) or 'no body'}.\n")
    return "\n".join(lines)


def _schema_section(name: str, schema: Mapping[str, Any]) -> str:
    parts = [f"### {name} {{ #schema-{name} }}\n\n{table_cell(schema.get('description', ''))}\n"]
    rows = [
        f"| `{field}` | {inline_code(_schema_words(about))} | "
        f"{'required' if field in schema.get('required', ()) else ''} | "
        f"{table_cell(about.get('description', ''))} |"
        for field, about in schema.get("properties", {}).items()
    ]
    if rows:
        parts.append("| field | type | | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    elif "enum" in schema:
        parts.append(inline_code(" · ".join(map(str, schema["enum"]))) + "\n")
    return "\n".join(parts)


def _schema_link(schema: Mapping[str, Any]) -> str:
    words = _schema_words(schema)
    name = words.removesuffix("[]")
    if "$ref" in schema or "$ref" in schema.get("items", {}):
        return f"[`{words}`](#schema-{name})"
    return f"`{words}`"


def _schema_words(schema: Mapping[str, Any]) -> str:
    """A schema in a few words, such as `string | null` or `RunSummary[]`."""
    match schema:
        case {"$ref": ref}:
            return ref.rpartition("/")[2]
        case {"anyOf": ways}:
            return " | ".join(dict.fromkeys(map(_schema_words, ways)))
        case {"enum": values}:
            return " | ".join(map(repr, values))
        case {"type": "array", "items": dict(items)}:
            return f"{_schema_words(items)}[]"
        case {"type": kind}:
            return str(kind)
        case _:
            return "any"
