"""The one connection of an event loop that stays: it holds the leases, and hears the news.

A lease is a lock of the server on this connection, so it is free the moment the process is gone. If
only the connection breaks, the lease is lost with it; it is taken again as soon as the server is
back, unless somebody else was faster. Then two may believe that they drive the session, and the
sequence number of the records lets one of them write.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar
from weakref import WeakSet

from windlass.core.errors import SessionBusy, WindlassError
from windlass.journals.postgres.config import Connection, lost
from windlass.journals.postgres.pool import Line

T = TypeVar("T")
GRACE_S = (0.01, 0.02, 0.03)
"""A lease is let go without waiting; who asks another process for it waits so long at the most."""
NEWS_S = 5.0
"""After so long there is news for nothing: a connection may have died without a word."""

_LOCK = "SELECT pg_try_advisory_lock($1)"
_UNLOCK = "SELECT pg_advisory_unlock($1)"
_LOCKS = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_all: WeakSet["Standing"] = WeakSet()
_one_list = threading.Lock()


class Held:
    """The lease of a session."""

    def __init__(self, standing: "Standing", session: str) -> None:
        self._standing: Standing | None = standing
        self._session = session

    def release(self) -> None:
        """Let go; from any thread, and as often as one likes."""
        standing, self._standing = self._standing, None
        if standing is not None:
            standing.let_go(self._session)


class Standing:
    """Opened at the first lease or the first question for news."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._one_at_a_time = asyncio.Lock()
        self._server: Connection | None = None
        self._hears = self._listening = False
        self._held: dict[str, bool] = {}
        """By session: whether the server has granted it, on this very connection."""
        self.releases = set[asyncio.Task[Any]]()
        self._tasks = set[asyncio.Task[Any]]()
        self._ears: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        with _one_list:
            _all.add(self)

    async def lease(self, session: str) -> Held:
        """Take the session; raises SessionBusy if somebody has it."""
        await self.all_let_go()
        busy = SessionBusy(f"session {session!r}: another driver holds it")
        if session in self._held:
            raise busy
        self._held[session] = False
        try:
            for wait_s in (0.0, *GRACE_S):
                await asyncio.sleep(wait_s)
                if await self._do(lambda server: self._lock(server, session)):
                    return Held(self, session)
        except BaseException:
            self.let_go(session)
            raise
        self.let_go(session)
        raise busy

    async def locks(self) -> set[int]:
        """The numbers of all locks that somebody alive holds in this database."""
        await self.all_let_go()
        return {row[0] for row in await self.line.ask(lambda server: server.fetch(_LOCKS))}

    async def news(self, session: str, is_there: Callable[[], Awaitable[bool]]) -> None:
        """Return when somebody wrote the session; at once if `is_there`; and now and then."""
        name = sha256(session.encode()).hexdigest()
        heard = asyncio.Event()
        self._ears[name].add(heard)
        self._hears = True
        try:
            await self._do(self._listen)
            # Asked when we listen already: what is written after this is heard.
            if not await is_there():
                with suppress(TimeoutError):
                    async with asyncio.timeout(NEWS_S):
                        await heard.wait()
        finally:
            self._ears[name].discard(heard)
            if not self._ears[name]:
                del self._ears[name]

    def let_go(self, session: str) -> None:
        loop = self.line.loop
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self._let_go(session)
            return
        # A loop that is closed has closed its connections, and the server has freed the lease.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._let_go, session)

    def _let_go(self, session: str) -> None:
        granted, server = self._held.pop(session, False), self._server
        if granted and server is not None:
            self._start(self._unlock(server, session), self.releases)

    async def all_let_go(self) -> None:
        """Wait until the server knows of each lease that was let go so far."""
        # By any journal of this loop: who lets go and then asks has a right to the answer.
        with _one_list:
            here = [one for one in _all if one.line.loop is self.line.loop]
        releases = {task for one in here for task in one.releases}
        if releases:
            await asyncio.wait(releases)

    async def _lock(self, server: Connection, session: str) -> bool:
        # A second lock of the same connection would need a second unlock.
        granted = self._held.get(session) or await server.fetchval(_LOCK, self._key(session))
        if session in self._held:
            self._held[session] = granted
        elif granted:
            # Whoever wanted it has gone away meanwhile.
            await server.fetchval(_UNLOCK, self._key(session))
        return granted

    async def _unlock(self, server: Connection, session: str) -> None:
        async with self._one_at_a_time:
            try:
                await server.fetchval(_UNLOCK, self._key(session))
            except Exception:  # noqa: BLE001 - a connection that is closed holds no lock
                self.line.drop(server)

    async def _listen(self, server: Connection) -> None:
        if not self._listening:
            await server.add_listener(self.line.place.schema, self._hear)
            self._listening = True

    def _hear(self, _server: object, _process: int, _channel: str, name: object) -> None:
        for heard in self._ears.get(str(name), ()):
            heard.set()

    def _key(self, session: str) -> int:
        return self.line.place.key("lease", session)

    async def _do(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Work on the connection, to the end even if nobody waits: others have leases on it."""

        async def once() -> T:
            async with self._one_at_a_time:
                server = await self._opened()
                try:
                    return await work(server)
                except BaseException as error:
                    if lost(error) or not (isinstance(error, WindlassError) or _answer(error)):
                        self.line.drop(server)
                        self._gone(server)
                    raise

        return await asyncio.shield(self._start(self.line.patiently(once), self._tasks))

    async def _opened(self) -> Connection:
        if self._server is not None and self._server.is_closed():
            self._gone(self._server)
        if self._server is None:
            server = self._server = await self.line.open()
            server.add_termination_listener(self._gone)
            for session in [*self._held]:
                await self._lock(server, session)
            if self._hears:
                await self._listen(server)
        return self._server

    def _gone(self, server: object) -> None:
        if server is not self._server:
            return
        self._server, self._listening = None, False
        for heard in (heard for ears in self._ears.values() for heard in ears):
            heard.set()
        had = any(self._held.values())
        self._held = dict.fromkeys(self._held, False)
        if had and not self.line.closed:
            self._start(self._again(), self._tasks)

    async def _again(self) -> None:
        with suppress(WindlassError):
            await self._do(_nothing)

    def _start(
        self, work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]
    ) -> asyncio.Task[T]:
        task = self.line.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task


async def _nothing(_server: Connection) -> None:
    """Opening is all that was wanted."""


def _answer(error: BaseException) -> bool:
    return hasattr(error, "sqlstate")
