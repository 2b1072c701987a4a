"""The lease of a session, the state that it is found in, and who may write into it.

Invariant: a lease is taken before anything is read or written, so that no process writes into a
session that a living driver has. A driver holds its lease for the whole run (`SessionHold`). A run
that is released without an end keeps its lease until every call that had started is over: a thread
that still works could act after the next driver had found that the call was not done. If a lease is
lost anyway, the journal's sequence numbers still refuse the second writer.

Facts decide which session works for which, and names do not. A sub-agent's session is named after
its call, SESSION/CALL, but a caller may give any session such a name: a slash proves nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from typing import Any

from msgspec.structs import replace

from windlass.core.errors import JournalCorrupt, NothingToDo, WindlassError
from windlass.core.events import (
    CallAnswered,
    CallLate,
    Fact,
    MailRefused,
    PromptWithdrawn,
    RunEnded,
    RunQueued,
    RunResumed,
    RunStarted,
    SessionProgress,
    SteeringGiven,
)
from windlass.core.fold.phases import find_fruitless
from windlass.core.fold.run import apply_fact, fold
from windlass.core.secrets.mask import Mask
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import (
    Journal,
    Lease,
    RecoverableTools,
    Tools,
)
from windlass.runtime.recorder import Recorder
from windlass.runtime.shared_limits import settle_budgets

DEPTH_MAX = 100
"""How many sessions above a sub-agent are looked up; no tree is as deep."""


async def find_root(journal: Journal, state: State) -> State:
    """Return the session at the top of those that a session works for; itself if for none.

    Raises NothingToDo if sessions are nested too deeply.
    """
    for _ in range(DEPTH_MAX):
        parent = state.parent
        above = fold(parent, await journal.read(parent)) if parent else None
        # A sub-agent whose caller has ended is a root itself: no open call leads to it.
        if above is None or not above.seq or not _leads_to(above, state):
            return state
        state = above
    raise NothingToDo(f"session {state.session} is nested too deeply")


async def works_for(journal: Journal, session: str, caller: str) -> bool:
    """Return whether a session works for another one, directly or through others."""
    for _ in range(DEPTH_MAX):
        session = fold(session, await journal.read(session)).parent
        if not session or session == caller:
            return bool(session)
    return False


def _leads_to(caller: State, session: State) -> bool:
    """Whether an open call of a run leads to the session of a sub-agent."""
    started = [call for call in caller.step_calls if call.began and call.phase != "closed"]
    return any(
        session.session == name or session.session.startswith(f"{name}.")
        for name in (caller.child_session_name(call.id) for call in started)
    )


_log = get_logger(__name__)
WRITER_WAIT_S = 0.25
"""How long to wait for a process that writes into a session without driving it."""
WRITER_POLL_S = 0.01
CACHED_SESSIONS_MAX = 64
_WRITTEN_WITHOUT_DRIVING = (
    SteeringGiven,
    CallAnswered,
    CallLate,
    MailRefused,
    PromptWithdrawn,
    RunQueued,
)
_ALLOWED_PHASES = ("cleared", "started", "waiting", "interrupted")
"""The phases of calls that would run, or run again, because of what is recorded."""
ReadProgress = Callable[[State], Awaitable[tuple[SessionProgress, ...]]]
"""Returns how far the sessions have come that work for open calls of a run."""


class StateCache:
    """The last states of the sessions that an agent read or drove; the oldest are dropped first.

    Invariant: the journal decides. A cached state counts only if the journal still continues from
    its last fact; otherwise the session is read from the start. Nothing is read of a session that
    got its random name a moment ago: if it is there after all, its numbers refuse the run. What
    others have written into the journal is masked before it is folded, so that the model never sees
    a secret of the agent in it.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._states: OrderedDict[str, tuple[State, Fact | None]] = OrderedDict()

    def remember(self, recorder: Recorder) -> None:
        """Keep the state of a recorder's session, if it is the one on disk."""
        session = recorder.session
        state = recorder.state
        last_fact = recorder.last_fact
        if last_fact is None or last_fact.seq != state.seq:
            self._states.pop(session, None)
            return
        self.keep(state, last_fact)

    async def read_state(self, journal: Journal, session: str) -> State:
        """Return the state of a session as the journal has it now. Raises JournalFailed."""
        cached = self._states.get(session)
        if cached is not None:
            state, last_fact = cached
            if last_fact is None:
                del self._states[session]
                return state
            # The last fact is read again: it shows that this is still the same session.
            facts = await journal.read(session, state.seq - 1)
            if facts and facts[0] == last_fact:
                return self._add_facts(state, facts[1:])
        return self._add_facts(State(session), await journal.read(session))

    def _add_facts(self, state: State, facts: Sequence[Fact]) -> State:
        """Fold facts as they were read, and keep the state for the next reader."""
        if facts:
            state = reduce(apply_fact, self._mask.mask_foreign(facts), state)
            self.keep(state, facts[-1])
        return state

    def keep(self, state: State, last_fact: Fact | None) -> None:
        """Keep a state with its last fact as it is in the journal.

        That of a session that cannot be there yet has no fact, and is kept for the next reader.
        """
        self._states[state.session] = (state, last_fact)
        self._states.move_to_end(state.session)
        if len(self._states) > CACHED_SESSIONS_MAX:
            self._states.popitem(last=False)


class SessionHold:
    """The lease of one driver, from before the session is read until nothing of the run is left."""

    def __init__(self, journal: Journal, recorder: Recorder, state_cache: StateCache) -> None:
        self._journal = journal
        self._recorder = recorder
        self._state_cache = state_cache
        self._lease: Lease | None = None
        self._is_over = False
        """Whether the driver is done with the session: a lease that comes later is released."""
        self.doubted: tuple[str, ...] = ()
        """The calls that are recorded as allowed, and that no signature proves to be."""
        self.freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once another driver can have the session."""
        self.on_lost: Callable[[], None] = _ignore
        """Called if the lease is lost, or could not be renewed in time."""

    async def lease_and_read(self) -> State:
        """Take the lease of the session, then read it."""
        journal = self._journal
        session = self._recorder.session
        self._lease = await journal.lease(session)
        if self._is_over:
            # The driver gave up while the journal was still granting the lease.
            self._lease.release()
        self._lease.watch(lambda: self.on_lost())  # noqa: PLW0108 - the driver sets it later
        state = await self._state_cache.read_state(journal, session)
        if state.is_active or state.grants:
            # What a person allowed for always is used by later runs as well.
            await _refuse_forgeries(journal, session)
            state = await self._doubt_unproven(state)
        if state.setup is not None and state.setup.budgets:
            ended = state
            if state.is_queued:
                facts = await self._journal.read(state.session)
                ends = [fact.seq for fact in facts if isinstance(fact, RunEnded)]
                ended = fold(state.session, facts[: ends[-1]] if ends else ())
            if not ended.is_active:
                await settle_budgets(self._journal, ended)
        return state

    async def _doubt_unproven(self, state: State) -> State:
        """Note which calls were allowed without proof, and return the state without such grants."""
        proven = await self._journal.find_proven(state.session)
        if proven is None:
            return state
        self.doubted = tuple(
            call.id
            for call in state.step_calls
            if call.phase in _ALLOWED_PHASES and not (call.answered and call.id in proven.calls)
        )
        return replace(state, grants=tuple(one for one in state.grants if one in proven.grants))

    @property
    def epoch(self) -> int:
        """The fencing token of the lease; 0 if it has none of its own."""
        return 0 if self._lease is None else self._lease.epoch

    def is_certain(self) -> bool:
        """Whether no other driver can have the session, as far as this process knows by itself."""
        return self._lease is not None and self._lease.is_certain()

    async def is_still_driving(self) -> bool:
        """Return whether this driver has the session: no other one can have taken it over."""
        recorder = self._recorder
        if self._is_over or recorder.is_closed:
            return False
        seq = recorder.state.seq
        return await is_still_driving(self._journal, self._lease, recorder.session, seq)

    def release(self, leftovers: Iterable["asyncio.Future[Any]"] = ()) -> None:
        """Free the session once the leftovers are over, even if its lease is granted only later."""
        if self._is_over:
            return
        self._is_over = True
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


def _ignore() -> None:
    pass


async def _refuse_forgeries(journal: Journal, session: str) -> None:
    """Raise JournalCorrupt if a program without the user's key has changed the session."""
    problems = await journal.find_forgeries(session)
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
    resumed: RunResumed,
    state: State,
    tools: Tools,
    read_progress: ReadProgress,
    doubted: tuple[str, ...] = (),
) -> RunResumed:
    """End what a dead driver left running, and return the fact that resumes the run.

    If that driver got nowhere in the session itself, the sessions that work for the run say whether
    it got anywhere at all. The `doubted` calls are judged again.
    """
    resumed = replace(resumed, doubted=doubted)
    if isinstance(tools, RecoverableTools):
        resumed = replace(resumed, reaped=tuple(await asyncio.to_thread(tools.recover)))
    if state.run is not None and find_fruitless(state, state.run, None):
        resumed = replace(resumed, below=await read_progress(state))
    return resumed


async def hold_session(journal: Journal, session: str) -> AbstractContextManager[None]:
    """Take the lease of a session; it is released when the returned context is left.

    Raises SessionBusy if a living driver has it.
    """
    return release_after(await journal.visit(session))


@contextmanager
def release_after(lease: Lease) -> Generator[None]:
    """Release a lease when the context is left."""
    try:
        yield
    finally:
        lease.release()


async def wait_for_writer(journal: Journal, session: str, last_seq: int) -> bool:
    """Wait until a session that was found taken is free. Returns whether no driver had it.

    A message, an answer or a late result takes the lease for one append. A driver keeps it for
    longer than WRITER_WAIT_S, or has written facts of its own after fact `last_seq`.
    """
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
        if lease is not None and not await lease.confirm():
            return False
        # A lease that was lost and taken again says nothing about the time between.
        facts = await journal.read(session, last_seq)
    except WindlassError as error:
        _log.warning("session %s: it is not known who drives it: %s", session, error)
        return False
    return not any(isinstance(fact, RunStarted | RunResumed) for fact in facts)
