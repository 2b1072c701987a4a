"""What the service knows of sessions that it was asked about: their facts, folded once.

The law: a session is read from the beginning once, and then only what is new. Everything here can
be forgotten at any time, because the journal has it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from windlass.core.events import Fact, RunStarted, SessionImported
from windlass.core.projection.project import apply_event
from windlass.core.projection.view import Projection
from windlass.core.session_summary import SessionSummary, advance_summary
from windlass.core.work_folder import WorkFolder
from windlass.ports import Journal

MaskFacts = Callable[[str, Sequence[Fact]], Iterable[Fact]]
"""Masks what the journal of others may hold: the name of the agent, and facts."""
SESSIONS_MAX = 256
"""Sessions that are remembered; the one that nobody asked for longest is forgotten first."""


@dataclass(slots=True)
class KnownSession:
    """A session as far as it was read."""

    summary: SessionSummary
    projection: Projection
    owner: str = ""
    """The caller of the first run."""
    parent: str = ""
    """The session that it works for, if it belongs to a sub-agent."""
    folder: WorkFolder | None = None
    """The folder of the owner's own that the session works in, if it has one."""
    labels: dict[int, str] = field(default_factory=dict[int, str])
    """By the number of a run: what its costs are counted under, as its context says."""

    @property
    def is_open(self) -> bool:
        """Whether its last run has not ended."""
        return self.summary.outcome is None

    def add_facts(self, facts: list[Fact]) -> None:
        """Advance by the facts that were recorded since."""
        for fact in facts:
            if isinstance(fact, RunStarted) and (label := fact.context.get("label")):
                self.labels[fact.run] = str(label)
            if isinstance(fact, RunStarted):
                self.folder = fact.folder
            if isinstance(fact, RunStarted) and not self.summary.runs:
                self.owner = fact.caller
                self.parent = fact.parent.rpartition("/")[0]
            elif isinstance(fact, SessionImported):
                # Nobody here vouches for what the file says about its caller.
                self.owner = ""
                self.parent = ""
                self.folder = None
            self.summary = advance_summary(self.summary, (fact,))
            self.projection = apply_event(self.projection, fact)


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
        after = known.summary.facts if known is not None else 0
        facts = list(await self._journal.read(session, after))
        # Others may have read it meanwhile: only facts that are new to it are added.
        known = self._known.get(session) or KnownSession(
            SessionSummary(session), Projection(session)
        )
        if facts and facts[0].seq > known.summary.facts + 1:
            # It was forgotten meanwhile, or deleted and begun anew.
            self._known.pop(session, None)
            return await self.read(session)
        new = [fact for fact in facts if fact.seq > known.summary.facts]
        known.add_facts(list(self._mask_facts(known.summary.agent, new)))
        if not known.summary.facts:
            return None
        self._known[session] = known
        self._known.move_to_end(session)
        while len(self._known) > self._sessions_max:
            self._known.popitem(last=False)
        return known

    def forget(self, session: str) -> None:
        """Forget a session that was deleted."""
        self._known.pop(session, None)
