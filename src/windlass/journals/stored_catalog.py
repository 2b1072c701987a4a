"""The list of the sessions of a stored journal: found by rows, and deleted with those below."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import NamedTuple

from windlass.core.events import Fact
from windlass.core.session_summary import (
    ABANDONED_SESSIONS,
    ENDED_STATES,
    PAGE_SESSIONS,
    PagePlace,
    SessionPage,
    SessionQuery,
    SessionSummary,
    StateFilter,
    Wanted,
    find_tree,
    make_page,
    make_query,
    query_undriven,
)
from windlass.journals.session_rows import tag_text

ROWS_AT_ONCE = 500


class SqlCondition(NamedTuple):
    """A condition of a statement, and the values in it. `{}` is the place of each value."""

    text: str
    values: tuple[object, ...] = ()


def query_conditions(query: SessionQuery, place: PagePlace | None) -> list[SqlCondition]:
    """Return what a row must fulfil to be listed behind a place, apart from the text.

    How a text is looked up without regard to case is for each database to say.
    """
    # A session that has nothing but mail is in no list.
    found = [SqlCondition("facts > 0")]
    if query.states:
        # Not as values: a server plans before it knows them, and few sessions are open.
        names = ", ".join(f"'{state}'" for state in query.states if state.isidentifier())
        found.append(SqlCondition(f"state IN ({names or 'NULL'})"))
    if query.prefix:
        after = query.prefix[:-1] + chr(ord(query.prefix[-1]) + 1)
        found.append(SqlCondition("session >= {} AND session < {}", (query.prefix, after)))
    if query.since is not None:
        found.append(SqlCondition("changed >= {}", (query.since,)))
    if query.until is not None:
        found.append(SqlCondition("changed < {}", (query.until,)))
    if query.due_by is not None:
        found.append(SqlCondition("(due IS NULL OR due <= {})", (query.due_by,)))
    few = {"queued", "open", "waiting", "awaiting_budget"}
    is_few = bool(query.states) and set(query.states) <= few
    for column in ("agent", "caller", "parent"):
        value = getattr(query, column)
        if value is None:
            continue
        if is_few:
            # Few sessions are in such a state: the other indexes must not look better.
            found.append(SqlCondition(f"{column} || '' = {{}}", (value,)))
            continue
        # The index leaves out the rows that say nothing.
        indexed = f" AND {column} <> ''" if value else ""
        found.append(SqlCondition(f"{column} = {{}}{indexed}", (value,)))
    for key, value in query.tags.items():
        # The same in every SQL: a text without its part is another one.
        found.append(SqlCondition("replace(tags, {}, '') <> tags", (tag_text({key: value}),)))
    if place is not None:
        behind = "(changed < {} OR changed = {} AND session > {})"
        found.append(SqlCondition(behind, (place.changed, place.changed, place.session)))
    return found


class StoredCatalog(ABC):
    """Lists and deletes sessions, whatever the database is."""

    _now: Callable[[], float]
    """Returns seconds since the epoch."""

    @abstractmethod
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts of a session after number `after`."""

    @abstractmethod
    async def _select_sessions(
        self, query: SessionQuery, place: PagePlace | None, limit: int
    ) -> list[SessionSummary]:
        """Return the sessions behind a place whose rows fit a query, in the order of every list."""

    @abstractmethod
    async def _find_summary(self, session: str) -> SessionSummary | None:
        """Return the summary of a session; None if there is no such session."""

    @abstractmethod
    async def _find_driven(self, sessions: Sequence[str]) -> set[str]:
        """Return those of these sessions that a living driver has now."""

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
        tags: Mapping[str, str] | None = None,
        limit: int = PAGE_SESSIONS,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return a page of the sessions that pass all filters: last changed first, then by name.

        `Journal.sessions` in `ports/journals.py` says what the filters mean.
        """
        wanted = make_query(
            query,
            state=state,
            agent=agent,
            caller=caller,
            since=since,
            until=until,
            parent=parent,
            tags=tags,
        )
        place = None if cursor is None else PagePlace.from_cursor(cursor)
        return make_page(await self._select_sessions(wanted, place, limit + 1), limit)

    async def list_abandoned(
        self,
        *,
        agent: str | None = None,
        parent: str | None = None,
        limit: int = ABANDONED_SESSIONS,
    ) -> list[SessionSummary]:
        """List the latest sessions whose open run has no driver and does not wait for a person.

        One that waits for a shared budget is listed from the time when it asks the budget again.
        """
        found: list[SessionSummary] = []
        wanted = query_undriven(agent, parent, self._now())
        # A session that is released meanwhile is in the next list.
        async for rows in self._iterate_sessions(wanted, min(limit, ROWS_AT_ONCE)):
            driven = await self._find_driven([row.session for row in rows])
            found += (row for row in rows if row.session not in driven)
            if len(found) >= limit:
                break
        return found[:limit]

    async def prune(self, before: float, *, keep: int = 0, wanted: Wanted = None) -> int:
        """Delete the sessions that ended before a time, except the latest `keep`; returns how many.

        A session is deleted with those that work for it; it stays if one of them is driven. They
        are deleted in batches, so that an append waits for one batch and not for all.
        """
        kept = await self._latest_roots(keep)
        count = 0
        ended = SessionQuery(states=ENDED_STATES, until=before)
        async for rows in self._iterate_sessions(ended, ROWS_AT_ONCE):
            names = [row.session for row in rows if wanted is None or wanted(row)]
            names = [name for name in names if name not in kept]
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
                name = row.session
                if len(found) < count and not await self._has_caller(name):
                    found.add(name)
            if len(found) >= count:
                break
        return found

    async def _has_caller(self, session: str) -> bool:
        """Return whether a session works for another one that is still there."""
        # A sub-agent's session is named after the call that it works for: SESSION/CALL.
        if "/" not in session:
            return False
        found = await self._find_summary(session)
        if found is None or not found.parent:
            return False
        return await self._find_summary(found.parent) is not None

    async def _find_below(self, session: str) -> list[str]:
        """Return the names of all sessions that work for a session, directly or through others."""
        found: list[SessionSummary] = []
        async for rows in self._iterate_sessions(SessionQuery(prefix=f"{session}/"), ROWS_AT_ONCE):
            found += rows
        return find_tree(session, found)

    async def _iterate_sessions(
        self,
        query: SessionQuery,
        at_once: int,
    ) -> AsyncGenerator[list[SessionSummary]]:
        """Yield the rows that fit a query, `at_once` at a time."""
        place = None
        while rows := await self._select_sessions(query, place, at_once):
            yield rows
            if len(rows) < at_once:
                return
            place = PagePlace.of(rows[-1])
