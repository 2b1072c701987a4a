"""Rules for effects of tools: none twice, none before its record, none that was not allowed."""

from collections import Counter
from itertools import chain

from proof.simulate.outside import ToolEffect
from proof.simulate.people import ANSWERED_OTHER, ASKED_OTHER, MODIFIED
from proof.simulate.plan import EFFECTS, CallPlan
from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from windlass.core.events import (
    CallFinished,
    CallStarted,
    Fact,
    LookupsPlanned,
    RunEnded,
    RunResumed,
    StepProposed,
)
from windlass.core.tool_search import unwrap_call


def check_effects(played: PlayedSession) -> None:
    done = Counter(effect.key for effect in played.outside.effects)
    sessions = [played.facts, *played.inner.values()]
    started = {fact.key for fact in chain(*sessions) if isinstance(fact, CallStarted)}
    for effect in played.outside.effects:
        require(effect.key in started, f"J1: {effect} happened before its record")
        require(done[effect.key] == 1, f"J2: {effect} happened {done[effect.key]} times")
        _check_was_allowed(effect, played.outside.call_plan(effect.number))
    for facts in sessions:
        names = tool_names(facts)
        _check_reported_effects(facts, names, done)
        _check_writes_alone(facts, names)


def tool_names(facts: list[Fact]) -> dict[str, str]:
    """Return the name of the tool of each call, by call id."""
    calls = (
        fact.reply.calls if isinstance(fact, StepProposed) else fact.calls
        for fact in facts
        if isinstance(fact, StepProposed | LookupsPlanned)
    )
    return {call.id: unwrap_call(call).name for call in chain(*calls)}


def _check_was_allowed(effect: ToolEffect, call: CallPlan) -> None:
    """G1, G2, T4: no effect that the gate refused, and none with different arguments."""
    changed = effect.number - call.number
    other = ANSWERED_OTHER if call.answer == "modify" else None
    allowed: dict[str, tuple[int | None, ...]] = {
        "allow": (0,),
        "modify": (MODIFIED,),
        "ask": (0, other),
        "ask_other": (ASKED_OTHER, other),
    }
    permitted = changed in allowed.get(call.judgement, ())
    require(permitted, f"G1: {effect} happened, but the gate said {call.judgement}")


def _check_reported_effects(facts: list[Fact], names: dict[str, str], done: Counter[str]) -> None:
    """J2: no effect is reported that did not happen."""
    keys = {fact.call_id: fact.key for fact in facts if isinstance(fact, CallStarted)}
    for fact in facts:
        if isinstance(fact, CallFinished) and fact.result.kind == "value":
            has_effect = EFFECTS.get(names[fact.call_id], "read") != "read"
            happened = done[keys[fact.call_id]] == 1 or not has_effect
            require(happened, f"J2: {fact.call_id} is reported as done, but it did not happen")


def _check_writes_alone(facts: list[Fact], names: dict[str, str]) -> None:
    """T2: a write that names no resource runs alone."""
    running: set[str] = set()
    for fact in facts:
        if isinstance(fact, RunResumed | RunEnded):
            running.clear()
        elif isinstance(fact, CallFinished):
            running.discard(fact.call_id)
        elif isinstance(fact, CallStarted):
            running.add(fact.call_id)
            exclusive = [call_id for call_id in running if names[call_id] in ("put", "send")]
            require(not exclusive or len(running) == 1, f"T2: {sorted(running)} ran together")
