"""A driver's hold on its session: the lease, from before it is read until nothing of it is left.

The law: no living driver may have a session that another one reads. A run that is let go without an
end keeps its lease until every call that had started is over. Otherwise a thread that still works
could act after the next driver had found that the call was not done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from windlass.core.errors import JournalCorrupt
from windlass.core.events import Fact, RunResumed, SessionProgress
from windlass.core.fold.deaths import find_fruitless
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import (
    Journal,
    Lease,
    ProvingJournal,
    RecoverableTools,
    SessionLeases,
    SignedJournal,
    Tools,
)
from windlass.runtime.leases import is_still_driving
from windlass.runtime.recorder import Recorder
from windlass.runtime.shared_budgets import settle_budgets
from windlass.runtime.state_cache import StateCache

_log = get_logger(__name__)
_ALLOWED_PHASES = ("cleared", "started", "waiting", "interrupted")
"""The phases of calls that would run, or run again, because of what is recorded."""
ReadProgress = Callable[[State], Awaitable[tuple[SessionProgress, ...]]]
"""Returns how far the sessions have come that work for open calls of a run."""


class SessionHold:
    """The lease of one driver."""

    def __init__(self, journal: Journal, recorder: Recorder, state_cache: StateCache) -> None:
        self._journal = journal
        self._recorder = recorder
        self._state_cache = state_cache
        self._lease: Lease | None = None
        self._has_let_go = False
        """Whether the driver is done with the session: a lease that comes later is released."""
        self.doubted: tuple[str, ...] = ()
        """The calls that are recorded as allowed, and that no signature proves to be."""
        self.freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once another driver can have the session."""

    async def lease_and_read(self) -> State:
        """Take the lease of the session, then read it."""
        journal = self._journal
        session = self._recorder.session
        if isinstance(journal, SessionLeases):
            self._lease = await journal.lease(session)
            if self._has_let_go:
                # The driver gave up while the journal was still granting the lease.
                self._lease.release()
        state = await self._state_cache.read_state(journal, session)
        if state.is_active or state.grants:
            # What a person allowed for always is used by later runs as well.
            await _refuse_forgeries(journal, session)
            state = await self._doubt_unproven(state)
        if state.setup is not None and state.setup.budgets and not state.is_active:
            # The process of the last run may have died before it gave back what it had drawn.
            await settle_budgets(journal, state)
        return state

    async def _doubt_unproven(self, state: State) -> State:
        """Note which calls were allowed without proof, and return the state without such grants."""
        journal = self._journal
        proven = None
        if isinstance(journal, ProvingJournal):
            proven = await journal.find_proven(state.session)
        if proven is None:
            return state
        self.doubted = tuple(
            call.id
            for call in state.step_calls
            if call.phase in _ALLOWED_PHASES and not (call.answered and call.id in proven.calls)
        )
        return replace(state, grants=tuple(one for one in state.grants if one in proven.grants))

    async def is_still_driving(self) -> bool:
        """Return whether this driver has the session: nobody can have taken it over."""
        recorder = self._recorder
        if self._has_let_go or recorder.is_closed:
            return False
        seq = recorder.state.seq
        return await is_still_driving(self._journal, self._lease, recorder.session, seq)

    def let_go(self, leftovers: Iterable["asyncio.Future[Any]"] = ()) -> None:
        """Free the session once the leftovers are over, also if its lease is granted only later."""
        if self._has_let_go:
            return
        self._has_let_go = True
        running = {work for work in leftovers if not work.done()}
        if not running:
            self._free()
            return
        _log.warning(
            "session %s was released, but %s of its calls still run: no other driver can have it "
            "until they are over, or this process ends",
            self._recorder.session,
            len(running),
        )
        watch = asyncio.ensure_future(_wait_for_all(leftovers))
        watch.add_done_callback(lambda _: self._free())

    def _free(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._state_cache.remember(self._recorder)
        if not self.freed.done():
            self.freed.set_result(None)


async def _refuse_forgeries(journal: Journal, session: str) -> None:
    """Raise JournalCorrupt if somebody without the user's key has changed the session."""
    problems = await journal.find_forgeries(session) if isinstance(journal, SignedJournal) else ()
    if problems:
        raise JournalCorrupt(
            f"session {session!r} will not be resumed: {problems[0]}. If you moved the journal "
            "here or restored it from a backup, run `windlass sessions verify --accept`."
        )


async def _wait_for_all(works: Iterable["asyncio.Future[Any]"]) -> None:
    """Wait until all are over, also those that the last ones of them left running."""
    while running := {work for work in works if not work.done()}:
        await asyncio.wait(running)
        await asyncio.sleep(0)


async def prepare_take_over(
    opening: Sequence[Fact],
    state: State,
    tools: Tools,
    read_progress: ReadProgress,
    doubted: tuple[str, ...] = (),
) -> Sequence[Fact]:
    """End what a dead driver left running, and return the facts that open the run.

    If that driver got nowhere in the session itself, the sessions that work for the run say whether
    it got anywhere at all. The `doubted` calls are judged again.
    """
    resumed = opening[0]
    if not isinstance(resumed, RunResumed):
        return opening
    resumed = replace(resumed, doubted=doubted)
    if isinstance(tools, RecoverableTools):
        resumed = replace(resumed, reaped=tuple(await asyncio.to_thread(tools.recover)))
    if state.run is not None and find_fruitless(state, state.run, None):
        resumed = replace(resumed, below=await read_progress(state))
    return (resumed, *opening[1:])
