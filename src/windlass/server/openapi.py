"""The OpenAPI document of the service, made from its route table.

Invariant: nothing is described twice. Paths, parameters, bodies, replies and errors come from the
routes and their types.
"""

from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

import msgspec

from windlass.server.messages import SSE_TYPE
from windlass.server.routing import Route, path_parameters

REF = "#/components/schemas/{name}"
CHANGES = frozenset({"POST", "PUT", "DELETE"})
KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A name of your own for this change: sent twice, it is made once.",
    "schema": {"type": "string", "maxLength": 200},
}


def build_document(routes: Sequence[Route], prefix: str = "") -> dict[str, Any]:
    """Return the document of all routes, for a service that is reached under a prefix."""
    types = list(
        dict.fromkeys(
            kind
            for route in routes
            for kind in (route.body, route.reply, route.query, route.error_body)
            if kind is not None
        )
    )
    schemas, components = msgspec.json.schema_components(
        types, ref_template=REF, schema_hook=_describe_other
    )
    known = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _describe_route(route, known, components)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": _windlass_version(),
            "description": "Agents whose runs outlive their clients, deploys and crashes.",
        },
        "servers": [{"url": prefix or "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_route(
    route: Route, known: dict[Any, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": list(_parameters(route, known, components)),
        "responses": _responses(route, known),
    }
    if route.role is None:
        operation["security"] = []
    else:
        operation["description"] = f"Needs the role {route.role}."
    if route.takes_upload:
        data = {"type": "string", "format": "binary", "minLength": 1}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": {"schema": data}},
        }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": known[route.body]}},
        }
    return operation


def _parameters(
    route: Route, known: dict[Any, dict[str, Any]], components: dict[str, Any]
) -> Iterable[dict[str, Any]]:
    for name in path_parameters(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if route.query is not None:
        schema = components[known[route.query]["$ref"].rpartition("/")[2]]
        for name, about in schema["properties"].items():
            yield {"name": name, "in": "query", "required": False, "schema": about}
    if route.streams:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "description": "The id of the last event that the client has.",
            "schema": {"type": "string"},
        }
    if route.stored_replies or route.name == "startRun":
        yield KEY_HEADER


def _responses(route: Route, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.reply is not None:
        content["application/json"] = {"schema": known[route.reply]}
    if route.streams:
        content[SSE_TYPE] = {"schema": {"type": "string"}}
    for content_type in route.content_types:
        if route.reply is None and not route.streams:
            content.setdefault(content_type, {"schema": {}})
    found: dict[str, Any] = {"description": route.summary}
    if content and route.status != 204:  # noqa: PLR2004 - it has no body
        found["content"] = content
    responses: dict[str, Any] = {str(route.status): found}
    if route.streams:
        responses["204"] = {"description": "Nothing more comes for now."}
    if route.reply is not None and route.stored_replies and route.scope == "session":
        # A message that the run has not taken yet is accepted.
        responses.setdefault("202", found)
    for status in route.other_statuses:
        responses[str(status)] = {"description": "Taken."}
    error: dict[str, Any] = {"description": _describe_errors(route)}
    if route.error_body is not None:
        error["content"] = {"application/json": {"schema": known[route.error_body]}}
    responses["default"] = error
    return responses


def _describe_errors(route: Route) -> str:
    if not route.errors:
        return "An error: what happened, and what to do."
    return f"An error: what happened, and what to do. Codes: {', '.join(route.errors)}."


def _describe_other(kind: type) -> dict[str, Any]:
    """Return the schema of a type that has none: a sequence of ours is an array in JSON."""
    return {"type": "array"} if issubclass(kind, Sequence) else {"description": "Any value."}


def _windlass_version() -> str:
    try:
        return metadata.version("windlass")
    except metadata.PackageNotFoundError:
        return "0"
