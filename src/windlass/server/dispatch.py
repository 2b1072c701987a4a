"""From a request to its reply: guard, route, owner, handler, errors.

Invariant: every request gets exactly one reply, whatever the handler does, and every error has the
shape of its route. An internal failure is logged under the id of the request and not shown to the
client. A protocol adds its routes to `all_routes`.
"""

import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from os import urandom
from typing import Any

from msgspec.structs import replace
from typing_extensions import override

from windlass.core.errors import ConfigError, WindlassError
from windlass.logs import get_logger
from windlass.server.a2a import a2a_routes
from windlass.server.access import Caller
from windlass.server.ag_ui import ag_ui_routes
from windlass.server.api import (
    agents,
    callers,
    controls,
    people,
    queued_prompts,
    runs,
    session_records,
    uploads,
)
from windlass.server.errors import ApiError, api_error_from
from windlass.server.guard import (
    AccessRules,
    Authenticator,
    RequestGuard,
    find_prefix,
    token_needed,
)
from windlass.server.limits import BodyCounter, StreamCounter
from windlass.server.mcp import mcp_routes
from windlass.server.messages import (
    ClosableChunks,
    HttpReply,
    HttpRequest,
    Reply,
    StreamReply,
    encode_json,
    error_reply,
)
from windlass.server.metrics import Metric, gauge
from windlass.server.openai import openai_routes
from windlass.server.openapi import build_document
from windlass.server.page import page_routes
from windlass.server.quotas import quota_routes
from windlass.server.request_log import STARTED_SESSION
from windlass.server.routing import Route, Routes, RouteTable, split_path
from windlass.server.schedules import schedule_routes
from windlass.server.service import Service
from windlass.server.stored_replies import KeyedRequest
from windlass.server.tokens import TokenStore
from windlass.server.webhooks import question_page, webhook_routes


def all_routes() -> tuple[Route, ...]:
    """Return the routes of the service and of all protocols."""
    return (
        *runs.ROUTES,
        *controls.ROUTES,
        *queued_prompts.ROUTES,
        *session_records.ROUTES,
        *agents.ROUTES,
        *uploads.UPLOADS,
        *callers.ROUTES,
        *callers.TOKENS,
        *people.ROUTES,
        *people.PEOPLE,
        *people.GROUPS,
        *a2a_routes.ROUTES,
        *ag_ui_routes.ROUTES,
        *mcp_routes.ROUTES,
        *openai_routes.ROUTES,
        *page_routes.ROUTES,
        *schedule_routes.SCHEDULES,
        *quota_routes.QUOTAS,
        *webhook_routes.WEBHOOKS,
        *question_page.ROUTES,
    )


_log = get_logger(__name__)
QUIET_ROUTES = frozenset({"readHealth", "readPageFile", "readReadiness"})
"""Asked for so often that they would hide all else in a log."""
PROBES = frozenset({"readHealth", "readReadiness"})
"""Not counted: a flood from the address of a proxy must not make a healthy service look dead."""
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

PREFIXES_MAX = 8
"""Paths under which the service is reached, whose documents are kept."""
RECHECK_S = 5.0
"""How long an open stream trusts its token."""
PREFLIGHT_HEADERS: Mapping[str, str] = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, traceparent"
    ),
    "Access-Control-Max-Age": "600",
}
"""For browsers that ask before a page of another site, which is allowed to, calls the service."""


class RevocableChunks(AsyncIterator[bytes]):
    """Passes the chunks of a stream on for as long as the caller's token is valid.

    The token is checked before a chunk is sent, at most every `RECHECK_S` seconds, so that an idle
    stream costs nothing. The stream ends at the first check that finds the token invalid.
    """

    def __init__(self, tokens: TokenStore, caller: Caller, chunks: AsyncIterator[bytes]) -> None:
        self._tokens = tokens
        self._caller = caller
        self._chunks = chunks
        self._check_at = tokens.now() + RECHECK_S

    @override
    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        now = self._tokens.now()
        if now >= self._check_at:
            self._check_at = now + RECHECK_S
            if not await self._tokens.is_valid(self._caller):
                raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """End what is inside, even if nothing of it was read."""
        if isinstance(self._chunks, ClosableChunks):
            await self._chunks.aclose()


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
        self.limits = service.limits
        listed = tuple(routes if routes is not None else all_routes())
        self.table = RouteTable((*listed, *self._describe_table(listed)))
        tokens = service.tokens
        self.guard = RequestGuard(
            self._complete_rules(rules or AccessRules(), listed),
            self.limits,
            (tokens.authenticate, *authenticators),
            tokens.authenticate_browser,
        )
        self.streams = StreamCounter(self.limits.streams_per_caller)
        self.bodies = BodyCounter(self.limits.bodies_bytes)
        service.metrics.add_source(self._count)

    def _complete_rules(self, rules: AccessRules, routes: Sequence[Route]) -> AccessRules:
        """Return the rules with the address of the service. Raises ConfigError."""
        rules = replace(rules, public_url=rules.public_url or self.service.outside.public_url)
        first = find_prefix(rules.public_url).partition("/")[2].partition("/")[0]
        if first in {split_path(route.path)[0] for route in routes} - {""}:
            # Such a path would have two meanings, with the prefix and without.
            raise ConfigError(
                f"the public address {rules.public_url!r} begins with /{first}, which is a path of "
                "the service itself: choose another prefix, such as /windlass"
            )
        return rules

    async def handle(self, request: HttpRequest) -> Reply:
        """Return the reply to a request. Never raises, except when it is cancelled."""
        request.request_id = urandom(8).hex()
        STARTED_SESSION.set("")
        request.body_bytes_max = self.limits.body_bytes
        began = time.perf_counter()
        shape = error_reply
        route: Route | None = None
        try:
            self.guard.locate(request)
            self.guard.check_source(request)
            if request.method == "OPTIONS" and self.guard.is_allowed(request.header("origin")):
                return self._add_headers(request, HttpReply(204, headers=PREFLIGHT_HEADERS))
            matched = self.table.find(request.method, request.path)
            route = matched.route
            if route.role is None:
                request.body_bytes_max = self.limits.open_body_bytes
            elif route.takes_upload:
                request.body_bytes_max = self.limits.upload_bytes
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

    async def _answer_open(self, route: Route, request: HttpRequest) -> Reply:
        """Answer a request without a token."""
        if route.name not in PROBES:
            self.guard.check_open_rate(request)
        try:
            return await route.handler(self.service, request)
        except ApiError as error:
            if route.takes_secret and error.status in (401, 404):
                self.guard.note_failure(request)
            raise

    async def _answer(self, route: Route, request: HttpRequest) -> Reply:
        if route.role is None:
            return await self._answer_open(route, request)
        known = await self.guard.authenticate(request)
        request.caller = await self.service.people.extend(known) if known.person else known
        request.check_caller = partial(self._check_again, request.caller)
        request.caller.require(route.role)
        if route.scope == "session":
            named = request.params["session"]
            request.session = await self.service.find_session(request.caller, named, route.role)
            # Handlers have the session alone, never the name that the client gave it.
            del request.params["session"]
        with self.bodies.count_for(request.caller.name) as request.count_bytes:
            reply = await self._call_handler(route, request)
        if isinstance(reply, StreamReply):
            caller = request.caller.counted_as
            # Counted before the head of the reply is sent, so that too many are refused with 429.
            try:
                return replace(
                    reply,
                    chunks=RevocableChunks(self.service.tokens, request.caller, reply.chunks),
                    on_close=self.streams.open_stream(caller),
                )
            except ApiError:
                await reply.close()
                raise
        body = reply.encode_body()
        held = self.bodies.hold_reply(request.caller.name, len(body))
        return replace(reply, body=body, on_close=held)

    async def _check_again(self, caller: Caller) -> None:
        """Raise ApiError 401 if the token was revoked or has expired while the body arrived."""
        if not await self.service.tokens.is_valid(caller):
            raise token_needed()

    async def _call_handler(self, route: Route, request: HttpRequest) -> Reply:
        key = request.header("idempotency-key") if route.stored_replies else ""
        if not key:
            return await route.handler(self.service, request)
        # Of two people who share a caller, each makes their own change, such as their own answer.
        person = request.caller.person
        place = f"{route.name} {request.session_name} {sorted(request.params.items())} {person}"
        body = await request.read_body()
        work = partial(route.handler, self.service, request)
        return await self.service.stored_replies.answer(
            KeyedRequest(request.caller.name, place, key, body, route.is_keyed), work
        )

    def _describe_table(self, routes: Sequence[Route]) -> Routes:
        """Return the route of the document, which describes the others."""
        added = Routes()

        @lru_cache(maxsize=PREFIXES_MAX)
        def make_document(prefix: str) -> HttpReply:
            return HttpReply(200, encode_json(build_document(routes, prefix)))

        @added.add("GET", "/openapi.json", role=None, reply=dict[str, Any])
        async def read_document(_service: Service, request: HttpRequest) -> Reply:
            """Describe all routes (OpenAPI)."""
            return make_document(request.prefix)

        return added

    def _count(self) -> Iterator[Metric]:
        yield gauge("windlass_streams_open", "Event streams that are open.", self.streams.total)
        driven = len(self.service.driven_sessions())
        yield gauge("windlass_runs_driven", "Runs that this process drives.", driven)
        damaged = len(self.service.damaged_sessions)
        text = "Sessions that were found damaged, and are left out of lists and sums."
        yield gauge("windlass_sessions_damaged", text, damaged)
        ready = float(self.service.is_ready)
        yield gauge("windlass_ready", "Whether new work should be sent here.", ready)

    def _add_headers(self, request: HttpRequest, reply: Reply) -> Reply:
        headers = {**SECURITY_HEADERS, "X-Request-Id": request.request_id, **reply.headers}
        if headers.get("Location", "").startswith("/"):
            # Handlers and stored replies know the paths of the service alone.
            headers["Location"] = request.prefix + headers["Location"]
        if request.trace:
            # The same trace, with this request as its last span.
            _, trace, _, flags = request.trace.split("-")
            headers["traceparent"] = f"00-{trace}-{request.request_id}-{flags}"
        origin = request.header("origin")
        if origin and self.guard.is_allowed(origin):
            headers["Access-Control-Allow-Origin"] = origin
            headers["Vary"] = "Origin"
        return replace(reply, headers=headers)

    def _note_request(
        self, request: HttpRequest, route: Route | None, reply: Reply, seconds: float
    ) -> None:
        """Log a request: who asked for what, and the result, without any content."""
        extra: dict[str, Any] = {
            "request_id": request.request_id,
            "method": request.method,
            "route": route.name if route is not None else "",
            "status": reply.status,
            "session": request.session_name or STARTED_SESSION.get(),
            "caller": request.caller.name if request.has_caller else "",
            "trace": request.trace.split("-")[1] if request.trace else "",
            "ms": round(seconds * 1000, 1),
        }
        is_quiet = extra["route"] in QUIET_ROUTES and reply.status < 400  # noqa: PLR2004 - an error
        level = logging.DEBUG if is_quiet else logging.INFO
        _log.log(level, "%s %s", extra["method"], extra["route"], extra={"windlass": extra})
        self.service.metrics.note_request(extra["route"], reply.status, seconds)


def _internal_error(request_id: str) -> ApiError:
    return ApiError(
        500,
        "internal_error",
        "The service could not answer the request because of a fault of its own.",
        f"Look for {request_id} in its log.",
    )
