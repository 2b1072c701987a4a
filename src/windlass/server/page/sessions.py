"""Sessions as the page lists them: with a little chart of their last activity."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal

import msgspec

from windlass.core.errors import JournalCorrupt
from windlass.core.session_summary import SessionSummary
from windlass.server.access import Caller
from windlass.server.api.session_records import SessionReply, session_reply
from windlass.server.owned_reading import read_last_times
from windlass.server.service import Service

ACTIVITY_FACTS = 60
ACTIVITY_SPANS = 16
KNOWN_MAX = 2_000
OPEN_MAX = 200
"""Open sessions whose reservations are shown."""


class PageSession(SessionReply, frozen=True):
    """A session in the list of the page."""

    pause: str = ""
    released: bool = False
    activity: Sequence[int] = ()
    """How many of its last records came in each of equal spans of time, the newest last."""


class PageSessionList(msgspec.Struct, frozen=True):
    """A page of sessions, the latest first."""

    sessions: Sequence[PageSession]
    cursor: str | None = None


class ReservedCost(msgspec.Struct, frozen=True):
    """What a request that is under way may cost at most."""

    session: str
    title: str
    agent: str
    usd: Decimal | None
    tokens: int


class ReservedReply(msgspec.Struct, frozen=True):
    """All requests of the caller that are under way."""

    reserved: Sequence[ReservedCost]


class SessionLister:
    """Describes sessions for lists."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: OrderedDict[str, tuple[int, Sequence[int]]] = OrderedDict()

    async def describe(self, summaries: Iterable[SessionSummary]) -> list[PageSession]:
        """Return what a list shows of these sessions."""
        rows: list[PageSession] = []
        for summary in summaries:
            plain = session_reply(summary)
            row = PageSession(
                **msgspec.structs.asdict(plain),
                pause=summary.pause,
                released=summary.released,
                activity=await self._read_activity(summary),
            )
            rows.append(row)
        return rows

    async def _read_activity(self, summary: SessionSummary) -> Sequence[int]:
        known = self._known.get(summary.session)
        if known is not None and known[0] == summary.facts:
            return known[1]
        times: Sequence[float] = ()
        with suppress(JournalCorrupt):
            # A damaged session is listed without its chart, and hides no other.
            times = await read_last_times(self._service.journal, summary, ACTIVITY_FACTS)
        counts = count_activity(times)
        self._known[summary.session] = (summary.facts, counts)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return counts


def count_activity(times: Sequence[float]) -> Sequence[int]:
    """Return how many of these times are in each of equal spans, from the first to the last."""
    counts = [0] * ACTIVITY_SPANS
    if not times:
        return counts
    start = min(times)
    length = max(max(times) - start, 1e-9)
    for at in times:
        counts[min(ACTIVITY_SPANS - 1, int((at - start) / length * ACTIVITY_SPANS))] += 1
    return counts


async def read_reserved(service: Service, caller: Caller) -> list[ReservedCost]:
    """Return what the caller's requests that are under way may cost at most."""
    found: list[ReservedCost] = []
    for listed in await service.list_open(caller, OPEN_MAX):
        # The list knows it only as of the last change of state; the session itself, exactly.
        session = await service.find_listed(caller, listed)
        if session is not None and session.view.attempt is not None:
            reserved = session.view.attempt.reserved
            tokens = reserved.input + reserved.output
            row = ReservedCost(listed.session, listed.title, listed.agent, reserved.usd, tokens)
            found.append(row)
    return found
