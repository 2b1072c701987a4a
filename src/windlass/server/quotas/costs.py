"""What runs have cost: by caller, agent, model and label.

Invariant: figures come from the facts, as everywhere. A run counts for the time when it began, with
all that its sub-agents spent.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, Protocol

import msgspec

from windlass.core.errors import JournalCorrupt
from windlass.core.messages import EXACT_MATH
from windlass.ports import Journal
from windlass.server.access import LOCAL_OWNER, Caller
from windlass.server.errors import ApiError
from windlass.server.metrics import Labels, Metric, MetricSample
from windlass.server.session_directory import OwnedSession

CostKey = Literal["caller", "agent", "model", "label", "day"]
SESSIONS_MAX = 10_000
"""Sessions that are remembered; the one that was looked at longest ago is forgotten first."""
PAGE_SESSIONS = 200
METRIC_ROWS_MAX = 500
"""Rows of costs that are metrics, the highest ones: a monitor keeps each for ever."""
COST_KEYS: tuple[CostKey, ...] = ("caller", "agent", "model", "label")


class RunCost(msgspec.Struct, frozen=True, gc=False):
    """What one run has paid to one model."""

    began: float
    caller: str
    agent: str
    label: str
    model: str
    usd: Decimal
    """What is known to be spent."""
    is_known: bool
    """Whether all prices were known."""
    tokens: int
    run: tuple[str, int]

    @property
    def day(self) -> str:
        """The day on which the run began, in UTC, such as `2026-11-15`."""
        return datetime.fromtimestamp(self.began, UTC).date().isoformat()


class CostRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sum of costs. Of the keys, only those that were asked for are set."""

    caller: str | None = None
    agent: str | None = None
    model: str | None = None
    label: str | None = None
    day: str | None = None
    usd: Decimal
    """US dollars that are known to be spent."""
    is_complete: bool
    """Whether all prices were known."""
    tokens: int
    runs: int


class CostService(Protocol):
    """What the costs need of a service."""

    journal: Journal

    async def find_session(self, caller: Caller, session: str) -> OwnedSession: ...


class CostBook:
    """Adds up the costs of a service's sessions."""

    def __init__(self, service: CostService) -> None:
        self._service = service
        self._known: OrderedDict[str, tuple[int, tuple[RunCost, ...]]] = OrderedDict()
        """By session: up to which fact it was read, and what its runs have cost."""

    async def add_up(
        self, owner: str | None, since: float, until: float, keys: Sequence[CostKey]
    ) -> list[CostRow]:
        """Return the costs of the runs that began in a span of time, the highest first.

        `owner`: only what this caller's runs cost; None for all.
        """
        sums: dict[tuple[str, ...], list[RunCost]] = {}
        async for cost in self._walk(owner, since, until):
            group = tuple(getattr(cost, key) for key in keys)
            sums.setdefault(group, []).append(cost)
        rows = [
            _make_row(dict(zip(keys, group, strict=True)), costs) for group, costs in sums.items()
        ]
        return sorted(rows, key=lambda row: (-row.usd, -row.tokens))

    async def measure(self, owner: str | None, now: float) -> list[Metric]:
        """Return what the runs that began today, in UTC, have cost, as metrics."""
        rows = await self.add_up(owner, beginning_of_day(now), now + 1.0, COST_KEYS)
        labelled = [(_labels_of(row), row) for row in rows[:METRIC_ROWS_MAX]]
        usd = tuple(MetricSample(float(row.usd), labels) for labels, row in labelled)
        tokens = tuple(MetricSample(row.tokens, labels) for labels, row in labelled)
        return [
            Metric("windlass_cost_today_usd", "gauge", "US dollars of runs begun today.", usd),
            Metric("windlass_tokens_today", "gauge", "Tokens of runs begun today.", tokens),
        ]

    async def _walk(self, owner: str | None, since: float, until: float) -> AsyncGenerator[RunCost]:
        cursor: str | None = None
        while True:
            page = await self._service.journal.sessions(
                since=since, caller=owner, parent="", limit=PAGE_SESSIONS, cursor=cursor
            )
            for summary in page:
                for cost in await self._costs_of(summary.session, summary.facts):
                    if since <= cost.began < until and owner in (None, cost.caller):
                        yield cost
            cursor = page.cursor
            if cursor is None:
                return

    async def _costs_of(self, session: str, facts: int) -> tuple[RunCost, ...]:
        known = self._known.get(session)
        if known is None or known[0] < facts:
            try:
                found = await self._service.find_session(LOCAL_OWNER, session)
            except ApiError:
                # It was deleted in the meantime.
                return ()
            except JournalCorrupt:
                # One that is damaged is left out. The service has noted it.
                return ()
            known = (found.summary.facts, tuple(_read_costs(found)))
            self._known[session] = known
        self._known.move_to_end(session)
        while len(self._known) > SESSIONS_MAX:
            self._known.popitem(last=False)
        return known[1]


def _read_costs(found: OwnedSession) -> list[RunCost]:
    session = found.name
    view = found.view
    runs = [*view.runs] if view.run is None else [*view.runs, view.run]
    return [
        RunCost(
            began=run.started_at,
            caller=run.caller,
            agent=run.agent,
            label=found.labels.get(run.number, ""),
            model=charge.model,
            usd=charge.usd or Decimal(0),
            is_known=charge.usd is not None or charge.usage is None,
            tokens=charge.usage.total if charge.usage is not None else 0,
            run=(session, run.number),
        )
        for run in runs
        for charge in run.ledger.charges
    ]


def beginning_of_day(now: float) -> float:
    """Return when the day of a moment began, in UTC."""
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day.timestamp()


def _labels_of(row: CostRow) -> Labels:
    return tuple((key, str(getattr(row, key) or "")) for key in COST_KEYS)


def _make_row(keys: dict[CostKey, Any], costs: Sequence[RunCost]) -> CostRow:
    usd = Decimal(0)
    for cost in costs:
        usd = EXACT_MATH.add(usd, cost.usd)
    return CostRow(
        **keys,
        usd=usd,
        is_complete=all(cost.is_known for cost in costs),
        tokens=sum(cost.tokens for cost in costs),
        runs=len({cost.run for cost in costs}),
    )
