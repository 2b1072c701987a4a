"""Rules for undoing: only what happened, the last one first, nothing twice, and all that is due."""

from collections import Counter
from collections.abc import Mapping, Sequence

from proof.simulate.plan import HELPER
from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from windlass.core.decide.undoing import UNDONE_KINDS
from windlass.core.events import CallFinished, CallStarted, Fact, RunEnded, RunStarted, UndoPlanned
from windlass.core.fold.run import fold


def check_undoing(played: PlayedSession) -> None:
    """J2, T2: what was undone after the last run, because it failed or because people wanted it."""
    _check_due(played)
    if not played.undo_facts:
        return
    done = Counter(effect.key for effect in played.outside.undone)
    for key, times in done.items():
        require(times == 1, f"J2: {key} was undone {times} times")
    targets = Counter(effect.tool for effect in played.outside.undone)
    for call, times in targets.items():
        require(times == 1, f"J2: {call} was undone by {times} calls")
    helpers = frozenset(played.inner)
    _check_session(played.plan.session, played.facts, played.undo_facts, done, helpers)
    for session, undo_facts in played.inner_undo_facts.items():
        _check_session(session, played.inner[session], undo_facts, done, helpers)
    _check_complete(played)


def _check_due(played: PlayedSession) -> None:
    """J4: a run is undone if its rules say so, whatever died meanwhile, and only then."""
    is_wanted = played.plan.more.on_failure == "undo"
    for end in (fact for fact in played.facts if isinstance(fact, RunEnded)):
        is_due = is_wanted and end.outcome != "completed"
        require(end.undo == is_due, f"J4: {end} says that undoing is due: {end.undo}")
        if is_due:
            planned = any(isinstance(fact, UndoPlanned) for fact in played.undo_facts)
            require(planned, "J4: a run that did not complete was not undone")


def _check_session(
    session: str,
    facts: Sequence[Fact],
    undo_facts: Sequence[Fact],
    done: Counter[str],
    helpers: frozenset[str],
) -> None:
    """Check the plans and the results of one session."""
    fold(session, [*facts, *undo_facts])
    started: dict[str, CallStarted] = {}
    for fact in (*facts, *undo_facts):
        if isinstance(fact, CallStarted):
            started.setdefault(fact.call_id, fact)
    undone_by: dict[str, CallStarted] = {}
    for plan in (fact for fact in undo_facts if isinstance(fact, UndoPlanned)):
        _check_plan(plan, started, helpers)
        undone_by |= {undone.by: started[undone.call_id] for undone in plan.undone}
    _check_reported(undo_facts, started, done, undone_by)


def _check_plan(
    plan: UndoPlanned, started: Mapping[str, CallStarted], helpers: frozenset[str]
) -> None:
    """The last one first, each with what was kept before it started for the first time."""
    places = [started[undone.call_id].seq for undone in plan.undone]
    require(places == sorted(places, reverse=True), f"T2: {plan} is not in reverse order")
    for undone in plan.undone:
        kept = started[undone.call_id].snapshot
        require(undone.snapshot == kept, f"J2: {undone} has another snapshot than {kept!r}")
        # A helper may have done something before it failed.
        may_be_undone = undone.kind in UNDONE_KINDS or started[undone.call_id].key in helpers
        require(may_be_undone, f"J2: {undone} had no effect")


def _check_complete(played: PlayedSession) -> None:
    """T2: who undoes a run undoes all that it did, whatever the results say."""
    session = played.plan.session
    runs = _runs_of_calls([*played.facts, *played.undo_facts])
    plans = _plans_in(played.undo_facts)
    undone_runs = {plan.run for plan in plans}
    starts = (fact for fact in played.facts if isinstance(fact, CallStarted))
    helpers = {fact.key for fact in starts if fact.name == HELPER}
    undone = {f"{session}/{one.call_id}" for plan in plans for one in plan.undone}
    for name, facts in played.inner_undo_facts.items():
        undone |= {f"{name}/{one.call_id}" for plan in _plans_in(facts) for one in plan.undone}
    for effect in played.outside.effects:
        caller = effect.key.rpartition("/")[0]
        if caller == session:
            missing = runs.get(effect.key) in undone_runs and effect.key not in undone
        else:
            # The effect of a helper: its call is undone, and if its turn came, the effect is too.
            # What code did is not undone.
            if caller not in helpers:
                continue
            missing = runs.get(caller) in undone_runs and caller not in undone
            missing = missing or (caller in played.inner_undo_facts and effect.key not in undone)
        require(not missing, f"T2: {effect} is left when its run is undone")


def _runs_of_calls(facts: Sequence[Fact]) -> dict[str, int]:
    run = 0
    runs: dict[str, int] = {}
    for fact in facts:
        if isinstance(fact, RunStarted):
            run = fact.run
        elif isinstance(fact, CallStarted):
            runs[fact.key] = run
    return runs


def _plans_in(facts: Sequence[Fact]) -> list[UndoPlanned]:
    return [fact for fact in facts if isinstance(fact, UndoPlanned)]


def _check_reported(
    facts: Sequence[Fact],
    started: Mapping[str, CallStarted],
    done: Counter[str],
    undone_by: Mapping[str, CallStarted],
) -> None:
    """What is reported as undone was undone. A helper's own session says what was undone of it."""
    for fact in facts:
        if not isinstance(fact, CallFinished) or fact.result.kind != "value":
            continue
        if undone_by[fact.call_id].name != HELPER:
            key = started[fact.call_id].key
            require(done[key] == 1, f"J2: {key} is reported as undone, and was not")
