"""The lease of a session for one who writes into it without driving it: a late result, a cancel.

A driver takes its lease itself and holds it for the whole run (`driver.py`). The law: a lease is
taken before anything is read or written, so that nobody writes into a session that a living driver
has. If a lease is lost all the same, the journal's sequence numbers still refuse the second writer.
"""

import asyncio
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from windlass.core.errors import WindlassError
from windlass.core.events import (
    CallAnswered,
    CallLate,
    MailRefused,
    RunResumed,
    RunStarted,
    SteeringGiven,
)
from windlass.logs import get_logger
from windlass.ports import ConfirmableLease, Journal, Lease, SessionLeases

_log = get_logger(__name__)
WRITER_WAIT_S = 0.25
"""How long to wait for one who writes into a session without driving it."""
WRITER_POLL_S = 0.01
_WRITTEN_WITHOUT_DRIVING = (SteeringGiven, CallAnswered, CallLate, MailRefused)


async def hold_session(journal: Journal, session: str) -> AbstractContextManager[None]:
    """Take the lease of a session; it is released when the returned context is left.

    Raises SessionBusy if a living driver has it. A journal without leases gives an empty context.
    """
    if not isinstance(journal, SessionLeases):
        return nullcontext()
    return _release_after(await journal.lease(session))


@contextmanager
def _release_after(lease: Lease) -> Generator[None]:
    try:
        yield
    finally:
        lease.release()


async def wait_for_writer(journal: Journal, session: str, last_seq: int) -> bool:
    """Wait until a session that was found taken is free. Returns whether no driver had it.

    A message, an answer or a late result takes the lease for one append. A driver keeps it for
    longer than WRITER_WAIT_S, or has written facts of its own after fact `last_seq`.
    """
    if not isinstance(journal, SessionLeases):
        return False
    for _ in range(round(WRITER_WAIT_S / WRITER_POLL_S)):
        await asyncio.sleep(WRITER_POLL_S)
        if not await journal.is_leased(session):
            facts = await journal.read(session, last_seq)
            return all(isinstance(fact, _WRITTEN_WITHOUT_DRIVING) for fact in facts)
    return False


async def is_still_driving(
    journal: Journal, lease: Lease | None, session: str, last_seq: int
) -> bool:
    """Return whether no other driver has the session, or opened it after fact `last_seq`.

    A journal that does not answer proves nothing: then the answer is False.
    """
    try:
        if isinstance(lease, ConfirmableLease) and not await lease.confirm():
            return False
        # A lease that was lost and taken again says nothing about the time between.
        facts = await journal.read(session, last_seq)
    except WindlassError as error:
        _log.warning("session %s: it is not known who drives it: %s", session, error)
        return False
    return not any(isinstance(fact, RunStarted | RunResumed) for fact in facts)
