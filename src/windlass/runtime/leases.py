"""Who may drive a session: one at a time, wherever they are.

A lease is taken before anything is read or ended, so that nobody takes a run over from a driver
that is alive. The journal's sequence numbers stay the last fence.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from windlass.ports import Journal, Lease, SessionLeases


async def hold_session(journal: Journal, session: str) -> AbstractContextManager[None]:
    """Take a session, to hold it for a while; raises SessionBusy if somebody alive drives it."""
    if not isinstance(journal, SessionLeases):
        return nullcontext()
    return _release_after(await journal.lease(session))


@contextmanager
def _release_after(lease: Lease) -> Generator[None]:
    try:
        yield
    finally:
        lease.release()
