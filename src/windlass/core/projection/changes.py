"""Small steps that the other modules of the projection share: entries, runs, charges."""

from collections.abc import Iterable
from functools import reduce

from msgspec.structs import replace

from windlass.core.messages import Charge, Ledger
from windlass.core.projection.entries import NoticeEntry, NoticeFact, Place
from windlass.core.projection.runs import RunView
from windlass.core.projection.streaming import StreamingReply
from windlass.core.projection.view import CallView, Entry, NestedView, Projection, ReplyEntry


def current_run(view: Projection) -> RunView:
    """Return the last run; an empty one for a watcher that came after its beginning."""
    return view.run or RunView()


def run_number(view: Projection) -> int:
    """Return the number of the last run; zero if it is not known."""
    return view.run.number if view.run else 0


def add_entry(view: Projection, *entries: Entry) -> Projection:
    """Return the view with these entries at its end."""
    return replace(view, tail=(*view.tail, *entries))


def add_notice(view: Projection, fact: NoticeFact) -> Projection:
    """Return the view with a fact that it shows unchanged."""
    place = (fact.seq, 0)
    run = run_number(view)
    return add_entry(view, NoticeEntry(fact, seq=fact.seq, at=fact.at, run=run, changed=place))


def settle_tail(view: Projection) -> Projection:
    """Return the view with all entries settled: none of them changes any more.

    Places of changes grow along the settled entries, so that the changes since a place are found
    from the end. An entry behind a reply whose calls changed later counts as changed with it.
    """
    if not view.tail:
        return view
    settled: list[Entry] = []
    last: Place = (0, 0)
    for entry in view.tail:
        last = max(last, entry.changed)
        settled.append(entry if entry.changed == last else replace(entry, changed=last))
    return replace(view, settled=view.settled.append(*settled), tail=())


def add_charges(view: Projection, charges: Iterable[Charge | None]) -> Projection:
    """Return the view with what was spent added to the run and to the session."""
    known = [charge for charge in charges if charge is not None]
    if not known:
        return view
    run = current_run(view)
    run = replace(run, ledger=reduce(Ledger.add, known, run.ledger))
    return replace(view, run=run, ledger=reduce(Ledger.add, known, view.ledger))


def forget_streamed_text(view: Projection) -> Projection:
    """Return the projection without the text so far.

    For a watcher that comes back: a new connection begins with the text so far, all of it.
    """
    if view.reply is None:
        return view
    attempt = view.attempt
    empty = attempt and StreamingReply(attempt.step, attempt.attempt, attempt.model)
    return replace(view, reply=empty)


def stop_agents(call: CallView) -> CallView:
    """Return a call whose sub-agents stream nothing more to this watcher.

    The watcher does not learn how their replies ended. What had streamed is in no record that it
    reads, so it would look unfinished forever.
    """
    if not call.agents:
        return call
    return replace(call, agents=tuple(_stop_streaming(agent) for agent in call.agents))


def _stop_streaming(agent: NestedView) -> NestedView:
    view = forget_streamed_text(agent.projection)
    tail = tuple(
        replace(entry, calls=tuple(map(stop_agents, entry.calls)))
        if isinstance(entry, ReplyEntry)
        else entry
        for entry in view.tail
    )
    return replace(agent, projection=replace(view, tail=tail))
