"""What is true of agents that work for an agent."""

from decimal import Decimal

from proof.simulate.broken import require
from proof.simulate.play import PlayedSession
from windlass.core.events import CallFinished, CallStarted, RunEnded, RunStarted
from windlass.core.fold.run import fold


def check_helpers(played: PlayedSession) -> None:
    keys = {fact.call_id: fact.key for fact in played.facts if isinstance(fact, CallStarted)}
    finished = {
        keys[fact.call_id]: fact
        for fact in played.facts
        if isinstance(fact, CallFinished) and fact.call_id in keys
    }
    for session, facts in played.inner.items():
        start, ends = facts[0], [fact for fact in facts if isinstance(fact, RunEnded)]
        require(isinstance(start, RunStarted) and start.parent == session, f"M1: {start}")
        require(len(ends) <= 1, f"M1: {session} was worked on again after its end")
        # Whoever was stopped has stopped its helpers; what died could not.
        require(ends or played.has_crashed, f"C6: {session} is left open")
        end = finished.get(session)
        if end is not None:
            require(ends, f"M1: {session} is done for its caller, and open")
            state = fold(session, facts)
            paid = sum((one.usd or Decimal(0) for one in end.charges), Decimal(0))
            owed = state.ledger.known_usd
            require(paid == owed, f"M1: {session} cost {owed}, and {paid} is on the books")
            purposes = {charge.purpose for charge in end.charges}
            require(purposes <= {"subagent"}, f"S12: {purposes}")
