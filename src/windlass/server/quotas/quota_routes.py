"""The routes of quotas and costs."""

import time
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.server.access import OWNER_MARK, owner_prefix
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import PageQuery
from windlass.server.quotas.admission import EVERYONE, Quota, QuotaStore
from windlass.server.quotas.costs import COST_KEYS, CostKey, CostRow, beginning_of_day
from windlass.server.resources import Resource, fill_reply
from windlass.server.service import Service

SPAN_MAX_S = 400 * 86_400.0
"""Costs are added up over a year at most."""


class QuotaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What callers may use. What is left out has no limit."""

    caller: Annotated[str, Meta(min_length=0, max_length=120)] = EVERYONE
    """`*`: each caller on its own."""
    agent: Annotated[str, Meta(max_length=200)] = EVERYONE
    """`*`: all agents together."""
    runs_at_once: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    starts_per_min: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    usd_per_day: Decimal | None = None
    """US dollars, above zero."""


class QuotaReply(msgspec.Struct, frozen=True, kw_only=True):
    """A quota."""

    name: str
    caller: str
    agent: str
    runs_at_once: int | None
    starts_per_min: int | None
    usd_per_day: Decimal | None
    usd_today: Decimal | None = None
    """What the caller who asks has spent or reserved of it today."""


class CostQuery(msgspec.Struct, frozen=True):
    """Which costs, and how they are grouped."""

    since: float | None = None
    """Seconds since the epoch; by default the beginning of this day in UTC."""
    until: float | None = None
    by: tuple[CostKey, ...] = COST_KEYS
    """Give it several times: caller, agent, model, label, day."""
    owner: str | None = None
    """Only this caller's costs; for admins."""


class CostReply(msgspec.Struct, frozen=True):
    """Costs of the runs that began in a span of time, the highest first."""

    since: float
    until: float
    rows: list[CostRow]
    usd: Decimal
    """All rows together, as far as prices are known."""
    damaged: list[str] = []
    """Sessions that are left out because their records contradict themselves."""


def describe_quota(quota: Quota, spent: Decimal | None = None) -> QuotaReply:
    return fill_reply(QuotaReply, quota, usd_today=spent)


def open_quotas(service: Service) -> QuotaStore:
    return QuotaStore(service.journal)


QUOTAS = Resource("quota", QuotaReply, describe_quota, open_quotas, role="admin")


@QUOTAS.add(
    "PUT", "/quotas/{name}", role="admin", stored_replies=True, body=QuotaBody, reply=QuotaReply
)
async def put_quota(service: Service, request: HttpRequest) -> Reply:
    """Limit what callers may use: runs at once, starts a minute, money a day."""
    body = await request.decode(QuotaBody)
    try:
        quota = Quota(name=request.params["name"], **msgspec.structs.asdict(body))
    except ValueError as error:
        raise ApiError(422, "invalid_request", f"{error}.", "Give a number above zero.") from None
    await open_quotas(service).put(quota)
    return HttpReply(200, describe_quota(quota))


@QUOTAS.list()
async def list_quotas(service: Service, request: HttpRequest) -> Reply:
    """List the quotas that apply to the caller; all of them for an admin."""
    query = request.decode_query(PageQuery)
    caller = request.caller
    found, cursor = await service.quotas.list_for(caller, query)
    replies = [
        describe_quota(quota, await service.quotas.read_spent(quota, caller.name))
        for quota in found
    ]
    return HttpReply(200, QUOTAS.page(replies, cursor))


QUOTAS.add_delete("Delete a quota.")


@QUOTAS.add("GET", "/costs", role="watch", scope="caller", query=CostQuery, reply=CostReply)
async def read_costs(service: Service, request: HttpRequest) -> Reply:
    """Add up costs by caller, agent, model and label: one's own; all for an admin."""
    query = request.decode_query(CostQuery)
    now = time.time()
    until = now if query.until is None else query.until
    since = beginning_of_day(now) if query.since is None else query.since
    if not since <= until <= since + SPAN_MAX_S:
        raise ApiError(
            422,
            "invalid_span",
            "The span of time is empty or longer than a year.",
            "Give since and until in seconds since the epoch.",
        )
    caller = request.caller
    owner = query.owner if caller.is_admin else caller.name
    keys = tuple(dict.fromkeys(query.by))
    rows = await service.costs.add_up(owner, since, until, keys)
    total = sum((row.usd for row in rows), Decimal(0))
    prefix = "" if caller.is_admin else owner_prefix(caller.name) or OWNER_MARK
    damaged = [name for name in service.damaged_sessions if name.startswith(prefix)]
    return HttpReply(200, CostReply(since, until, rows, total, damaged))
