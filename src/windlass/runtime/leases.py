"""The lease of a session: only one driver at a time, in this process or another.

The law: a lease is taken before anything is read or written, so that no run is taken over from a
driver that is alive. If a lease is lost all the same, the journal's sequence numbers still refuse
the second writer.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from windlass.ports import Journal, Lease, SessionLeases


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
