"""The list of the sessions of a stored journal: found by their rows, and deleted with those below.

What the row of a session does not hold (its agent, caller, parent and spending, and whether it is
paused) is folded from its facts: always when a list is filtered by it, and for pages that are short
enough to be shown.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from windlass.core.errors import JournalCorrupt
from windlass.core.events import Fact
from windlass.core.session_query import (
    ABANDONED_SESSIONS,
    PAGE_SESSIONS,
    PagePlace,
    SessionPage,
    SessionQuery,
    StateFilter,
    find_tree,
    make_page,
    make_query,
)
from windlass.core.session_summary import (
    ENDED_STATES,
    UNFINISHED_STATES,
    SessionSummary,
    advance_summary,
)

SESSION_COLUMNS = (
    "head, session, title, created, updated, facts, runs, steps, outcome, proposed, asked"
)
"""The columns of a session: the hash of its last record, then the fields of its summary."""
SUMMARY_COLUMNS = tuple(SESSION_COLUMNS.split(", ")[1:])
MISSING_FIELDS = tuple(
    name for name in SessionSummary.__struct_fields__ if name not in SUMMARY_COLUMNS
)
"""What a summary says that the row of a session does not hold."""
ROWS_AT_ONCE = 500
FOLDED_AT_ONCE = 100
"""Sessions that are read for a filter before the next ones are looked up."""


class SqlCondition(NamedTuple):
    """A condition of a statement, and the values in it. `{}` stands for each value."""

    text: str
    values: tuple[object, ...] = ()


def query_conditions(query: SessionQuery, place: PagePlace | None) -> list[SqlCondition]:
    """Return what a row must fulfil to be listed behind a place, apart from the text.

    How a text is looked up without regard to case is for each database to say. Which of the states
    of an unfinished run a session has is decided by its facts.
    """
    found: list[SqlCondition] = []
    if query.states:
        found.append(_state_condition(query))
    if query.prefix:
        after = query.prefix[:-1] + chr(ord(query.prefix[-1]) + 1)
        found.append(SqlCondition("session >= {} AND session < {}", (query.prefix, after)))
    if query.since is not None:
        found.append(SqlCondition("updated >= {}", (query.since,)))
    if query.until is not None:
        found.append(SqlCondition("updated < {}", (query.until,)))
    for column in ("agent", "caller", "parent"):
        value = getattr(query, column)
        if value is not None and column in SUMMARY_COLUMNS:
            found.append(SqlCondition(f"{column} = {{}}", (value,)))
    if place is not None:
        behind = "(updated < {} OR updated = {} AND session > {})"
        found.append(SqlCondition(behind, (place.updated, place.updated, place.session)))
    return found


def _state_condition(query: SessionQuery) -> SqlCondition:
    outcomes = sorted(set(query.states).difference(UNFINISHED_STATES))
    conditions = ["outcome IS NULL"] if len(outcomes) < len(set(query.states)) else []
    if outcomes == sorted(ENDED_STATES):
        return SqlCondition(f"({' OR '.join([*conditions, 'outcome IS NOT NULL'])})")
    if outcomes:
        conditions.append(f"outcome IN ({', '.join(['{}'] * len(outcomes))})")
    return SqlCondition(f"({' OR '.join(conditions)})", tuple(outcomes))


def needs_filter(query: SessionQuery) -> bool:
    """Return whether `query_conditions` lets sessions pass that do not fit the query."""
    unfinished = set(query.states).intersection(UNFINISHED_STATES)
    if unfinished and len(unfinished) < len(UNFINISHED_STATES):
        return True
    fields = ("agent", "caller", "parent")
    return any(getattr(query, name) is not None and name in MISSING_FIELDS for name in fields)


def fold_missing(summary: SessionSummary, facts: Sequence[Fact]) -> SessionSummary:
    """Return the summary of a row with the fields that the row does not hold."""
    folded = advance_summary(SessionSummary(summary.session), facts)
    return replace(summary, **{name: getattr(folded, name) for name in MISSING_FIELDS})


def name_parent(summary: SessionSummary) -> SessionSummary:
    """Return the summary of a session that cannot be read: deleted with what it is named after."""
    return replace(summary, parent=summary.session.rpartition("/")[0])


class StoredCatalog(ABC):
    """Lists and deletes sessions, whatever the database is."""

    @abstractmethod
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts of a session after number `after`."""

    @abstractmethod
    async def _select_sessions(
        self, query: SessionQuery, place: PagePlace | None, limit: int
    ) -> list[SessionSummary]:
        """Return the sessions behind a place whose rows fit a query, in the order of every list."""

    @abstractmethod
    async def _has_session(self, session: str) -> bool:
        """Return whether there is such a session."""

    @abstractmethod
    async def _without_driver(self, summaries: Sequence[SessionSummary]) -> list[SessionSummary]:
        """Return those of the sessions that no living driver has."""

    @abstractmethod
    async def _delete_ended_trees(self, trees: Sequence[Sequence[str]], before: float) -> int:
        """Delete each tree whose root is ended, and was last used before a time.

        The first name of a tree is its root. A tree stays whole if one of its sessions is driven.
        A tree is deleted in one transaction. Returns how many sessions were deleted.
        """

    async def sessions(  # noqa: PLR0913 - one parameter per filter
        self,
        query: str | None = None,
        *,
        state: StateFilter | None = None,
        agent: str | None = None,
        caller: str | None = None,
        since: float | None = None,
        until: float | None = None,
        parent: str | None = None,
        limit: int = PAGE_SESSIONS,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return a page of the sessions that pass all filters: last activity first, then by name.

        `SessionCatalog.sessions` in `ports.py` says what the filters mean.
        """
        wanted = make_query(
            query,
            state=state,
            agent=agent,
            caller=caller,
            since=since,
            until=until,
            parent=parent,
        )
        place = None if cursor is None else PagePlace.from_cursor(cursor)
        is_filtered = needs_filter(wanted)
        at_once = FOLDED_AT_ONCE if is_filtered else limit + 1
        found: list[SessionSummary] = []
        async for rows in self._iterate_sessions(wanted, at_once, place):
            if is_filtered or limit <= PAGE_SESSIONS:
                folded = [await self._fold_missing(row) for row in rows]
                found += filter(wanted.matches_facts, folded)
            else:
                found += rows
            if len(found) > limit:
                break
        return make_page(found, limit)

    async def list_abandoned(self, *, limit: int = ABANDONED_SESSIONS) -> list[SessionSummary]:
        """List the latest sessions with an open run that has no driver and waits for nobody."""
        found: list[SessionSummary] = []
        at_once = min(limit, ROWS_AT_ONCE)
        async for rows in self._iterate_sessions(SessionQuery(states=("open",)), at_once):
            undriven = await self._without_driver(rows)
            folded = [await self._fold_missing(row) for row in undriven]
            found += [summary for summary in folded if summary.state == "open"]
            if len(found) >= limit:
                break
        return found[:limit]

    async def prune(self, before: float, *, keep: int = 0) -> int:
        """Delete the sessions that ended before a time, except the latest `keep`; returns how many.

        A session is deleted with those that work for it; it stays if one of them is driven. They
        are deleted in batches, so that an append waits for one batch and not for all.
        """
        kept = await self._latest_roots(keep)
        count = 0
        ended = SessionQuery(states=ENDED_STATES, until=before)
        async for rows in self._iterate_sessions(ended, ROWS_AT_ONCE):
            names = [row.session for row in rows if row.session not in kept]
            trees = [
                [name, *await self._find_below(name)]
                for name in names
                if not await self._has_caller(name)
            ]
            if trees:
                count += await self._delete_ended_trees(trees, before)
        return count

    async def _latest_roots(self, count: int) -> set[str]:
        """Return the names of the latest sessions that work for no other one."""
        found: set[str] = set()
        if count < 1:
            return found
        async for rows in self._iterate_sessions(SessionQuery(), ROWS_AT_ONCE):
            for row in rows:
                if len(found) < count and not await self._has_caller(row.session):
                    found.add(row.session)
            if len(found) >= count:
                break
        return found

    async def _has_caller(self, session: str) -> bool:
        """Return whether a session works for another one that is still there."""
        # A sub-agent's session is named after the call that it works for: SESSION/CALL.
        if "/" not in session:
            return False
        folded = await self._fold_missing(SessionSummary(session))
        return bool(folded.parent) and await self._has_session(folded.parent)

    async def _find_below(self, session: str) -> list[str]:
        """Return the names of all sessions that work for a session, directly or through others."""
        found: list[SessionSummary] = []
        async for rows in self._iterate_sessions(SessionQuery(prefix=f"{session}/"), ROWS_AT_ONCE):
            found += [await self._fold_missing(row) for row in rows]
        return find_tree(session, found)

    async def _iterate_sessions(
        self, query: SessionQuery, at_once: int, place: PagePlace | None = None
    ) -> AsyncGenerator[list[SessionSummary]]:
        """Yield the rows that fit a query, so many at a time."""
        while rows := await self._select_sessions(query, place, at_once):
            yield rows
            if len(rows) < at_once:
                return
            place = PagePlace.of(rows[-1])

    async def _fold_missing(self, summary: SessionSummary) -> SessionSummary:
        """Return the summary with the fields that its row does not hold."""
        if not MISSING_FIELDS:
            return summary
        try:
            return fold_missing(summary, await self.read(summary.session))
        except JournalCorrupt:
            return name_parent(summary)
