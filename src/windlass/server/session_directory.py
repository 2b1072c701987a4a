"""Which sessions a caller may see, and whose they are.

Invariant: a session of another owner does not exist for a caller: the error is the same as for a
name that no session has. The session of a sub-agent belongs to the owner of the run that it works
for. A grant opens a session if it covers every agent that has worked in it: the last one would open
the runs of those before it. Only this module makes an `OwnedSession`, and the service reads,
follows and changes a session through one alone, so that no protocol can check one name and use
another.

A session is read from the beginning once, and then only what is new. Everything that is kept here
can be forgotten at any time, because the journal has it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from typing import final

from msgspec.structs import replace

from windlass.core.disclosure import AgentPart, show_event
from windlass.core.errors import JournalCorrupt
from windlass.core.events import Fact, RunQueued, RunStarted, SessionImported
from windlass.core.fold.run import apply_fact, make_title
from windlass.core.projection.project import apply_event
from windlass.core.projection.view import Projection
from windlass.core.session_summary import TRIAL_PREFIX, SessionQuery, SessionSummary, row_of
from windlass.core.setup import WorkFolder
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Journal
from windlass.server.access import ALL_AGENTS, Caller, Role, full_session_name
from windlass.server.errors import ApiError

MaskFacts = Callable[[str, Sequence[Fact]], Iterable[Fact]]
"""Masks what the journal of others may hold: the name of the agent, and facts."""
_log = get_logger(__name__)
DAMAGED_MAX = 1_000
"""Damaged sessions that are named."""
SESSIONS_MAX = 256
"""Sessions that are remembered; the least recently used one is forgotten first."""


@dataclass(slots=True)
class KnownSession:
    """A session as far as it was read."""

    state: State
    """What its facts add up to, as they are on record."""
    projection: Projection
    """Of the facts as an admin sees them."""
    callers_view: Projection
    """Of the facts as callers see them."""
    last: Fact | None = None
    """The last fact, as it is on record."""
    title: str = ""
    """As it may be shown."""
    owner: str = ""
    """The caller of the first run."""
    parent: str = ""
    """The session that it works for, if it belongs to a sub-agent."""
    folder: WorkFolder | None = None
    """The folder of the owner's own that the session works in, if it has one."""
    labels: dict[int, str] = field(default_factory=dict[int, str])
    """By the number of a run: what its costs are counted under, as its context says."""
    agents: set[str] = field(default_factory=set[str])
    """Those of all runs."""

    @property
    def summary(self) -> SessionSummary:
        """What a list shows about it."""
        return replace(row_of(self.state), title=self.title)

    @property
    def is_open(self) -> bool:
        """Whether its last run has not ended."""
        return self.summary.outcome is None

    def view_for(self, caller: Caller) -> Projection:
        """Return the session as a caller sees it."""
        return self.projection if caller.sees_agents else self.callers_view

    def add_facts(
        self, facts: Sequence[Fact], masked: Iterable[Fact], parts: frozenset[AgentPart]
    ) -> None:
        """Advance by the facts that were recorded since; `masked` are the same as they are shown.

        `parts`: what callers see of an agent. Raises IllegalFact if they are not a session.
        """
        for fact, shown in zip(facts, masked, strict=True):
            self.state = apply_fact(self.state, fact)
            self.last = fact
            self.projection = apply_event(self.projection, shown)
            self.callers_view = apply_event(self.callers_view, show_event(shown, parts))
            if isinstance(shown, RunQueued):
                self._note_caller(shown)
            elif isinstance(shown, RunStarted):
                self._note_caller(shown)
                self.folder = shown.folder
                self.title = self.title or make_title(shown.prompt)
                if self.state.runs == 1:
                    self.parent = shown.parent.rpartition("/")[0]
            elif isinstance(shown, SessionImported):
                # The file does not prove what it says about its caller.
                self.owner = ""
                self.parent = ""
                self.folder = None

    def _note_caller(self, accepted: RunQueued | RunStarted) -> None:
        if label := accepted.context.get("label"):
            self.labels[accepted.run] = str(label)
        self.agents.add(accepted.agent)
        if self.state.runs == 1:
            self.owner = accepted.caller


def _make_unread(session: str) -> KnownSession:
    return KnownSession(State(session), Projection(session), Projection(session))


class SessionCache:
    """The sessions that were asked for lately."""

    def __init__(
        self,
        journal: Journal,
        mask_facts: MaskFacts,
        parts: frozenset[AgentPart],
        sessions_max: int = SESSIONS_MAX,
    ) -> None:
        """Read from a journal. `parts`: what callers see of an agent."""
        self._journal = journal
        self._mask_facts = mask_facts
        self.parts = parts
        self._sessions_max = sessions_max
        self._known: OrderedDict[str, KnownSession] = OrderedDict()
        self.damaged: dict[str, str] = {}
        """The sessions whose records contradict themselves, as far as they were read, and why."""

    async def read(self, session: str) -> KnownSession | None:
        """Return a session as it is on record now; None if there is no such session.

        Raises JournalCorrupt if its records contradict themselves, and notes it.
        """
        try:
            known = await self._read(session)
        except JournalCorrupt as error:
            if session not in self.damaged:
                _log.error("session %s is damaged and left out: %s", session, error)
            if len(self.damaged) < DAMAGED_MAX:
                self.damaged[session] = str(error)
            raise
        self.damaged.pop(session, None)
        return known

    async def read_intact(self, session: str) -> KnownSession | None:
        """Return a session for a list: None also if it is damaged, which must not hide others."""
        with suppress(JournalCorrupt):
            return await self.read(session)
        return None

    async def _read(self, session: str) -> KnownSession | None:
        known = self._known.get(session)
        last = known.last if known is not None else None
        # With the last fact that is known: if it is not there, the session was deleted.
        facts = list(await self._journal.read(session, last.seq - 1 if last is not None else 0))
        if last is not None and (not facts or facts[0] != last):
            self.forget(session)
            return await self._read(session)
        # Others may have read it meanwhile: only facts that are new to it are added.
        known = self._known.get(session) or _make_unread(session)
        if facts and facts[0].seq > known.state.seq + 1:
            # It was forgotten in the meantime.
            self.forget(session)
            return await self._read(session)
        new = [fact for fact in facts if fact.seq > known.state.seq]
        known.add_facts(new, self._mask_facts(known.state.agent, new), self.parts)
        if not known.state.seq:
            return None
        self._known[session] = known
        self._known.move_to_end(session)
        while len(self._known) > self._sessions_max:
            self._known.popitem(last=False)
        return known

    def forget(self, session: str) -> None:
        """Forget a session that was deleted."""
        self._known.pop(session, None)


SESSION_CHARS_MAX = 200
PARENTS_MAX = 100
"""How many sessions above a sub-agent's are looked up."""


class _OwnerSeal:
    """Proof that the directory has checked whose a session is."""


_SEAL = _OwnerSeal()


@final
@dataclass(frozen=True, slots=True)
class OwnedSession:
    """A session that a caller may see, and on whose behalf it is used."""

    caller: Caller
    owner: str
    """The caller of the run at the top. An admin may see the sessions of other owners, and people
    those that a grant covers."""
    parent: str
    """The session that it works for, if it belongs to a sub-agent."""
    summary: SessionSummary
    """What was on record when the session was found."""
    view: Projection
    """The same, as the caller sees it."""
    labels: Mapping[int, str]
    """By the number of a run: what its costs are counted under."""
    folder: WorkFolder | None
    """The folder of the owner's own that the session works in, if it has one."""
    role: Role | None
    """What the session was found for; None if only its owner, or an admin, may use it so."""
    seal: InitVar[_OwnerSeal]

    @property
    def name(self) -> str:
        """The full name, by which the journal knows the session."""
        return self.summary.session


class SessionDirectory:
    """Finds sessions on behalf of callers."""

    def __init__(self, sessions: SessionCache) -> None:
        self._sessions = sessions

    async def find(self, caller: Caller, session: str, role: Role | None = None) -> OwnedSession:
        """Return a session, by its full name or the caller's short one.

        `role` says what it is used for. A session of another owner is found only if a grant of the
        caller covers that use. Raises ApiError 404 if there is none that the caller may use so.
        """
        for name in dict.fromkeys(_possible_names(caller, session)):
            known = await self._sessions.read(name)
            if known is not None:
                found = await self._open(caller, known, role)
                if found is not None:
                    return found
        raise no_such_session(session)

    async def find_listed(
        self, caller: Caller, summary: SessionSummary, role: Role | None = None
    ) -> OwnedSession | None:
        """Return a session of a list; None if it is gone, or the caller has no name for it."""
        with suppress(ApiError):
            found = await self.find(caller, summary.session, role)
            if found.name == summary.session:
                return found
        return None

    async def may_use_listed(self, caller: Caller, summary: SessionSummary, role: Role) -> bool:
        """Return whether the caller may use a session of a list so, by all agents that it had."""
        if not caller.may_use(role, summary.caller, summary.agent):
            return False
        # The row names the last agent. Another one is possible only before it.
        if summary.runs <= 1 or caller.may_use(role, summary.caller, ALL_AGENTS):
            return True
        with suppress(JournalCorrupt):
            return await self.find_listed(caller, summary, role) is not None
        return False

    async def find_lists(
        self, caller: Caller, role: Role, query: SessionQuery
    ) -> list[SessionQuery]:
        """Return the lists that have all sessions that the caller may use so.

        Those of granted agents may have others too: see `may_use_listed`.
        """
        granted = caller.list_granted_agents(role)
        if caller.is_admin or ALL_AGENTS in granted:
            return [query]
        if query.parent:
            # A grant is for the agent of the run at the top, whatever works for it below.
            with suppress(ApiError):
                above = await self.find(caller, query.parent, role)
                return [replace(query, parent=above.name, caller=above.owner)]
            return []
        agents = sorted(granted if query.agent is None else granted & {query.agent})
        tops = [replace(query, parent="", agent=agent) for agent in agents]
        return [replace(query, caller=caller.name), *tops]

    async def find_startable(self, caller: Caller, name: str) -> OwnedSession | None:
        """Return the session that a new run continues; None if the run begins it.

        `name` is the full name. Raises ApiError 404 if the session is not the caller's.
        """
        known = await self._sessions.read(name)
        if known is None:
            return None
        found = await self._open(caller, known, None)
        if found is None:
            raise no_such_session(name)
        return found

    async def read_again(self, session: OwnedSession) -> OwnedSession:
        """Return a session as it is on record now. Raises ApiError 404 if it was deleted."""
        known = await self._sessions.read(session.name)
        found = None if known is None else await self._open(session.caller, known, session.role)
        if found is None:
            raise no_such_session(session.name)
        return found

    async def find_root(self, session: OwnedSession) -> OwnedSession:
        """Return the session at the top of those that a session works for; itself if for none.

        Raises ApiError 404 if the session was deleted.
        """
        known = await self._sessions.read(session.name)
        if known is None:
            raise no_such_session(session.name)
        top = await self._find_top(known)
        return _make_handle(session.caller, top, session.owner, session.role)

    async def _open(
        self, caller: Caller, known: KnownSession, role: Role | None
    ) -> OwnedSession | None:
        """Return the handle of a session; None if the caller may not use it so."""
        top = await self._find_top(known)
        if not caller.may_use(role, top.owner, top.summary.agent, *top.agents):
            return None
        return _make_handle(caller, known, top.owner, role)

    async def _find_top(self, known: KnownSession) -> KnownSession:
        for _ in range(PARENTS_MAX):
            above = await self._sessions.read(known.parent) if known.parent else None
            if above is None:
                return known
            known = above
        return known


def _make_handle(
    caller: Caller, known: KnownSession, owner: str, role: Role | None
) -> OwnedSession:
    return OwnedSession(
        caller=caller,
        owner=owner,
        parent=known.parent,
        summary=known.summary,
        view=known.view_for(caller),
        labels=dict(known.labels),
        folder=known.folder,
        role=role,
        seal=_SEAL,
    )


def _possible_names(caller: Caller, session: str) -> Iterable[str]:
    if caller.is_admin or caller.grants:
        yield session
    yield full_session_name(caller.name, session)
    if session.startswith(TRIAL_PREFIX):
        # A program runs trials for a caller under names without the caller's own part. No request
        # can begin a session of such a name, so whom it names as its owner can be believed.
        yield session


def check_session_name(name: str) -> str:
    """Return the name of a session that a request may begin. Raises ApiError 422."""
    if len(name) > SESSION_CHARS_MAX or not name.isprintable() or "/" in name:
        raise ApiError(
            422,
            "invalid_session_name",
            "The name of a session has at most "
            f"{SESSION_CHARS_MAX} visible characters, and no slash.",
            "Choose another name, or leave it out.",
        )
    return name


def no_such_session(session: str) -> ApiError:
    return ApiError(
        404,
        "session_not_found",
        f"There is no session {session!r} of yours.",
        "GET /runs lists your sessions.",
    )
