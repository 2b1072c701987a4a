"""Rules for undoing: only what happened, the last one first, and nothing twice."""

from collections import Counter
from collections.abc import Sequence

from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from windlass.core.decide.undoing import UNDONE_KINDS
from windlass.core.events import CallFinished, CallStarted, Fact, RunStarted, UndoPlanned
from windlass.core.fold.run import fold


def check_undoing(played: PlayedSession) -> None:
    """J2, T2: what people undid after the last run."""
    if not played.undo_facts:
        return
    facts = [*played.facts, *played.undo_facts]
    fold(played.plan.session, facts)
    started: dict[str, CallStarted] = {}
    for fact in facts:
        if isinstance(fact, CallStarted):
            started.setdefault(fact.call_id, fact)
    done = Counter(effect.key for effect in played.outside.undone)
    for key, times in done.items():
        require(times == 1, f"J2: {key} was undone {times} times")
    targets = Counter(effect.tool for effect in played.outside.undone)
    for call_id, times in targets.items():
        require(times == 1, f"J2: {call_id} was undone by {times} calls")
    for plan in (fact for fact in played.undo_facts if isinstance(fact, UndoPlanned)):
        _check_plan(plan, started)
    _check_complete(played, facts)
    _check_reported(played.undo_facts, started, done)


def _check_plan(plan: UndoPlanned, started: dict[str, CallStarted]) -> None:
    """The last one first, each with what was kept before it started for the first time."""
    places = [started[undone.call_id].seq for undone in plan.undone]
    require(places == sorted(places, reverse=True), f"T2: {plan} is not in reverse order")
    for undone in plan.undone:
        kept = started[undone.call_id].snapshot
        require(undone.snapshot == kept, f"J2: {undone} has another snapshot than {kept!r}")
        require(undone.kind in UNDONE_KINDS, f"J2: {undone} had no effect")


def _check_complete(played: PlayedSession, facts: Sequence[Fact]) -> None:
    """T2: who undoes a run undoes all that it did, whatever the results say."""
    run = 0
    runs: dict[str, int] = {}
    for fact in facts:
        if isinstance(fact, RunStarted):
            run = fact.run
        elif isinstance(fact, CallStarted):
            runs[fact.key] = run
    plans = [fact for fact in played.undo_facts if isinstance(fact, UndoPlanned)]
    undone_runs = {plan.run for plan in plans}
    undone = {f"{played.plan.session}/{one.call_id}" for plan in plans for one in plan.undone}
    for effect in played.outside.effects:
        missing = runs.get(effect.key) in undone_runs and effect.key not in undone
        require(not missing, f"T2: {effect} is left when its run is undone")


def _check_reported(
    facts: Sequence[Fact], started: dict[str, CallStarted], done: Counter[str]
) -> None:
    """What is reported as undone was undone."""
    for fact in facts:
        if isinstance(fact, CallFinished) and fact.result.kind == "value":
            key = started[fact.call_id].key
            require(done[key] == 1, f"J2: {key} is reported as undone, and was not")
