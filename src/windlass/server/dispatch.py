"""From a request to its reply: guard, route, owner, handler, errors.

The law: every request gets exactly one reply, whatever the handler does, and every error has the
shape of its route. What went wrong inside is logged under the id of the request and not told.
"""

import time
from collections.abc import Mapping, Sequence
from os import urandom
from typing import Any

from msgspec.structs import replace

from windlass.core.errors import WindlassError
from windlass.logs import get_logger
from windlass.server.errors import ApiError, api_error_from
from windlass.server.guard import AccessRules, Authenticator, RequestGuard
from windlass.server.messages import HttpRequest, Reply, StreamReply, error_reply
from windlass.server.rates import StreamCounter
from windlass.server.route_tables import all_routes
from windlass.server.routing import Route, RouteTable
from windlass.server.service import Service

_log = get_logger(__name__)
SECURITY_HEADERS: Mapping[str, str] = {
    "Server": "windlass",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Dispatcher:
    """Answers the requests to one service, whichever server carries them."""

    def __init__(
        self,
        service: Service,
        *,
        rules: AccessRules | None = None,
        authenticators: Sequence[Authenticator] = (),
        routes: Sequence[Route] | None = None,
    ) -> None:
        """Make a dispatcher. `authenticators` are asked for bearer tokens besides the service's."""
        self.service = service
        self.table = RouteTable(routes if routes is not None else all_routes())
        own = service.tokens.authenticate
        self.guard = RequestGuard(rules or AccessRules(), service.limits, (own, *authenticators))
        self.streams = StreamCounter(service.limits.streams_per_caller)

    async def handle(self, request: HttpRequest) -> Reply:
        """Return the reply to a request. Never raises, except when it is cancelled."""
        request.request_id = urandom(8).hex()
        request.body_bytes_max = self.service.limits.body_bytes
        began = time.perf_counter()
        shape = error_reply
        route: Route | None = None
        try:
            self.guard.check_source(request)
            matched = self.table.find(request.method, request.path)
            route = matched.route
            shape = route.error_shape
            request.params = dict(matched.params)
            reply = await self._answer(route, request)
        except ApiError as error:
            reply = shape(error)
        except WindlassError as error:
            reply = shape(api_error_from(error))
        except Exception:  # noqa: BLE001 - logged, and answered with 500
            _log.exception("request %s failed", request.request_id)
            reply = shape(_internal_error(request.request_id))
        self._note_request(request, route, reply, time.perf_counter() - began)
        return self._add_headers(request, reply)

    async def _answer(self, route: Route, request: HttpRequest) -> Reply:
        if route.role is not None:
            request.caller = await self.guard.authenticate(request)
            request.caller.require(route.role)
        if route.scope == "session":
            summary = await self.service.check_owner(request.caller, request.params["session"])
            request.params["session"] = summary.session
        reply = await route.handler(self.service, request)
        if isinstance(reply, StreamReply):
            caller = request.caller.token or request.caller.name
            # Counted before the head of the reply is sent, so that too many are refused with 429.
            try:
                return replace(reply, on_close=self.streams.open_stream(caller))
            except ApiError:
                await reply.close()
                raise
        return reply

    def _add_headers(self, request: HttpRequest, reply: Reply) -> Reply:
        headers = {**SECURITY_HEADERS, "X-Request-Id": request.request_id, **reply.headers}
        origin = request.header("origin")
        if origin and self.guard.is_allowed(origin):
            headers["Access-Control-Allow-Origin"] = origin
            headers["Vary"] = "Origin"
        return replace(reply, headers=headers)

    def _note_request(
        self, request: HttpRequest, route: Route | None, reply: Reply, seconds: float
    ) -> None:
        """Log a request: who asked for what, and what came of it, without any content."""
        extra: dict[str, Any] = {
            "request_id": request.request_id,
            "method": request.method,
            "route": route.name if route is not None else "",
            "status": reply.status,
            "session": request.params.get("session", ""),
            "caller": request.caller.name if request.has_caller else "",
            "ms": round(seconds * 1000, 1),
        }
        _log.info("%s %s", extra["method"], extra["route"], extra={"windlass": extra})


def _internal_error(request_id: str) -> ApiError:
    return ApiError(
        500,
        "internal_error",
        "The service could not answer the request because of a fault of its own.",
        f"Look for {request_id} in its log.",
    )
