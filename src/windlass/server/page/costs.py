"""What runs cost, by day, agent, model and owner, and what is reserved at this moment.

A run counts for the day on which it began. What a sub-agent spent is in the run that it works for.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from windlass.core.messages import EXACT_MATH, Charge
from windlass.core.projection.runs import RunView
from windlass.core.session_query import SessionQuery
from windlass.core.session_summary import SessionSummary
from windlass.server.access import Caller
from windlass.server.service import Service

SESSIONS_MAX = 500
"""Sessions that are counted, the latest of them."""
DAY_S = 86_400.0
PAGE = 100


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one model cost an owner and an agent on a day."""

    day: str
    """In UTC, such as `2026-11-15`."""
    agent: str
    model: str
    owner: str
    purpose: str
    runs: int
    requests: int
    input: int
    output: int
    usd: Decimal
    """What is known to be spent."""
    unknown: int
    """Charges whose price or usage is not known."""


class ReservedNow(msgspec.Struct, frozen=True):
    """What a request that is under way may cost at most."""

    session: str
    title: str
    agent: str
    usd: Decimal | None
    tokens: int


class CostsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Costs and reservations."""

    rows: Sequence[CostRow]
    reserved: Sequence[ReservedNow]
    sessions: int
    is_complete: bool
    """Whether all sessions of the days are counted, and not only the latest."""


async def read_costs(service: Service, caller: Caller, days: int, now: float) -> CostsReply:
    """Return the costs of the caller's sessions; those of all owners for an admin."""
    since = now - days * DAY_S
    summaries: list[SessionSummary] = []
    cursor: str | None = None
    while len(summaries) < SESSIONS_MAX:
        query = SessionQuery(parent="", since=since)
        page = await service.list_sessions(caller, query, PAGE, cursor)
        summaries += page
        cursor = page.cursor
        if cursor is None:
            break
    totals: dict[tuple[str, ...], CostRow] = {}
    for summary in summaries:
        known = await service.find_session(caller, summary.session)
        view = known.projection
        runs = (*view.runs, *((view.run,) if view.run else ()))
        for run in runs:
            if run.started_at >= since:
                for row in _run_rows(run):
                    _add_row(totals, row)
    rows = sorted(totals.values(), key=lambda row: (row.day, row.agent, row.model, row.owner))
    return CostsReply(
        rows=rows,
        reserved=list(_reserved(summaries)),
        sessions=len(summaries),
        is_complete=cursor is None,
    )


def _run_rows(run: RunView) -> Iterator[CostRow]:
    day = datetime.fromtimestamp(run.started_at, UTC).date().isoformat()
    for at, charge in enumerate(run.ledger.charges):
        usage = charge.usage
        yield CostRow(
            day=day,
            agent=run.agent,
            model=charge.model,
            owner=run.caller,
            purpose=charge.purpose,
            runs=1 if at == 0 else 0,
            requests=run.requests if at == 0 else 0,
            input=usage.input if usage is not None else 0,
            output=usage.output if usage is not None else 0,
            usd=charge.usd or Decimal(0),
            unknown=_count_unknown(charge),
        )


def _count_unknown(charge: Charge) -> int:
    return int(charge.usd is None or charge.usage is None)


def _add_row(totals: dict[tuple[str, ...], CostRow], row: CostRow) -> None:
    key = (row.day, row.agent, row.model, row.owner, row.purpose)
    before = totals.get(key)
    if before is None:
        totals[key] = row
        return
    totals[key] = msgspec.structs.replace(
        row,
        runs=before.runs + row.runs,
        requests=before.requests + row.requests,
        input=before.input + row.input,
        output=before.output + row.output,
        usd=EXACT_MATH.add(before.usd, row.usd),
        unknown=before.unknown + row.unknown,
    )


def _reserved(summaries: Sequence[SessionSummary]) -> Iterator[ReservedNow]:
    for summary in summaries:
        if summary.reserved_tokens is not None:
            yield ReservedNow(
                summary.session,
                summary.title,
                summary.agent,
                summary.reserved_usd,
                summary.reserved_tokens,
            )
