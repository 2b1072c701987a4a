"""A journal in Postgres, for many machines. An append is durable when it is done.

Any number of processes and event loops may use one schema at the same time. A driver that writes to
a session which another driver has continued is refused; nothing is ever merged. Nothing is
connected before the first use, and a connection belongs to the event loop that first needed it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import override

from windlass.core.decide.reserving import budget_window
from windlass.core.errors import JournalCorrupt, SessionBusy
from windlass.core.events import Fact
from windlass.core.limits import Amount, Budget
from windlass.core.session_summary import PagePlace, SessionQuery, SessionSummary
from windlass.journals.answer_proofs import find_unsigned_answers
from windlass.journals.codec import RecordProblem, blob_name
from windlass.journals.mail_rules import MailLimits
from windlass.journals.postgres.config import LEASE_S, PostgresConfig, PostgresConnection
from windlass.journals.postgres.leasing import PostgresLease
from windlass.journals.postgres.live import PostgresSender, PostgresSubscription
from windlass.journals.postgres.queries import BurySessions, PostgresQueries
from windlass.journals.postgres.saving import TableSaver
from windlass.journals.postgres.shared_records import PostgresRecordStore
from windlass.journals.record_rules import ZERO_USD, BudgetDraws, ShareChange
from windlass.journals.saved_journal import SavedJournal
from windlass.journals.service_keys import ServiceKeys, load_service_keys
from windlass.journals.session_rows import PendingAppend
from windlass.journals.tombstones import (
    KIND,
    find_put_back,
    hash_signature,
    hash_without_key,
    make_tombstone,
    read_tombstone,
)
from windlass.journals.upgrades import UpgradeStatus
from windlass.journals.wording import Durability, session_missing_error
from windlass.ports.records import Tombstone

PRUNE_BATCH = 100
"""Sessions that are deleted in one transaction, each with those below it."""


class PostgresJournal(PostgresRecordStore, BudgetDraws):
    """A journal in a schema of a Postgres database.

    With the durability "relaxed", the last appends may be lost when the server crashes. If only
    this process dies, nothing is lost with either setting.

    Through a pooler in transaction mode, add `?pooler=transaction` to the URL: nothing is listened
    to then and no lock is held, so that waiters look by themselves, and the sessions of a
    dead process are free after `lease_s`. `&direct=` with the URL of the server gives these back.
    """

    def __init__(  # noqa: PLR0913 - one parameter per setting
        self,
        dsn: str,
        *,
        schema: str = "windlass",
        durability: Durability = "full",
        connections_max: int = 4,
        timeout_s: float = 30.0,
        patience_s: float = 10.0,
        lease_s: float = LEASE_S,
        now: Callable[[], float] = time.time,
        mail_limits: MailLimits | None = None,
        keys: ServiceKeys | None = None,
    ) -> None:
        """Set up the journal; it connects at its first use. Raises ConfigError for wrong values.

        Args:
            dsn: `postgresql://user:password@host/database`.
            schema: the schema for the tables; it is created if it does not exist.
            durability: "full" waits until the server has written to its disk.
            connections_max: connections of each event loop, not counting one that stays open.
            timeout_s: how long one statement may take.
            patience_s: how long to retry when a server that was reachable before does not answer.
            lease_s: how long a process that stops answering keeps its sessions.
            now: seconds since the epoch, for budgets with a window.
            mail_limits: how many messages may wait: by default 1,000 for control, 100 prompts.
            keys: sign and verify answers and records; by default those of `load_service_keys`.
        """
        config = PostgresConfig(
            dsn=dsn,
            schema=schema,
            durability=durability,
            connections_max=connections_max,
            timeout_s=timeout_s,
            patience_s=patience_s,
            lease_s=lease_s,
        )
        super().__init__(config, mail_limits or MailLimits(), keys or load_service_keys())
        self._queries = PostgresQueries(config)
        self._now = now

    @override
    async def aclose(self) -> None:
        """Write what is waiting, in every event loop, then close all connections."""
        await self._resources.aclose()

    @override
    def close(self) -> None:
        """As `aclose`, from code that is not async."""
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

    # ── records ──────────────────────────────────────────────────────────────

    @override
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts of a session after number `after`, each checked against the chain.

        An unknown session has none. Raises JournalCorrupt if a record is not what was written.
        """
        return self._require_facts(session, await self._walk_records(session, after))

    async def verify(self, session: str) -> list[RecordProblem]:
        """Return a problem for each record of a session that was changed, moved or removed.

        With keys, also for each answer that no service signed.
        """
        name = self._check_name(session)
        stored = await self._run_query(lambda server: self._queries.read_session(server, name, 0))
        if stored is None:
            return []
        problems = await asyncio.to_thread(stored.find_problems)
        if stored.records:
            problems += find_put_back(await self.find_tombstone(name, stored.records[0][2]))
        if self.is_signed:
            with suppress(JournalCorrupt):  # Then `problems` has the record that is to blame.
                facts = await self.read(session)
                problems = [*problems, *find_unsigned_answers(self._keys, session, facts)]
        return problems

    async def check(self) -> list[str]:
        """Return what does not fit together in the tables, in words. This reads all keys.

        With keys, it also returns the records that no service signed.
        """
        orphans = await self._run_query(self._queries.find_orphans)
        return [*orphans, *await self.find_unsigned_records()]

    async def save(self, target: Path) -> SavedJournal:
        """Save the journal to a new file while others use it, and check every record of it.

        Raises ConfigError if the file exists, and JournalCorrupt if the journal is damaged.
        """
        return await self._run_query(lambda server: TableSaver(self._queries).save(server, target))

    async def load(self, backup: Path) -> SavedJournal:
        """Load a backup into this journal, which must be empty, and check every record of it.

        Raises ConfigError if it is no backup or this journal holds something, and JournalCorrupt.
        """
        return await self._run_query(lambda server: TableSaver(self._queries).load(server, backup))

    async def _walk_records(self, session: str, after: int) -> Sequence[Fact | RecordProblem]:
        name = self._check_name(session)
        stored = await self._run_query(
            lambda server: self._queries.read_session(server, name, after)
        )
        if stored is None:
            return ()
        self._resources.for_running_loop().writer.remember_end(stored.end)
        # Hashing and decoding a long session would block the event loop.
        return await asyncio.to_thread(stored.walk_records)

    @override
    def _submit_append(self, append: PendingAppend) -> None:
        self._resources.for_running_loop().writer.submit(append)

    # ── the list of sessions ─────────────────────────────────────────────────

    @override
    async def _select_sessions(
        self, query: SessionQuery, place: PagePlace | None, limit: int
    ) -> list[SessionSummary]:
        return await self._run_query(
            lambda server: self._queries.list_sessions(server, query, place, limit)
        )

    @override
    async def _find_summary(self, session: str) -> SessionSummary | None:
        return await self._run_query(lambda server: self._queries.find_summary(server, session))

    @override
    async def _find_driven(self, sessions: Sequence[str]) -> set[str]:
        return await self._resources.for_running_loop().leases.find_driven(sessions)

    @override
    async def delete(self, session: str, *, erase: bool = False) -> bool:
        """Delete a session, those that work for it, and the attachments that only they used.

        Returns whether there was one. Raises SessionBusy, and deletes nothing, if one is driven,
        and ConfigError if a service signs what stays of it, and this process lacks the key.
        """
        self._signed.check_writer(KIND)
        tree = [self._check_name(session), *await self._find_below(session)]
        # This also notices a driver that has died.
        await self._resources.for_running_loop().leases.find_driven(tree)
        firsts: list[tuple[str, bytes]] = []
        bury = self._bury(firsts, erase=erase)
        deleted, driven = await self._run_query(
            lambda server: self._queries.delete_trees(server, [tree], None, bury)
        )
        if driven:
            raise SessionBusy(
                f"session {session!r}: a driver is running it, or one that works for it, so it "
                "cannot be deleted; wait until the run ends, or cancel it"
            )
        for name, first in firsts:
            self._changes.keep_deletion(name, first, erase=erase)
        return deleted > 0

    def _bury(self, found: list[tuple[str, bytes]], *, erase: bool) -> BurySessions:
        async def bury(server: PostgresConnection, firsts: Sequence[tuple[str, bytes]]) -> None:
            found[:] = firsts
            values = [value for first in firsts for value in first]
            await self._write_tombstones(server, values, erase=erase)

        return bury

    async def bury(self, name: str) -> None:
        """Leave a tombstone under a name. Raises ConfigError if this process cannot sign it."""
        self._signed.check_writer(KIND)

        async def write(server: PostgresConnection) -> None:
            async with server.transaction():
                await self._write_tombstones(server, [name], erase=True)

        await self._run_query(write)

    async def _write_tombstones(
        self, server: PostgresConnection, values: Sequence[str | bytes], *, erase: bool
    ) -> None:
        journal = await self._queries.read_journal_id(server)
        data = make_tombstone(erased=erase)
        for value in values:
            name = self._hash_value(journal, value)
            await self._records.replace_record(server, KIND, name, data)

    def _hash_value(self, journal: str, value: str | bytes) -> str:
        """Return a hash of a name that the database alone does not suffice to make, with a key."""
        if self._keys.can_sign:
            return hash_signature(self._keys.sign("erased", journal, value))
        return hash_without_key(journal, value)

    async def find_tombstone(self, session: str, first: bytes = b"") -> Tombstone | None:
        """Return what stays of a deleted session, by its name or by its first record.

        With keys, only a process that has the private key finds it.
        """
        value = first or self._check_name(session)
        name = self._hash_value(await self._run_query(self._queries.read_journal_id), value)
        found = await self.get_record(KIND, name)
        return None if found is None else read_tombstone(found.data)

    async def scrub(self) -> bool:
        """Return False: the server keeps the bytes until it has cleaned up its files and its log.

        How long that takes is for its operator to say (`docs/production.md`).
        """
        return False

    @override
    async def _delete_ended_trees(self, trees: Sequence[Sequence[str]], before: float) -> int:
        self._signed.check_writer(KIND)
        await self._resources.for_running_loop().leases.wait_for_releases()
        count = 0
        for start in range(0, len(trees), PRUNE_BATCH):
            batch = trees[start : start + PRUNE_BATCH]
            deleted, _ = await self._run_query(
                lambda server, batch=batch: self._queries.delete_trees(
                    server, batch, before, self._bury([], erase=False)
                )
            )
            count += deleted
        return count

    # ── leases and news ──────────────────────────────────────────────────────

    @override
    async def lease(self, session: str) -> PostgresLease:
        """Take the lease of a session; raises SessionBusy if a live driver has it.

        The lease of a process that died is free within two seconds, and that of one that stopped
        or was cut off after `lease_s`.
        """
        name = self._check_name(session)
        return await self._resources.for_running_loop().leases.acquire_lease(name)

    async def is_leased(self, session: str) -> bool:
        """Whether a live driver has the session, in any process."""
        name = self._check_name(session)
        return await self._resources.for_running_loop().leases.is_leased(name)

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return when the session may have records after number `after`.

        It also returns after a few seconds without any, because a notification may be lost.
        """
        name = self._check_name(session)

        async def is_there() -> bool:
            return await self._run_query(lambda it: self._queries.last_seq(it, name)) > after

        await self._resources.for_running_loop().news.wait_for_news(name, name, is_there)

    def open_live(self, session: str, on_interest: Callable[[bool], None]) -> PostgresSender:
        """Open the driver's side of the live channel; nothing is sent before a watcher comes."""
        live = self._resources.for_running_loop().live
        return live.open_sender(self._check_name(session), on_interest)

    def watch_live(self, session: str) -> PostgresSubscription:
        """Open a watcher's side of the live channel, on its own connection."""
        return self._resources.for_running_loop().live.subscribe(self._check_name(session))

    # ── upgrades ─────────────────────────────────────────────────────────────

    @override
    async def upgrade_status(self) -> UpgradeStatus:
        """Return the state of the upgrade of the tables."""
        return await self._run_query(self._queries.upgrade_status)

    @override
    async def _fold_rows_again(self) -> int:
        return await self._run_query(self._queries.fold_rows_again)

    @override
    async def _finish_upgrade(self) -> None:
        await self._run_query(self._queries.finish_upgrade)

    # ── blobs ────────────────────────────────────────────────────────────────

    async def put_blob(self, session: str, data: bytes) -> str:
        """Store data for as long as the session, and return its name once it is durable.

        Raises JournalFailed if there is no such session.
        """
        owner = self._check_name(session)
        name = blob_name(data)
        is_stored = await self._run_query(
            lambda server: self._queries.put_blob(server, owner, name, data)
        )
        if not is_stored:
            raise session_missing_error(session)
        return name

    @override
    async def _find_blob(self, session: str, prefix: str) -> bytes | None:
        return await self._run_query(lambda server: self._queries.get_blob(server, session, prefix))

    # ── budgets ──────────────────────────────────────────────────────────────

    @override
    async def _read_held(self, budget: Budget, window: str, tree: str) -> Amount:
        held = await self._run_query(
            lambda server: self._queries.reserved_sum(server, budget.name, window, tree)
        )
        return held.as_amount(budget)

    @override
    async def _read_promised(self, budget: Budget, window: str) -> Amount:
        promised = await self._run_query(
            lambda server: self._queries.promised_sum(server, budget.name, window)
        )
        return promised.as_amount(budget)

    @override
    async def _change_share(self, change: ShareChange) -> Amount:
        budget, session, run, amount, is_spent, before = change
        window = budget_window(budget, self._now())
        owner = (budget.name, window, self._check_name(session), run)
        amounts = (budget.usd, budget.tokens, amount.usd, amount.tokens, is_spent)
        known = (before.usd or ZERO_USD, before.tokens or 0)
        share = await self._run_query(
            lambda server: self._queries.change_share(server, *owner, *amounts, *known)
        )
        return share.as_amount(budget)
