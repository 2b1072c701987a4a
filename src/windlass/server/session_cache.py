"""What the service knows of sessions that it was asked about: their facts, folded once.

Invariant: a session is read from the beginning once, and then only what is new. Everything here can
be forgotten at any time, because the journal has it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from windlass.core.events import Fact, RunStarted, SessionImported
from windlass.core.fold.run import apply_fact, make_title
from windlass.core.projection.project import apply_event
from windlass.core.projection.view import Projection
from windlass.core.session_summary import SessionSummary, row_of
from windlass.core.state import State
from windlass.core.work_folder import WorkFolder
from windlass.ports import Journal

MaskFacts = Callable[[str, Sequence[Fact]], Iterable[Fact]]
"""Masks what the journal of others may hold: the name of the agent, and facts."""
SESSIONS_MAX = 256
"""Sessions that are remembered; the least recently used one is forgotten first."""


@dataclass(slots=True)
class KnownSession:
    """A session as far as it was read."""

    state: State
    """What its facts add up to, as they are on record."""
    projection: Projection
    """Of the facts as they may be shown."""
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

    @property
    def summary(self) -> SessionSummary:
        """What a list shows about it."""
        return replace(row_of(self.state), title=self.title)

    @property
    def is_open(self) -> bool:
        """Whether its last run has not ended."""
        return self.summary.outcome is None

    def add_facts(self, facts: Sequence[Fact], masked: Iterable[Fact]) -> None:
        """Advance by the facts that were recorded since; `masked` are the same as they are shown.

        Raises IllegalFact if they are not a session.
        """
        for fact, shown in zip(facts, masked, strict=True):
            self.state = apply_fact(self.state, fact)
            self.projection = apply_event(self.projection, shown)
            if isinstance(shown, RunStarted):
                self._note_run(shown)
            elif isinstance(shown, SessionImported):
                # The file does not prove what it says about its caller.
                self.owner = ""
                self.parent = ""
                self.folder = None

    def _note_run(self, started: RunStarted) -> None:
        if label := started.context.get("label"):
            self.labels[started.run] = str(label)
        self.folder = started.folder
        self.title = self.title or make_title(started.prompt)
        if self.state.runs == 1:
            self.owner = started.caller
            self.parent = started.parent.rpartition("/")[0]


class SessionCache:
    """The sessions that were asked for lately."""

    def __init__(
        self, journal: Journal, mask_facts: MaskFacts, sessions_max: int = SESSIONS_MAX
    ) -> None:
        self._journal = journal
        self._mask_facts = mask_facts
        self._sessions_max = sessions_max
        self._known: OrderedDict[str, KnownSession] = OrderedDict()

    async def read(self, session: str) -> KnownSession | None:
        """Return a session as it is on record now; None if there is no such session."""
        known = self._known.get(session)
        after = known.state.seq if known is not None else 0
        facts = list(await self._journal.read(session, after))
        # Others may have read it meanwhile: only facts that are new to it are added.
        known = self._known.get(session) or KnownSession(State(session), Projection(session))
        if facts and facts[0].seq > known.state.seq + 1:
            # It was forgotten meanwhile, or deleted and begun again.
            self._known.pop(session, None)
            return await self.read(session)
        new = [fact for fact in facts if fact.seq > known.state.seq]
        known.add_facts(new, self._mask_facts(known.state.agent, new))
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
