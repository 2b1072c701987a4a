"""Callers: end one, with all that acts on its behalf."""

import msgspec

from windlass.server.caller_end import CallerEnd, RunChoice, end_caller
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.routing import Route
from windlass.server.service import Service


class EndBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of the runs of a caller that is ended."""

    runs: RunChoice = "keep"
    """`cancel` ends the open ones; `keep` leaves them to whoever is an admin."""


async def end_named_caller(service: Service, request: HttpRequest) -> Reply:
    body = await request.decode(EndBody)
    ended = await end_caller(
        service.journal,
        service.tokens,
        request.params["caller"],
        runs=body.runs,
        by=request.caller.author,
        drive=service.drive_soon,
    )
    service.feed.nudge()
    return HttpReply(200, ended)


ROUTES = (
    Route(
        method="POST",
        path="/callers/{caller}/end",
        handler=end_named_caller,
        role="admin",
        name="endCaller",
        summary="End a caller: tokens, login links, webhooks, schedules, and runs by choice.",
        body=EndBody,
        reply=CallerEnd,
        stored_replies=True,
    ),
)
