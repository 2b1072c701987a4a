"""What one event loop does after a failover: get its sessions back, with what the server lost.

Invariant: nothing counts as leased while this runs. A lease continues with a higher epoch if its
session has all that was acknowledged, and is lost otherwise: then its driver stops, and the session
is in doubt.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from windlass.core.errors import WindlassError
from windlass.journals.postgres.boot_clock import boot_time
from windlass.journals.postgres.direct_connection import DirectConnection
from windlass.journals.postgres.heartbeat import Heartbeat
from windlass.journals.postgres.lease_rows import KeptLease
from windlass.journals.postgres.restoring import OwnEnd, Restored, TailRestorer
from windlass.journals.postgres.tails import KeptTails
from windlass.logs import get_logger

TRY_PART = 0.6
"""The part of the lease time in which a session is tried again: another process may have to restore
what comes before."""
TRY_S = 0.2
_log = get_logger(__name__)


class FailoverRecovery:
    """Restores the sessions of one event loop."""

    def __init__(
        self,
        direct: DirectConnection,
        heart: Heartbeat,
        held: Mapping[str, KeptLease],
        tails: KeptTails,
    ) -> None:
        self._direct = direct
        self._heart = heart
        self._held = held
        self._restorer = TailRestorer(direct.pool.config)
        self._tails = tails
        self.find_head: Callable[[str], bytes | None] = _find_nothing
        """Returns the hash of the last record of a session, as far as it is known."""
        self.forget_end: Callable[[str], None] = _find_nothing
        self.repeat: Callable[[], Awaitable[None]] = _do_nothing
        """Does again what was changed besides records of runs."""
        self._task: asyncio.Task[None] | None = None
        self._is_due = False
        direct.pool.history.on_failover = self._start

    @property
    def is_running(self) -> bool:
        """Whether leases are void, because they have not been taken again yet."""
        return self._task is not None and not self._task.done()

    async def wait(self) -> None:
        """Wait until each lease was taken again, or is lost."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    def _start(self) -> None:
        self._is_due = True
        if not self.is_running:
            self._task = self._direct.start_task(self._recover())

    async def _recover(self) -> None:
        while self._is_due:
            self._is_due = False
            await self.repeat()
            names = {name for name, lease in self._held.items() if lease.epoch}
            names.update(self._tails.sessions())
            ends_at = boot_time() + TRY_PART * self._direct.pool.config.lease_s
            while names:
                names = {name for name in sorted(names) if not await self._try(name, ends_at)}
                if names:
                    await asyncio.sleep(TRY_S)

    async def _try(self, session: str, ends_at: float) -> bool:
        """Restore a session. Returns whether it is done with, one way or the other."""
        try:
            if not self._heart.is_current():
                await self._heart.renew()
            own = self._describe_own(session)
            outcome, epoch = await self._direct.run(lambda it: self._restorer.restore(it, own))
            if outcome == "behind" and boot_time() < ends_at:
                return False
            if outcome == "behind" and own.is_held:
                await self._direct.run(lambda it: self._restorer.doubt(it, session))
        except WindlassError as error:
            if boot_time() < ends_at:
                return False
            _log.warning("session %s could not be restored: %s", session, error)
            self._give_up(session)
            return True
        self._finish(session, outcome, epoch)
        return True

    def _describe_own(self, session: str) -> OwnEnd:
        lease = self._held.get(session)
        is_held = lease is not None and lease.epoch > 0 and not lease.is_lost
        tail = self._tails.of_session(session)
        return OwnEnd(
            session,
            tail,
            self.find_head(session),
            self._heart.worker,
            lease.epoch if lease is not None and is_held else tail[-1].epoch if tail else 0,
            is_held,
        )

    def _finish(self, session: str, outcome: Restored, epoch: int) -> None:
        lease = self._held.get(session)
        self.forget_end(session)
        if outcome == "restored":
            _log.warning("session %s has got back what the failover lost", session)
        if outcome in ("same", "restored"):
            if lease is not None and not lease.is_lost:
                lease.worker = self._heart.worker
                lease.epoch = epoch
            return
        if lease is not None:
            _log.warning("session %s was lost with the failover (%s)", session, outcome)
        self._give_up(session)

    def _give_up(self, session: str) -> None:
        lease = self._held.get(session)
        self._tails.forget(session)
        if lease is not None and not lease.is_lost:
            lease.is_lost = True
            lease.warn()


async def _do_nothing() -> None:
    pass


def _find_nothing(_session: str) -> None:
    return None
