"""Sessions in Postgres, for many machines; durable when the append is done.

Any number of processes and event loops may use one schema at once. Whoever writes a session that
somebody else wrote meanwhile is refused; nothing is ever merged. Nothing is connected before the
first use, and the connections belong to the event loop that first needed them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import islice
from types import TracebackType
from typing import Self

from windlass.core.decide.reserving import budget_window
from windlass.core.errors import JournalCorrupt, JournalFailed, SessionBusy
from windlass.core.events import Fact
from windlass.core.limits import Amount, Budget
from windlass.core.session_summary import SessionSummary
from windlass.journals.chain import RecordProblem
from windlass.journals.codec import blob_name, encode_fact, is_blob_name
from windlass.journals.postgres.batch import PendingAppend
from windlass.journals.postgres.config import Durability, PostgresConfig
from windlass.journals.postgres.lease_connection import PostgresLease
from windlass.journals.postgres.loop_resources import ResourcesByLoop
from windlass.journals.postgres.queries import PostgresQueries

PRUNE_BATCH = 100
"""Sessions that are deleted together."""


class PostgresJournal:
    """A journal in a schema of a Postgres database.

    With `relaxed`, the last appends may be lost when the server dies; when only this process dies,
    nothing is lost either way. Connect to the server itself, or to a pooler that pools sessions:
    leases and news need a connection that stays the same.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "windlass",
        durability: Durability = "full",
        connections_max: int = 4,
        timeout_s: float = 30.0,
        patience_s: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = PostgresConfig(
            dsn=dsn,
            schema=schema,
            durability=durability,
            connections_max=connections_max,
            timeout_s=timeout_s,
            patience_s=patience_s,
        )
        self._queries = PostgresQueries(self._config)
        self._resources = ResourcesByLoop(self._config)
        self._now = now

    async def aclose(self) -> None:
        """Write what is waiting, in every event loop, and let go of the server."""
        await self._resources.aclose()

    def close(self) -> None:
        """As `aclose`, from where no event loop runs."""
        self._resources.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ── records ──────────────────────────────────────────────────────────────

    def append(self, session: str, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """Write the facts, all or none; done when the server has committed them."""
        done = asyncio.get_running_loop().create_future()
        if not facts:
            done.set_result(None)
            return done
        try:
            records = [encode_fact(fact) for fact in facts]
            self._resources.for_running_loop().writer.submit(
                PendingAppend(_check_session_name(session), facts, records, done)
            )
        except JournalFailed as error:
            done.set_exception(error)
        return done

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """The facts of a session past a sequence number; each is checked against the chain."""
        return tuple(
            [self._require_fact(session, one) for one in await self._walk_records(session, after)]
        )

    def _require_fact(self, session: str, found: Fact | RecordProblem) -> Fact:
        if isinstance(found, RecordProblem):
            where = f"journal {self._config.display_url}"
            raise JournalCorrupt(f"{where}: session {session!r} cannot be trusted: {found}")
        return found

    async def verify(self, session: str) -> list[RecordProblem]:
        """Every record of a session that was changed, moved or taken out."""
        return [
            one for one in await self._walk_records(session, 0) if isinstance(one, RecordProblem)
        ]

    async def _walk_records(self, session: str, after: int) -> Sequence[Fact | RecordProblem]:
        desk, name = self._resources.for_running_loop(), _check_session_name(session)
        found = await desk.pool.run_on_connection(
            lambda server: self._queries.read_session(server, name, after)
        )
        if found is None:
            return ()
        desk.writer.remember_end(found.end)
        return await asyncio.to_thread(found.walk_records)

    # ── the list of sessions ─────────────────────────────────────────────────

    async def sessions(
        self, query: str | None = None, *, limit: int = 50, unfinished: bool = False
    ) -> list[SessionSummary]:
        """The sessions whose name or first prompt holds the query, the latest first."""
        asked = (query or "").replace("\0", "\ufffd")
        return await self._resources.for_running_loop().pool.run_on_connection(
            lambda server: self._queries.list_sessions(server, asked, limit, unfinished=unfinished)
        )

    async def abandoned(self) -> list[SessionSummary]:
        """The sessions with an open run that nobody drives or is asked about, the latest first."""
        locks = await self._resources.for_running_loop().leases.held_lock_keys()
        return [
            one
            for one in await self.sessions(limit=2**31, unfinished=True)
            if one.state == "open" and self._config.lock_key("lease", one.session) not in locks
        ]

    async def delete(self, session: str) -> bool:
        """Delete a session and the attachments that only it used; whether there was one."""
        names = [_check_session_name(session)]
        desk = self._resources.for_running_loop()
        await desk.leases.wait_for_releases()
        gone, driven = await desk.pool.run_on_connection(
            lambda server: self._queries.delete_sessions(server, names)
        )
        if driven:
            raise SessionBusy(f"session {session!r}: somebody drives it; it cannot be deleted")
        return gone > 0

    async def prune(self, before: float) -> int:
        """Delete the sessions that ended and were not touched since; returns how many."""
        desk, count = self._resources.for_running_loop(), 0
        await desk.leases.wait_for_releases()
        line = desk.pool
        names = iter(
            await line.run_on_connection(lambda server: self._queries.list_ended(server, before))
        )
        while batch := [*islice(names, PRUNE_BATCH)]:
            count += (
                await line.run_on_connection(
                    lambda it, b=batch: self._queries.delete_sessions(it, b, before)
                )
            )[0]
        return count

    # ── leases and news ──────────────────────────────────────────────────────

    async def lease(self, session: str) -> PostgresLease:
        """Take the session; raises SessionBusy if somebody alive has it.

        It is the server that knows: the lease of a process that died is free at once, that of a
        machine that was cut off within half a minute.
        """
        return await self._resources.for_running_loop().leases.acquire_lease(
            _check_session_name(session)
        )

    async def is_leased(self, session: str) -> bool:
        """Whether somebody alive drives the session, in any process."""
        key = self._config.lock_key("lease", _check_session_name(session))
        return key in await self._resources.for_running_loop().leases.held_lock_keys()

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return when the session may have records past `after`; now and then also for nothing."""
        desk, name = self._resources.for_running_loop(), _check_session_name(session)

        async def is_there() -> bool:
            return (
                await desk.pool.run_on_connection(lambda it: self._queries.last_seq(it, name))
                > after
            )

        await desk.leases.wait_for_news(name, is_there)

    # ── what is kept beside ──────────────────────────────────────────────────

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep the data for as long as the session; its name, once it is durable."""
        named, name = _check_session_name(session), blob_name(data)
        line = self._resources.for_running_loop().pool
        if not await line.run_on_connection(
            lambda server: self._queries.keep_blob(server, named, name, data)
        ):
            raise JournalFailed(f"there is no session {session!r} to keep this for")
        return name

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """What the session keeps under a name; a prefix of 16 characters will do."""
        if not is_blob_name(name):
            return None
        named = _check_session_name(session)
        found = await self._resources.for_running_loop().pool.run_on_connection(
            lambda it: self._queries.fetch_blob(it, named, name)
        )
        if found is not None and not blob_name(found).startswith(name):
            raise JournalCorrupt(
                f"journal {self._config.display_url}: attachment {name} was changed"
            )
        return found

    # ── budgets ──────────────────────────────────────────────────────────────

    async def draw_budget(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        """Raise what a run may spend in all to `wanted`, or as near as the budget allows."""
        return await self._change_share(budget, session, run, wanted, spent=False)

    async def settle_budget(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Say what a run has spent in all; what it does not need goes back."""
        await self._change_share(budget, session, run, spent, spent=True)

    async def read_spending(self, budget: Budget) -> Amount:
        """What is spent or promised of the budget for now."""
        period = budget_window(budget, self._now())
        found = await self._resources.for_running_loop().pool.run_on_connection(
            lambda it: self._queries.promised_sum(it, budget.name, period)
        )
        return found.as_amount(budget)

    async def _change_share(
        self, budget: Budget, session: str, run: int, said: Amount, *, spent: bool
    ) -> Amount:
        whose = (budget.name, budget_window(budget, self._now()), _check_session_name(session), run)
        amounts = (budget.usd, budget.tokens, said.usd, said.tokens)
        line = self._resources.for_running_loop().pool
        found = await line.run_on_connection(
            lambda it: self._queries.change_share(it, *whose, *amounts, spent)
        )
        return found.as_amount(budget)


def _check_session_name(session: str) -> str:
    try:
        session.encode()
    except UnicodeEncodeError as error:
        raise JournalFailed(f"{session!r} is no name for a session: {error.reason}") from None
    if "\0" in session:
        raise JournalFailed(f"{session!r} is no name for a session: Postgres takes no NUL")
    return session
