"""For those who operate the service: whether it lives, whether it takes work, what it counts."""

import asyncio
import time

import msgspec

from windlass.core.errors import WindlassError
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.metrics import OPEN_METRICS
from windlass.server.routing import Routes
from windlass.server.service import Service

JOURNAL_S = 2.0
"""How long the journal may take to answer."""


class HealthReply(msgspec.Struct, frozen=True):
    """That the service lives."""

    status: str


ROUTES = Routes()


@ROUTES.add("GET", "/healthz", role=None, reply=HealthReply)
async def read_health(_service: Service, _request: HttpRequest) -> Reply:
    """Say that the service lives."""
    return HttpReply(200, HealthReply("ok"))


@ROUTES.add(
    "GET", "/readyz", role=None, reply=HealthReply, errors=("draining", "journal_unreachable")
)
async def read_readiness(service: Service, _request: HttpRequest) -> Reply:
    """Say whether work should be sent here."""
    if not service.is_ready:
        raise ApiError(503, "draining", "The service is stopping.", "Use another replica.")
    try:
        async with asyncio.timeout(JOURNAL_S):
            await service.journal.read("readiness")
    except (TimeoutError, WindlassError):
        raise ApiError(
            503,
            "journal_unreachable",
            "The journal does not answer.",
            "See the log, and the place that --journal names.",
            retry_after=JOURNAL_S,
        ) from None
    return HttpReply(200, HealthReply("ready"))


@ROUTES.add(
    "GET",
    "/metrics",
    role="watch",
    scope="caller",
    content_types=(OPEN_METRICS.partition(";")[0],),
)
async def read_metrics(service: Service, request: HttpRequest) -> Reply:
    """Count requests, streams, runs and costs (OpenMetrics)."""
    owner = None if request.caller.is_admin else request.caller.name
    costs = await service.costs.measure(owner, time.time())
    return HttpReply(200, service.metrics.write(costs), content_type=OPEN_METRICS)
