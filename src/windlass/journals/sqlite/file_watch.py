"""One look for all who wait whether another process has written to a file.

Invariant: what it costs to wait does not grow with waiters, as long as nothing is written.
One timer of an event loop asks SQLite for a number that changes with every write; only then is
looked, in one query for all, whether what each waits for is there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from windlass.sqlite_file import SqliteConnection

POLL_MIN_S = 0.05
POLL_MAX_S = 0.1
"""How often to look: at first, and after a long silence."""
IsThere = Callable[[SqliteConnection], bool]


class QueryAll(Protocol):
    """Runs a query on the file, in a thread."""

    def __call__(
        self, work: Callable[[SqliteConnection], list[bool]], /
    ) -> Awaitable[list[bool]]: ...


class FileWatch:
    """Waiters in one event loop."""

    def __init__(self, read_version: Callable[[], int], run_query: QueryAll) -> None:
        """Watch a file. `read_version` returns a number that changes when the file is written."""
        self._read_version = read_version
        self._run_query = run_query
        self._waiters: dict[asyncio.Future[None], IsThere] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._query: asyncio.Task[None] | None = None
        self._seen = -1
        self._wait_s = POLL_MIN_S

    @contextmanager
    def wait_for(self, is_there: IsThere) -> Generator[asyncio.Future[None]]:
        """Give a future that is done once something is there that another process has written.

        Begin to wait first and then look yourself: what comes in between is not missed that way.
        """
        changed = asyncio.get_running_loop().create_future()
        self._waiters[changed] = is_there
        self._wait_s = POLL_MIN_S
        if self._timer is None and self._query is None:
            self._seen = self._read_version()
            self._look_later()
        try:
            yield changed
        finally:
            self._waiters.pop(changed, None)
            if not self._waiters and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._wait_s, self._look)

    def _look(self) -> None:
        self._timer = None
        try:
            version = self._read_version()
        except Exception as error:  # noqa: BLE001 - it is for those who wait
            self._fail(error)
            return
        if version == self._seen:
            self._wait_s = min(self._wait_s * 1.5, POLL_MAX_S)
            self._look_later()
            return
        self._seen = version
        self._wait_s = POLL_MIN_S
        self._query = asyncio.create_task(self._find_changes(), name="look into the journal")

    async def _find_changes(self) -> None:
        waiters = list(self._waiters.items())
        checks = [is_there for _, is_there in waiters]
        try:
            found = await self._run_query(lambda file: _check_all(file, checks))
        except Exception as error:  # noqa: BLE001 - it is for those who wait
            self._fail(error)
        else:
            for (changed, _), is_there in zip(waiters, found, strict=True):
                if is_there and not changed.done():
                    changed.set_result(None)
        finally:
            self._query = None
            if self._waiters and self._timer is None:
                self._look_later()

    def _fail(self, error: Exception) -> None:
        for changed in self._waiters:
            if not changed.done():
                changed.set_exception(error)


def _check_all(file: SqliteConnection, checks: Sequence[IsThere]) -> list[bool]:
    return [is_there(file) for is_there in checks]
