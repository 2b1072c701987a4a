"""The appends of one event loop, on their way to Postgres.

Those that wait while the server commits go out together, in one statement and one commit, so that
a hundred sessions cost little more than one. The statement writes each session whole or not at all,
and only if it still ends where this process believes; whoever is refused looks again and decides.

When the connection breaks, nobody knows what became of the statement. It is then sent once more: a
session whose end is ours by its hash was written the first time, and one that still ends where it
did is written now; what was on its way can no longer follow.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from windlass.core.errors import JournalFailed, SessionBusy
from windlass.journals.chain import root
from windlass.journals.postgres.batch import (
    APPEND,
    COLUMNS,
    FIND_OURS,
    LOOK,
    Append,
    End,
    Group,
    end_from,
)
from windlass.journals.postgres.config import Connection, failed, unfit
from windlass.journals.postgres.pool import Line
from windlass.journals.summary import Summary

GROUP_MAX = 500
"""Appends in one statement."""
GROUP_BYTES_MAX = 16_000_000
"""How much one statement carries, unless a single append has more."""
KNOWN_MAX = 10_000
"""Sessions whose end is remembered."""
TURNS_MAX = 5
"""How often a session is looked at again that somebody else keeps writing."""


class _Unfit(JournalFailed):
    """The server cannot hold the values of an append."""


class Writer:
    """Takes appends, and sees to it that each is written or refused."""

    def __init__(self, line: Line) -> None:
        self._line = line
        place = line.place
        self._look_sql = LOOK.format(columns=COLUMNS, schema=place.quoted)
        self._ours_sql = FIND_OURS.format(schema=place.quoted)
        self._append_sql = APPEND.format(columns=COLUMNS, schema=place.quoted)
        self._fixed = (place.key("blobs"), place.schema)
        self._known: dict[str, End] = {}
        self._waiting: list[Append] = []
        self._working: asyncio.Task[None] | None = None

    def put(self, append: Append) -> None:
        self._waiting.append(append)
        if self._working is None:
            self._working = self._line.loop.create_task(self._work())

    def learn(self, row: Sequence[Any]) -> None:
        """Remember where a session ends, from a row of COLUMNS; the server has the last word."""
        end = end_from(row)
        self._known[end.summary.session] = end

    async def finish(self) -> None:
        """Wait until all that was put is written or refused."""
        while self._working is not None:
            await asyncio.wait({self._working})

    async def _work(self) -> None:
        group: list[Append] = []
        try:
            while self._waiting:
                if len(self._known) > KNOWN_MAX:
                    self._known.clear()
                group = self._take()
                await self._write(group)
        finally:
            self._working = None
            left = JournalFailed(f"journal {self._line.place.title}: its event loop was stopped")
            _settle((append, left) for append in (*group, *self._waiting))
            self._waiting.clear()

    def _take(self) -> list[Append]:
        count, size = 0, 0
        for append in self._waiting[:GROUP_MAX]:
            size += append.size
            if count and size > GROUP_BYTES_MAX:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _write(self, appends: Sequence[Append]) -> None:
        """Write the appends, and tell each what became of it."""
        try:
            for turn in range(TURNS_MAX):
                appends = await self._try(appends, look=turn > 0)
                if not appends:
                    return
            words = "another driver writes this session"
            _settle((one, SessionBusy(f"session {one.session!r}: {words}")) for one in appends)
        except _Unfit as error:
            await self._write_apart(appends, error)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            self._known.clear()
            _settle((append, error) for append in appends)

    async def _write_apart(self, appends: Sequence[Append], error: _Unfit) -> None:
        """What the server cannot hold fails alone."""
        sessions = {append.session for append in appends}
        if len(sessions) == 1:
            _settle((append, error) for append in appends)
            return
        for session in sessions:
            await self._write([append for append in appends if append.session == session])

    async def _try(self, appends: Sequence[Append], *, look: bool) -> list[Append]:
        """Write what can be written; returns what must be looked at again."""
        seen = await self._look(appends, first_too=look)
        group = Group()
        # In the same order everywhere: two writers of the same sessions wait, but never in a ring.
        for append in sorted(appends, key=lambda one: one.session):
            unseen = End(root(append.session), Summary(append.session))
            group.add(append, self._known.get(append.session, unseen))
        stale = await self._send(group) if group.ends else set[str]()
        # What was refused by memory alone is asked again: the session may have been deleted.
        by_memory = {append.session for append, _ in group.refused} - group.ends.keys() - seen
        stale |= by_memory
        self._known.update((name, end) for name, end in group.ends.items() if name not in stale)
        for name in stale:
            self._known.pop(name, None)
        errors = {id(append): error for append, error in group.refused}
        told = [append for append in appends if append.session not in stale]
        _settle((append, errors.get(id(append))) for append in told)
        return [append for append in appends if append.session in stale]

    async def _look(self, appends: Iterable[Append], *, first_too: bool) -> set[str]:
        """Find the ends that are not known. Who begins at 1 is believed: the session is new."""
        names = {
            append.session
            for append in appends
            if append.session not in self._known and (first_too or append.facts[0].seq != 1)
        }
        if names:
            rows = await self._line.ask(lambda server: server.fetch(self._look_sql, [*names]))
            for row in rows:
                self.learn(row)
        return names

    async def _send(self, group: Group) -> set[str]:
        """Write the group in one statement; returns the sessions that end elsewhere."""
        arguments, sent = group.arguments(), False

        async def send(server: Connection) -> set[str]:
            nonlocal sent
            again, sent = sent, True
            try:
                rows = await server.fetch(self._append_sql, *arguments, *self._fixed)
            except Exception as error:
                if unfit(error):
                    raise _Unfit(str(failed(self._line.place, error))) from None
                raise
            kept = {row[0] for row in rows}
            left = {name for name, place in group.places.items() if place not in kept}
            if again and left:
                ours = await server.fetch(self._ours_sql, *group.last_records(left))
                left.difference_update(row[0] for row in ours)
            return left

        return await self._line.ask(send)


def _settle(outcomes: Iterable[tuple[Append, Exception | None]]) -> None:
    for append, error in outcomes:
        if append.done.done():
            continue
        if error is None:
            append.done.set_result(None)
        else:
            append.done.set_exception(error)
