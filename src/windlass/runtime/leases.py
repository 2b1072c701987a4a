"""The lease of a session for one who writes into it without driving it: an answer, a late result.

A driver takes its lease itself and holds it for the whole run (`driver.py`). The law: a lease is
taken before anything is read or written, so that nobody writes into a session that a living driver
has. If a lease is lost all the same, the journal's sequence numbers still refuse the second writer.
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
