"""What a watcher of a session is shown of the sub-agents that work for it.

Invariant: a sub-agent is shown from its first fact, in order, and nothing of it twice. Its deltas
and new facts come as nested events of its caller. The facts before them, which a watcher that comes
late has missed, are read from the sub-agent's own session: a mark says how many there are, and its
place in the caller's session leaves room for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from windlass.agent.shown_reply import ShownReply
from windlass.core.events import (
    AttemptDiscarded,
    AttemptStarted,
    CallFinished,
    CallWaiting,
    Delta,
    Event,
    Fact,
    NestedEvent,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
)
from windlass.core.live_batch import FactMark, count_places
from windlass.core.reply_hold import visible_facts
from windlass.core.secrets.mask import Mask
from windlass.ports import Journal


async def mark_waiting(journal: Journal, waiting: CallWaiting) -> list[NestedEvent]:
    """Return marks of the sub-agent of a call that waits, and of those that wait below it.

    With them a watcher is shown what these have done, although they have no driver now.
    """
    facts = await journal.read(waiting.session)
    if not facts:
        return []
    agent = next((fact.agent for fact in facts if isinstance(fact, RunStarted)), "")
    nest = partial(NestedEvent, waiting.call_id, agent, waiting.session)
    marks = [nest(FactMark(facts[-1].seq))]
    nth = 0
    for below in WaitingCalls(facts).take_all():
        for mark in await mark_waiting(journal, below):
            nth += count_places(mark)
            marks.append(nest(replace(mark, seq=facts[-1].seq, nth=nth)))
    return marks


class WaitingCalls:
    """The calls of the last run whose sub-agents wait, by the facts that were learned."""

    def __init__(self, facts: Iterable[Event] = ()) -> None:
        self._calls: dict[str, CallWaiting] = {}
        for fact in facts:
            self.learn_fact(fact)

    def learn_fact(self, fact: Event) -> None:
        match fact:
            case CallWaiting(call_id):
                self._calls[call_id] = fact
            case CallFinished(call_id):
                self._calls.pop(call_id, None)
            case RunStarted() | RunEnded():
                self._calls.clear()
            case _:
                pass

    def take_all(self) -> Sequence[CallWaiting]:
        """Return those that were learned since the last time."""
        calls = tuple(self._calls.values())
        self._calls.clear()
        return calls


class NestedSessions:
    """The sub-agents of one session that is watched, as far as they were shown."""

    def __init__(self, journal: Journal, mask: Mask) -> None:
        self._journal = journal
        self._mask = mask
        self._sessions: dict[str, _ShownSession] = {}

    async def show(self, item: NestedEvent, *, is_snapshot: bool = False) -> Sequence[NestedEvent]:
        """Return what is to be shown for an event of a sub-agent, in order; maybe nothing.

        `is_snapshot`: it is of the reply so far, of which the watcher may have seen some.
        """
        event = item.event
        session = self._sessions.setdefault(item.session, _ShownSession())
        events: Sequence[Event] = ()
        if isinstance(event, NestedEvent):
            events = await self.show(event, is_snapshot=is_snapshot)
        elif isinstance(event, FactMark):
            events = await self._read_facts(item.session, event.seq)
            session.reply.start_snapshot()
        elif isinstance(event, RunResumed) and event.seq > session.seq + 1:
            events = await self._read_facts(item.session, event.seq)
        elif isinstance(event, Fact):
            events = tuple(session.take_facts((event,)))
        elif is_snapshot:
            events = tuple(filter(None, (session.reply.take_snapshot_piece(event),)))
        else:
            events = tuple(filter(None, (session.take_delta(event),)))
        # The last one has the place of the item; the places before it were left free.
        first = item.nth - len(events) + 1
        return [replace(item, event=one, nth=first + at) for at, one in enumerate(events)]

    async def _read_facts(self, name: str, upto: int) -> tuple[Event, ...]:
        """Read the facts of a sub-agent up to a number, as far as they were not shown."""
        session = self._sessions[name]
        if upto <= session.seq:
            return ()
        facts = [fact for fact in await self._journal.read(name, session.seq) if fact.seq <= upto]
        # As its caller does for live ones: it may know secrets that the sub-agent does not.
        masked = [self._mask.mask_fact(fact) for fact in facts]
        visible = visible_facts(masked, withhold=session.withholds_replies, live=True)
        return tuple(session.take_facts(visible))


class _ShownSession:
    """The session of one sub-agent, as far as it was shown."""

    def __init__(self) -> None:
        self.seq = 0
        self.reply = ShownReply()
        self.withholds_replies = False

    def take_facts(self, facts: Sequence[Event] | Iterator[Event]) -> Iterator[Event]:
        """Yield facts that are shown now, and learn from them."""
        for fact in facts:
            self.seq = fact.seq
            match fact:
                case RunStarted() | RunResumed():
                    if fact.setup is not None:
                        self.withholds_replies = fact.setup.withhold_replies
                case AttemptStarted() | StepProposed() | RunEnded():
                    self.reply.start_attempt()
                case _:
                    pass
            yield fact

    def take_delta(self, delta: Delta) -> Delta | None:
        if isinstance(delta, AttemptDiscarded):
            self.reply.start_attempt()
        return self.reply.take_piece(delta)
