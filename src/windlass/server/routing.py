"""The route table: which request leads to which handler, and who may make it.

Invariant: a route is data. The OpenAPI document, the tests of isolation and the docs are made from
the table, so that no route can be forgotten. Ownership is checked before a handler is called.

    ROUTES = Routes()

    @ROUTES.add("GET", "/agents/{agent}", role="watch", reply=AgentReply)
    async def read_agent(service: Service, request: HttpRequest) -> Reply:
        '''Read about one agent.'''
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

import msgspec

from windlass.server.access import Role
from windlass.server.errors import ApiError, ErrorReply
from windlass.server.messages import HttpReply, HttpRequest, Reply, error_reply
from windlass.server.service import Service

Handler = Callable[[Service, HttpRequest], Awaitable[Reply]]
HandlerT = TypeVar("HandlerT", bound=Handler)
HttpMethod = Literal["GET", "POST", "PUT", "DELETE"]
Scope = Literal["none", "session", "caller"]
ErrorShape = Callable[[ApiError], HttpReply]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request."""

    method: HttpMethod
    path: str
    """Such as `/runs/{session}/events`. A parameter is one segment, percent-encoded."""
    handler: Handler
    role: Role | None
    """What the caller must be allowed to do. None: no token is needed."""
    scope: Scope = "none"
    """`session`: the path names a session, whose ownership is checked before the handler.

    `caller`: what the reply holds depends on the caller.
    """
    name: str
    """The operation's name, unique in the service."""
    summary: str = ""
    query: type[Any] | None = None
    body: type[Any] | None = None
    reply: Any = None
    """The type of the reply's body; None if it is not JSON."""
    status: int = 200
    """Of a reply that is not an error."""
    streams: bool = False
    """Whether the reply may be a stream of events."""
    content_types: tuple[str, ...] = ("application/json",)
    errors: tuple[str, ...] = ()
    """Codes of errors that are particular to this route."""
    takes_upload: bool = False
    """The body is a file: bytes of any type, as many as the service takes of an upload."""
    takes_secret: bool = False
    """The request holds a login code or a link in place of a token: a wrong one counts as a
    failed login of its address."""
    stored_replies: bool = False
    """An `Idempotency-Key` makes the service keep the reply, and return it again for that key."""
    is_keyed: bool = False
    """The handler itself makes its change once for an `Idempotency-Key`. So a request that is sent
    again while the first one is under way joins it, instead of being refused."""
    error_shape: ErrorShape = error_reply
    error_body: Any = ErrorReply
    """The type of the body of an error, as `error_shape` makes it."""
    other_statuses: tuple[int, ...] = ()
    """Of further replies that are not errors, and have no body."""


class Routes(list[Route]):
    """The routes of one module, each added by the handler that answers it."""

    def add(
        self,
        method: HttpMethod,
        path: str,
        *,
        role: Role | None,
        scope: Scope = "none",
        **fields: Any,  # noqa: ANN401 - the other fields of a route
    ) -> Callable[[HandlerT], HandlerT]:
        """Add the route of the handler below.

        Its docstring is the summary of the route. The operation has its name, in camel case, unless
        `name` is given.
        """

        def add_route(handler: HandlerT) -> HandlerT:
            first, *others = handler.__name__.split("_")
            given: dict[str, Any] = {
                "name": first + "".join(map(str.capitalize, others)),
                "summary": " ".join((handler.__doc__ or "").split()),
                **fields,
            }
            self.append(
                Route(method=method, path=path, handler=handler, role=role, scope=scope, **given)
            )
            return handler

        return add_route


class MatchedRoute(msgspec.Struct, frozen=True):
    """A route and the parameters of the path."""

    route: Route
    params: Mapping[str, str]


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Make a table. Raises ValueError if two routes have one name or one path and method."""
        self.routes = tuple(routes)
        self._by_shape: dict[tuple[int, str], list[tuple[tuple[str, ...], Route]]] = {}
        names: set[str] = set()
        paths: set[tuple[str, str]] = set()
        for route in self.routes:
            if route.name in names or (route.method, route.path) in paths:
                raise ValueError(f"the route {route.name} {route.path} already exists")
            names.add(route.name)
            paths.add((route.method, route.path))
            segments = split_path(route.path)
            self._by_shape.setdefault(_shape(segments), []).append((segments, route))
        for listed in self._by_shape.values():
            # Fixed segments come before parameters.
            listed.sort(key=lambda pair: [segment.startswith("{") for segment in pair[0]])

    def find(self, method: str, path: str) -> MatchedRoute:
        """Return the route of a request. Raises ApiError 404 or 405."""
        segments = split_path(path)
        allowed: set[str] = set()
        for pattern, route in self._candidates(segments):
            params = _match(pattern, segments)
            if params is None:
                continue
            if route.method == method:
                return MatchedRoute(route, params)
            allowed.add(route.method)
        if allowed:
            names = ", ".join(sorted(allowed))
            raise ApiError(
                405,
                "method_not_allowed",
                f"{path[:200]} does not take {method[:20]}.",
                f"Use {names}.",
                headers={"Allow": names},
            )
        raise ApiError(
            404, "route_not_found", f"There is nothing at {path[:200]}.", "See /openapi.json."
        )

    def _candidates(self, segments: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Route]]:
        yield from self._by_shape.get(_shape(segments), ())
        yield from self._by_shape.get((len(segments), "{}"), ())


def split_path(path: str) -> tuple[str, ...]:
    """Return the segments of a path, still percent-encoded."""
    return tuple(path.strip("/").split("/"))


def path_parameters(path: str) -> tuple[str, ...]:
    """Return the names of the parameters of a route's path."""
    return tuple(part[1:-1] for part in split_path(path) if part.startswith("{"))


def _shape(segments: tuple[str, ...]) -> tuple[int, str]:
    first = segments[0] if segments else ""
    return len(segments), "{}" if first.startswith("{") else first


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for wanted, found in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            if not found:
                return None
            params[wanted[1:-1]] = unquote(found, errors="strict") if _is_utf8(found) else found
        elif wanted != found:
            return None
    return params


def _is_utf8(segment: str) -> bool:
    try:
        unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return False
    return True
