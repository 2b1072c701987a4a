"""The leases of one event loop: taken and freed in the rows of sessions, kept by its heartbeat.

Invariant: a lease that was granted is held until it was freed on the server, or another process has
taken it. What could not be freed while the server was away is freed after the next renewal.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakSet

from windlass.core.errors import SessionBusy, WindlassError
from windlass.journals.postgres.config import PostgresConnection
from windlass.journals.postgres.direct_connection import DirectConnection
from windlass.journals.postgres.doubts import DoubtSettler
from windlass.journals.postgres.heartbeat import Heartbeat
from windlass.journals.postgres.lease_rows import ClaimedSession, LeaseRows
from windlass.journals.postgres.recovery import FailoverRecovery
from windlass.journals.postgres.tails import KeptTails
from windlass.journals.postgres.work_rows import TakenWork, WorkRows
from windlass.journals.wording import session_busy_error
from windlass.journals.work_rules import claim_safely
from windlass.ports.fleet import ClaimedWork, WorkLane, WorkShare, WorkWanted

RETRY_WAITS_S = (0.01, 0.02, 0.03)
"""Leases are freed in the background, so a driver tries again for a moment before it fails."""
_all_keepers: WeakSet["LeaseKeeper"] = WeakSet()
_list_mutex = threading.Lock()


class PostgresLease:
    """The lease of a session."""

    def __init__(self, keeper: "LeaseKeeper", session: str) -> None:
        self._keeper = keeper
        self.session = session
        self.worker = ""
        """The row of the process that has the session."""
        self.epoch = 0
        """The fencing token; 0 until the lease is granted."""
        self.is_lost = False
        self._on_lost: Callable[[], None] | None = None

    def is_certain(self) -> bool:
        """Whether no other process can have the session, by the clock of this machine."""
        return not self.is_lost and self._keeper.is_current(self)

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call back, in the event loop of the lease, if it is lost or cannot be renewed in time."""
        self._on_lost = on_lost
        if self.is_lost:
            on_lost()

    def warn(self) -> None:
        """Tell the driver that it must stop."""
        if self._on_lost is not None:
            self._on_lost()

    async def confirm(self) -> bool:
        """Ask the server whether the lease is held. Raises JournalFailed without an answer."""
        return await self._keeper.confirm_lease(self)

    def release(self) -> None:
        """Free the session, from any thread. A second call does nothing."""
        self._keeper.release_lease(self)


class LeaseKeeper:
    """Takes, keeps and frees the leases of one event loop."""

    def __init__(
        self,
        direct: DirectConnection,
        remember_row: Callable[[ClaimedSession], None],
        tails: KeptTails,
    ) -> None:
        """`remember_row` gets the row of each session that was claimed.

        `tails` is what this event loop has written.
        """
        self._direct = direct
        self.pool = direct.pool
        self._rows = LeaseRows(direct.pool.config)
        self._remember_row = remember_row
        self._heart = Heartbeat(direct, self._warn_all)
        self._heart.after_renewal = self._after_renewal
        self._settler = DoubtSettler(direct.pool.config)
        self._settling: asyncio.Task[None] | None = None
        self._work = WorkRows(direct.pool.config)
        self._held: dict[str, PostgresLease] = {}
        """Leases by session, also those that are not granted yet."""
        self._claimed: dict[str, PostgresLease] = {}
        """Those of them that were claimed as work, until a driver asks for them."""
        self._is_unsure = False
        """A claim may have been made whose answer was lost."""
        self.recovery = FailoverRecovery(direct, self._heart, self._held, tails)
        self._leaving: dict[str, PostgresLease] = {}
        """Leases that were released, until the server has freed them."""
        self._freeing: asyncio.Task[None] | None = None
        self.pool.add_farewell(self.say_farewell)
        with _list_mutex:
            _all_keepers.add(self)

    # ── for leases ───────────────────────────────────────────────────────────

    async def acquire_lease(self, session: str) -> PostgresLease:
        """Take the lease of a session; raises SessionBusy if a living driver has it."""
        await self.wait_for_releases()
        if session in self._claimed:
            return self._claimed.pop(session)
        if session in self._held:
            raise session_busy_error(session)
        lease = self._held[session] = PostgresLease(self, session)
        try:
            await asyncio.shield(self._direct.start_task(self._claim(lease)))
        except WindlassError as error:
            self._is_unsure = self._is_unsure or not isinstance(error, SessionBusy)
            lease.release()
            raise
        except BaseException:
            lease.release()
            raise
        return lease

    async def list_work(self, wanted: WorkWanted) -> Sequence[WorkLane]:
        """Return the lanes with sessions that need a driver and have none."""
        # A process that looks for work also notices when others are gone.
        await self._heart.ensure_alive()
        await self.wait_for_releases()
        if self._is_unsure:
            await self._free_unknown()
        if wanted.checks_drivers:
            owners = {*await self.pool.run_on_connection(self._work.list_owners)}
            await self._heart.watch.find_dead(owners - {self._heart.worker})
        return await self.pool.run_on_connection(lambda it: self._work.list_lanes(it, wanted))

    async def _free_unknown(self) -> None:
        """Free the sessions that name this process without its knowledge."""
        known = [*self._held, *self._leaving]
        worker = self._heart.worker
        await self.pool.run_on_connection(lambda it: self._work.free_unknown(it, worker, known))
        self._is_unsure = False

    async def claim_work(
        self, wanted: WorkWanted, shares: Sequence[WorkShare]
    ) -> Sequence[ClaimedWork]:
        """Lease some sessions of these lanes."""
        if not shares:
            return ()
        await self._heart.ensure_alive()
        claiming = self._direct.start_task(self._claim_work(wanted, shares))
        return await claim_safely(claiming, self.release_work)

    async def _claim_work(
        self, wanted: WorkWanted, shares: Sequence[WorkShare]
    ) -> Sequence[ClaimedWork]:
        worker = self._heart.worker
        tries = 0

        async def claim(server: PostgresConnection) -> Sequence[TakenWork]:
            nonlocal tries
            tries += 1
            # If the answer is lost, the rows may name this process, which then does not know it.
            self._is_unsure = True
            return await self._work.claim(server, wanted, shares, worker)

        taken = await self.pool.run_on_connection(claim)
        self._is_unsure = tries > 1
        for work, claimed in taken:
            lease = PostgresLease(self, work.session)
            lease.worker = worker
            lease.epoch = claimed.epoch
            self._remember_row(claimed)
            self._held[work.session] = self._claimed[work.session] = lease
        return [work for work, _ in taken]

    def release_work(self, session: str) -> None:
        """Release a session that was claimed, unless a driver has it by now."""
        lease = self._claimed.pop(session, None)
        if lease is not None:
            lease.release()

    def is_current(self, lease: PostgresLease) -> bool:
        """Whether a lease is held, and was renewed in time."""
        is_held = self._held.get(lease.session) is lease
        return is_held and self._heart.is_current() and not self.recovery.is_running

    async def confirm_lease(self, lease: PostgresLease) -> bool:
        """Return whether a lease is held, as the server says now."""
        if self._held.get(lease.session) is not lease or lease.is_lost:
            return False
        await self._heart.ensure_alive()
        await self.recovery.wait()
        await self._check_kept([lease])
        return not lease.is_lost

    def find_claim(self, session: str) -> tuple[str, int] | None:
        """Return the process and the epoch with which a session is written; None without a lease.

        A lease that was lost is returned too: what is written with it is refused.
        """
        lease = self._held.get(session)
        return (lease.worker, lease.epoch) if lease is not None and lease.epoch else None

    def is_held(self, session: str) -> bool:
        """Whether this process has a session, as far as it knows."""
        lease = self._held.get(session)
        return lease is not None and lease.epoch > 0 and not lease.is_lost

    async def is_leased(self, session: str) -> bool:
        """Whether a living process has a session."""
        await self.wait_for_releases()
        owner = await self.pool.run_on_connection(lambda it: self._rows.find_owner(it, session))
        if owner is None or not owner.is_living:
            return False
        return not await self._has_died(owner.worker)

    async def find_driven(self, sessions: Sequence[str]) -> set[str]:
        """Return those of these sessions that a living process has."""
        await self.wait_for_releases()
        find = partial(self._rows.find_driven, sessions=sessions)
        owners = await self.pool.run_on_connection(find)
        others = {*owners.values()} - {self._heart.worker}
        if others and await self._heart.watch.find_dead(others):
            owners = await self.pool.run_on_connection(find)
        return {*owners}

    async def _has_died(self, worker: str) -> bool:
        """Whether another process has died, as far as this one can tell."""
        return worker != self._heart.worker and bool(await self._heart.watch.find_dead([worker]))

    def release_lease(self, lease: PostgresLease) -> None:
        """Free a lease in the background, from any thread."""
        loop = self.pool.loop
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._release_here(lease)
            return
        # A loop that has ended has freed its sessions as it closed its connections.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._release_here, lease)

    async def wait_for_releases(self) -> None:
        """Wait until the server has freed each lease that was released so far.

        This includes other journals of the same event loop: a program that releases a lease and
        then asks for it must get it.
        """
        with _list_mutex:
            keepers = [one for one in _all_keepers if one.pool.loop is self.pool.loop]
        tasks = {task for one in keepers if (task := one.current_release()) is not None}
        if tasks:
            await asyncio.wait(tasks)

    def current_release(self) -> "asyncio.Task[None] | None":
        """Return the task that frees sessions now, if there is one."""
        return None if self._freeing is None or self._freeing.done() else self._freeing

    async def close(self) -> None:
        """Free everything, and remove the row of this process."""
        await self.wait_for_releases()
        await self._heart.close()
        if self._held or self._leaving or self._heart.is_current():
            with suppress(WindlassError):
                await self.pool.run_on_connection(self.say_farewell)

    async def say_farewell(self, server: PostgresConnection) -> None:
        """Free everything on this connection, because the event loop ends."""
        leases = [*self._held.values(), *self._leaving.values()]
        self._held.clear()
        self._claimed.clear()
        self._leaving.clear()
        epochs = {lease.session: lease.epoch for lease in leases if lease.epoch}
        if epochs:
            await self._rows.free(server, self._heart.worker, epochs)
        if self._heart.is_current():
            await self._heart.remove_row(server)

    # ── taking ───────────────────────────────────────────────────────────────

    async def _claim(self, lease: PostgresLease) -> None:
        session = lease.session
        for wait_s in (0.0, *RETRY_WAITS_S):
            await asyncio.sleep(wait_s)
            if await self._try_claim(lease):
                return
        owner = await self.pool.run_on_connection(lambda it: self._rows.find_owner(it, session))
        is_busy = owner is not None and owner.is_living
        if owner is not None and is_busy:
            is_busy = not await self._has_died(owner.worker)
        missing = owner.worker if owner is not None and not owner.has_row else None
        if is_busy or not await self._try_claim(lease, missing):
            raise session_busy_error(session)

    async def _try_claim(self, lease: PostgresLease, missing: str | None = None) -> bool:
        await self._heart.ensure_alive()
        worker = self._heart.worker
        claimed = await self.pool.run_on_connection(
            lambda server: self._rows.claim(server, lease.session, worker, missing)
        )
        if claimed is None:
            return False
        lease.worker = worker
        lease.epoch = claimed.epoch
        self._remember_row(claimed)
        if self._held.get(lease.session) is not lease:
            # The caller was cancelled meanwhile and does not want it any more.
            self._leave(lease)
        return True

    # ── keeping and freeing ──────────────────────────────────────────────────

    def _warn_all(self) -> None:
        for lease in tuple(self._held.values()):
            lease.warn()

    async def _after_renewal(self, has_gap: bool) -> None:  # noqa: FBT001 - it is a callback
        if not self.pool.history.is_settled and (self._settling is None or self._settling.done()):
            self._settling = self._direct.start_task(self._settle_doubts())
        if has_gap and not self.recovery.is_running:
            await self._check_kept([lease for lease in self._held.values() if lease.epoch])
        if self._leaving:
            self._start_freeing()

    async def _settle_doubts(self) -> None:
        with suppress(WindlassError):  # Tried again after the next renewal.
            await self.pool.run_on_connection(self._settler.settle)

    async def _check_kept(self, leases: list[PostgresLease]) -> None:
        """Find out which of these leases other processes have taken, and tell their drivers."""
        if not leases:
            return
        by_worker: dict[str, dict[str, int]] = {}
        for lease in leases:
            by_worker.setdefault(lease.worker, {})[lease.session] = lease.epoch
        kept: set[str] = set()
        for worker, epochs in by_worker.items():
            if worker == self._heart.worker:
                kept |= await self.pool.run_on_connection(
                    lambda it, worker=worker, epochs=epochs: self._rows.find_kept(
                        it, worker, epochs
                    )
                )
        for lease in leases:
            if lease.session not in kept and not lease.is_lost:
                lease.is_lost = True
                lease.warn()

    def _release_here(self, lease: PostgresLease) -> None:
        if self._held.get(lease.session) is not lease:
            return
        del self._held[lease.session]
        if lease.epoch:
            self._leave(lease)

    def _leave(self, lease: PostgresLease) -> None:
        self._leaving[lease.session] = lease
        if not self.pool.is_closed:
            self._start_freeing()

    def _start_freeing(self) -> None:
        if self.current_release() is None:
            self._freeing = self._direct.start_task(self._free_leaving())

    async def _free_leaving(self) -> None:
        while self._leaving:
            batch = dict(self._leaving)
            worker = self._heart.worker
            # Those of an earlier name are free already: that process counts as dead.
            epochs = {name: one.epoch for name, one in batch.items() if one.worker == worker}
            try:
                await self.pool.run_on_connection(
                    lambda it, worker=worker, epochs=epochs: self._rows.free(it, worker, epochs)
                )
            except WindlassError:
                return  # It is tried again after the next renewal.
            for name, lease in batch.items():
                if self._leaving.get(name) is lease:
                    del self._leaving[name]
