"""The sessions of an SQLite file that need a driver, statement by statement.

Triggers on the rows of sessions keep the table (`schema.py`). What is driven stays in it: the lock
of its driver shows that, so what a look reads besides the lanes is what is driven now.
"""

from collections.abc import Callable, Iterator, Sequence

from windlass.journals.work_rules import WorkRow
from windlass.ports.fleet import LANES_MAX, ClaimedWork, WorkLane, WorkShare, WorkWanted
from windlass.sqlite_file import SqliteConnection

PROMOTED_MAX = 500
"""Sessions whose time has come that one transaction moves to those that need a driver now."""
_NEXT_CALLER = """SELECT caller FROM work WHERE due IS NULL AND agent = ? AND begun = ?
    AND caller {} ? ORDER BY caller LIMIT 1"""
_ROWS = """SELECT session, priority, since FROM work
    WHERE due IS NULL AND agent = ? AND begun = ? AND caller = ? ORDER BY priority DESC, since"""


def list_lanes(
    connection: SqliteConnection, wanted: WorkWanted, is_taken: Callable[[str], bool]
) -> list[WorkLane]:
    """Return the lanes with sessions that no driver has, those of the first callers."""
    kinds = [(agent, begun) for agent in _agents(wanted) for begun in (True, False)]
    # One caller of each agent at a time, so that all agents get as far as the list reaches.
    places: dict[tuple[str, bool], str | None] = dict.fromkeys(kinds, None)
    lanes: list[WorkLane] = []
    while places and len(lanes) < LANES_MAX:
        for (agent, begun), last in [*places.items()]:
            sign = ">=" if last is None and not wanted.behind else ">"
            values = (agent, begun, wanted.behind if last is None else last)
            row = connection.execute(_NEXT_CALLER.format(sign), values).fetchone()
            if row is None:
                del places[agent, begun]
                continue
            places[agent, begun] = caller = str(row[0])
            rows = _iterate_free(connection, WorkLane(agent, caller, begun), wanted)
            first = next((row for row in rows if not is_taken(row.session)), None)
            if first is not None:
                lanes.append(first.lane)
    return lanes


def claim_sessions(
    connection: SqliteConnection,
    wanted: WorkWanted,
    shares: Sequence[WorkShare],
    claim: Callable[[str], bool],
) -> Sequence[ClaimedWork]:
    """Lease sessions of these lanes by `claim`, which says whether each was free."""
    claimed: list[ClaimedWork] = []
    for lane, count in shares:
        left = count
        for row in _iterate_free(connection, lane, wanted):
            if left <= 0:
                break
            if claim(row.session):
                claimed.append(row.as_claimed())
                left -= 1
    return claimed


def has_overdue(connection: SqliteConnection, now: float) -> bool:
    """Whether the time of some sessions has come."""
    query = "SELECT 1 FROM work WHERE due <= ? LIMIT 1"
    return connection.execute(query, (now,)).fetchone() is not None


def promote_overdue(connection: SqliteConnection, now: float) -> None:
    """Move sessions whose time has come to those that need a driver now."""
    query = """UPDATE work SET due = NULL WHERE number IN
        (SELECT number FROM work WHERE due <= ? ORDER BY due LIMIT ?)"""
    connection.execute(query, (now, PROMOTED_MAX))


def _agents(wanted: WorkWanted) -> list[str]:
    return [*dict.fromkeys((*wanted.agents, ""))]


def _iterate_free(
    connection: SqliteConnection, lane: WorkLane, wanted: WorkWanted
) -> Iterator[WorkRow]:
    """Yield the sessions of a lane that the worker does not leave alone, in their order."""
    place = (lane.agent, lane.is_begun, lane.caller)
    # All rows are not read at once: most lanes need only their first.
    for session, priority, since in connection.execute(_ROWS, place):
        if session not in wanted.without:
            lane = lane._replace(priority=int(priority), since=float(since))
            yield WorkRow(str(session), lane)
