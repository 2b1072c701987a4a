"""Rules for effects of tools: none twice, none before its record, none that was not allowed."""

from collections import Counter
from itertools import chain

from proof.simulate.outside import ToolEffect
from proof.simulate.people import ANSWERED_OTHER, ASKED_OTHER, MODIFIED
from proof.simulate.plan import EFFECTS, CallPlan
from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    Fact,
    LookupsPlanned,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
)
from windlass.core.messages import TextPart
from windlass.core.tool_search import unwrap_call
from windlass.core.verdicts import Allow, Ask, Modify


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
    for facts in played.inner.values():
        if is_code(facts[0]):
            _check_nobody_asked(facts, played)


def is_code(start: Fact) -> bool:
    """Whether a session is that of the calls of some code."""
    if not isinstance(start, RunStarted):
        return False
    return any(isinstance(part, TextPart) and "Code " in part.text for part in start.prompt)


def _check_nobody_asked(facts: list[Fact], played: PlayedSession) -> None:
    """G6: code never asks. What would be asked runs only if a person granted it to the run."""
    answers = (fact for fact in played.facts if isinstance(fact, CallAnswered))
    granted = {fact.grant.tool for fact in answers if fact.grant is not None}
    names = tool_names(facts)
    asked = [fact for fact in facts if isinstance(fact, CallJudged | CallAnswered)]
    for fact in asked:
        require(not isinstance(fact.verdict, Ask), f"G6: code asks about {fact.call_id}")
        if isinstance(fact.verdict, Allow | Modify) and "granted" in fact.verdict.rule:
            require(names[fact.call_id] in granted, f"G6: {fact} was not granted")
    for effect in played.outside.effects:
        if any(effect.key == key for key in _started_keys(facts)):
            judgement = played.outside.call_plan(effect.number).judgement
            allowed = effect.tool in granted or judgement not in ("ask", "ask_other")
            require(allowed, f"G6: code did {effect}, which nobody was asked about")


def _started_keys(facts: list[Fact]) -> list[str]:
    return [fact.key for fact in facts if isinstance(fact, CallStarted)]


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
