"""How a call of the open step gets from the model's proposal to its one result.

`phases.py` defines which fact may follow in which phase. This module applies what else a fact
changes.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from windlass.core.decide.lookups import build_findings_note
from windlass.core.decide.undoing import build_undo_note
from windlass.core.events import (
    AnswerCounted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    CallWaiting,
    Fact,
    RunEnded,
    RunResumed,
)
from windlass.core.fold.phases import (
    CALL_PHASES,
    PhaseChange,
    classify_fact,
    classify_resume,
    next_phase,
    pardon_call,
    raise_illegal_fact,
)
from windlass.core.json_repair.strict import BrokenJson, ReadJson, read_strict
from windlass.core.messages import (
    ArgumentChange,
    CallOutcome,
    Charge,
    Ledger,
    ToolCall,
    ToolResult,
    ToolResults,
)
from windlass.core.setup import Setup, ToolChoice, digest
from windlass.core.state import (
    CallPhase,
    CallState,
    CallStreak,
    State,
    add_labels,
    add_messages,
    find_call,
    mark_artifacts,
)
from windlass.core.tool_search import rewrap_call
from windlass.core.verdicts import (
    Allow,
    AnswerVerdict,
    Ask,
    Deny,
    GivenAnswer,
    InvalidCall,
    Modify,
    classify_answer,
    tally,
    terms_of,
)

UNREADABLE_MAX = 200
"""Characters kept in the transcript of arguments that are not JSON."""

BYTE_ORDER_MARK = "\ufeff"
UNUSUAL_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def apply_call_judged(state: State, fact: CallJudged) -> State:
    """Clear a call, ask a person about it, or close it."""
    call, phase = _move_call(state, fact)
    if call.imported and isinstance(fact.verdict, Allow | Modify):
        raise_illegal_fact(fact, "a person has to be asked about a call of an imported session")
    if fact.arguments is not None and call.arguments is not None:
        # It is judged again from what the model wrote, and what was made of that before is void.
        call = replace(call, arguments=None, changes=())
    state = add_charges(state, fact.charges)
    changes = (*call.changes, *fact.changes)
    call = replace(call, changes=changes, resource=fact.resource, doubted=False)
    given = None if fact.arguments is None else encode_judged(call.call, fact.arguments)
    if isinstance(fact.verdict, InvalidCall):
        result = ToolResult.from_text("invalid", fact.verdict.message)
        is_repeat = fact.verdict.code == "repeated_call"
        return close_call(state, replace(call, arguments=given, is_repeat=is_repeat), result)
    if call.arguments is None:
        if given is None:
            text = arguments_as_written(call.call.arguments)
        else:
            text = given
        if text is None:
            raise_illegal_fact(fact, "its arguments cannot be read")
        call = replace(call, arguments=text)
    if isinstance(fact.verdict, Ask):
        call = _ask_about_call(call, fact.verdict)
        if fact.digest and fact.digest != digest(call.decoded_arguments):
            raise_illegal_fact(fact, "it asks about other arguments than its digest")
        return replace_call(state, call)
    return _apply_verdict(state, call, fact.verdict, phase)


def _ask_about_call(call: CallState, question: Ask) -> CallState:
    """Ask about the arguments that would run, which a gate may have changed."""
    if question.arguments is not None:
        change = ArgumentChange("", "the gate: as in its question")
        call = replace(
            call,
            arguments=encode_arguments(question.arguments),
            changes=(*call.changes, change),
        )
    approvals = question.approvals
    return replace(
        call, phase="asked", question=question, answered=False, approvals=approvals, answers=()
    )


def apply_call_answered(state: State, fact: CallAnswered) -> State:
    """Take a person's answer, and the grant that may come with it."""
    call, phase = _move_call(state, fact)
    question = call.question
    if question is None:  # pragma: no cover - the phase `asked` has a question
        raise_illegal_fact(fact, "nobody asked")
    if fact.digest != digest(call.decoded_arguments):
        raise_illegal_fact(fact, "it answers for other arguments")
    answers = (*call.answers, read_given(fact))
    decision = tally(terms_of(question, fact.digest), answers)
    if decision is None:
        raise_illegal_fact(fact, "the question has not expired, or others have to agree")
    if not decision.is_allowed and not isinstance(fact.verdict, Deny):
        raise_illegal_fact(fact, "the question had expired")
    if fact.grant is not None:
        if not isinstance(fact.verdict, Allow) or fact.grant.tool != call.call.name:
            raise_illegal_fact(fact, "only an Allow can carry a grant, and only for the same tool")
        state = replace(state, grants=(*state.grants, fact.grant))
    # It is not known which resource other arguments would touch.
    resource = None if isinstance(fact.verdict, Modify) else call.resource
    call = replace(
        call, question=None, answers=(), answered=True, resource=resource, imported=False
    )
    call = pardon_call(call)
    return _apply_verdict(state, call, fact.verdict, phase)


def read_given(fact: CallAnswered | AnswerCounted) -> GivenAnswer:
    """Return the answer that a fact records."""
    verdict = fact.verdict
    put_in = digest(verdict.arguments) if isinstance(verdict, Modify) else ""
    at = fact.accepted_at or fact.at
    return GivenAnswer(classify_answer(verdict), fact.by, at, fact.person, put_in)


def _apply_verdict(
    state: State, call: CallState, verdict: AnswerVerdict, phase: CallPhase
) -> State:
    match verdict:
        case Allow():
            return replace_call(state, replace(call, phase=phase))
        case Modify(arguments, reason):
            changes = (*call.changes, ArgumentChange("", f"the gate: {reason}"))
            text = encode_arguments(arguments)
            call = replace(call, phase=phase, arguments=text, changes=changes)
            return replace_call(state, call)
        case Deny(reason):
            return close_call(state, call, ToolResult.from_text("denied", f"Denied: {reason}"))
        case _:
            assert_never(verdict)


def apply_call_started(state: State, fact: CallStarted) -> State:
    """Note that the effect of a call begins."""
    call, phase = _move_call(state, fact)
    if state.is_waiting:
        # Every call of a step is judged and answered before the first one starts. None starts
        # while the sub-agent of another one waits, because the run is on record as waiting.
        raise_illegal_fact(fact, "another call waits for an answer")
    call = replace(call, phase=phase, began=True, began_with=call.arguments or "")
    return replace_call(state, call)


def apply_call_waiting(state: State, fact: CallWaiting) -> State:
    """Note that the sub-agent of a call waits, so that the run can be left alone."""
    call, phase = _move_call(state, fact)
    return replace_call(state, replace(call, phase=phase, waits_for=fact))


def take_over_call(
    call: CallState, before: Setup | None, after: Setup | None, fact: RunResumed
) -> CallState:
    """Return a call as the next driver finds it."""
    doubted = call.id in fact.doubted and call.phase != "closed"
    if doubted:
        call = replace(call, answered=False)
    phase = next_phase(call, classify_resume(call, before, after, doubted=doubted))
    if phase is None:  # pragma: no cover - every phase can be resumed
        raise_illegal_fact(fact, f"the call is {call.phase}")
    if phase == "proposed":
        return replace(call, phase=phase, arguments=None, changes=(), resource=None, waits_for=None)
    doubted = phase == "interrupted" and (doubted or call.doubted)
    return replace(call, phase=phase, waits_for=None, doubted=doubted)


def disown_call(call: CallState, fact: Fact) -> CallState:
    """Return a call of a session that was imported: whatever was decided about it is void."""
    phase = next_phase(call, "SessionImported")
    if phase is None:  # pragma: no cover - every phase can be imported
        raise_illegal_fact(fact, f"the call is {call.phase}")
    if phase == "closed":
        return call
    began = call.began
    return CallState(call.call, phase, began=began, imported=True, outer=call.outer)


def apply_call_finished(state: State, fact: CallFinished) -> State:
    """Close a call with its result, and remember the labels of what its tool returned."""
    call, _ = _move_call(state, fact)
    spec = state.setup.find_tool(call.call.name) if state.setup else None
    labels = dict.fromkeys((*(spec.labels if spec else ()), *fact.result.labels))
    if labels:
        state = add_labels(state, tuple(labels), f"{call.call.name} ({call.call.id})")
    if fact.result.artifacts:
        state = mark_artifacts(state)
    if fact.charges:
        state = add_charges(state, fact.charges)
    return close_call(state, call, fact.result)


def add_charges(state: State, charges: Sequence[Charge]) -> State:
    """Charge the run and the session for what a call paid to models of its own."""
    if not charges or state.run is None:
        return state
    run = replace(state.run, ledger=reduce(Ledger.add, charges, state.run.ledger))
    return replace(state, run=run, ledger=reduce(Ledger.add, charges, state.ledger))


def abandoned_result(call: CallState, end: RunEnded) -> ToolResult:
    """Return the result of a call that the end of its run closed."""
    if call.began:
        effect = "The call had started and may still be running; whether it took effect is unknown."
    else:
        effect = "The call had not started."
    return ToolResult.from_text("cancelled", f"Cancelled: the run ended ({end.outcome}). {effect}")


def close_call(state: State, call: CallState, result: ToolResult) -> State:
    """Give a call its result. The last result of a step puts the whole step into the transcript."""
    state = replace_call(state, replace(call, phase="closed", result=result))
    step = state.step
    run = state.run
    if step is None or run is None:
        return state
    for other in step.calls:
        if other.phase != "closed":
            return state
    outcomes = tuple([CallOutcome(call_as_run(one), one.result or result) for one in step.calls])
    if step.hydrates and run.is_undo:
        note = build_undo_note(outcomes, run.undoes)
        failed = sum(outcome.result.kind != "value" for outcome in outcomes)
        run = replace(run, text=note.text, not_undone=failed)
        return add_messages(replace(state, step=None, run=run), note)
    if step.hydrates:
        # The runtime made these calls, so the model sees a note instead of its own reply.
        return add_messages(replace(state, step=None), build_findings_note(outcomes, state.setup))
    ran = iter(outcomes)
    parts = [next(ran).call if isinstance(part, ToolCall) else part for part in step.reply.parts]
    streak = run.streak
    for closed, outcome in zip(step.calls, outcomes, strict=True):
        streak = _extend_streak(streak, closed, outcome)
    run = replace(
        run,
        streak=streak,
        choice_met=run.choice_met or _meets_choice(state, step.calls),
        outages=run.outages + 1 if _is_outage(outcomes) else 0,
    )
    state = replace(state, step=None, run=run)
    return add_messages(state, replace(step.reply, parts=tuple(parts)), ToolResults(outcomes))


def _is_outage(outcomes: Sequence[CallOutcome]) -> bool:
    """Whether nothing came of a step because tools were out of order."""
    is_outage = False
    for outcome in outcomes:
        if outcome.result.kind == "value":
            return False
        is_outage = is_outage or outcome.result.outage
    return is_outage


def _meets_choice(state: State, calls: Sequence[CallState]) -> bool:
    """Whether the calls of a step satisfy the tool choice, so that it is `auto` from now on."""
    if state.setup is None:
        return True
    choice: ToolChoice = state.setup.rules.tool_choice
    names = [call.call.name for call in calls]
    return choice in ("auto", "none", "required") or choice in names


def call_as_run(call: CallState) -> ToolCall:
    """Return the call with the arguments that ran, always as JSON, for the transcript."""
    text = call.arguments
    if text is None:
        text = arguments_as_written(call.call.arguments)
    if text is None:
        text = encode_arguments({"unreadable_arguments": call.call.arguments[:UNREADABLE_MAX]})
    if call.outer is not None:
        return rewrap_call(call.outer, call.call, text)
    # Every provider accepts this name back, whatever name the model made up.
    name = UNUSUAL_NAME_CHARS.sub("_", call.call.name)[:64] or "unnamed"
    return replace(call.call, name=name, arguments=text)


def arguments_as_written(text: str) -> str | None:
    """Return the model's own text if it is one JSON object, else None."""
    match read_strict(text.removeprefix(BYTE_ORDER_MARK)):
        case ReadJson(dict() as arguments):
            if text.startswith("{"):
                return text
            return encode_arguments(arguments)
        case ReadJson() | BrokenJson():
            return None


def encode_judged(call: ToolCall, arguments: Mapping[str, Any]) -> str:
    """Return the text of arguments that a verdict names: as the model wrote them, if it did.

    A call that is judged again would otherwise be shown to the model in other words than before.
    """
    encoded = encode_arguments(arguments)
    match read_strict(call.arguments):
        case ReadJson(dict() as written) if encode_arguments(written) == encoded:
            return call.arguments if call.arguments.startswith("{") else encoded
        case ReadJson() | BrokenJson():
            return encoded


def encode_arguments(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def _extend_streak(streak: CallStreak, closed: CallState, outcome: CallOutcome) -> CallStreak:
    """Count a call that is the same as the one before, with the same result.

    One that was not executed for that reason counts as well: it would have had that result.
    """
    call = outcome.call
    if closed.is_repeat:
        return replace(streak, count=streak.count + 1)
    same_result = (streak.name, streak.result) == (call.name, outcome.result)
    if same_result and same_arguments(streak.arguments, call.arguments):
        return replace(streak, count=streak.count + 1)
    return CallStreak(call.name, call.arguments, outcome.result, 1)


def same_arguments(text: str, other: str) -> bool:
    """Whether two JSON texts hold the same arguments, however they are spaced."""
    return text == other or msgspec.json.decode(text) == msgspec.json.decode(other)


def replace_call(state: State, call: CallState) -> State:
    step = state.step
    if step is None:  # pragma: no cover - every caller holds an open call
        raise AssertionError
    calls = (call,)
    if len(step.calls) > 1:
        own = call.call.id
        calls = tuple([call if other.call.id == own else other for other in step.calls])
    return replace(state, step=replace(step, calls=calls))


def _move_call(state: State, fact: PhaseChange) -> tuple[CallState, CallPhase]:
    """Return the call of a fact, and the phase that the fact leads it to.

    Raises IllegalFact if no such call is open, or if the table has no such transition.
    """
    call = find_call(state, fact.call_id)
    if call is None:
        raise_illegal_fact(fact, f"no call {fact.call_id} is open")
    phase = CALL_PHASES[call.phase].get(classify_fact(fact, call, state.setup))
    if phase is None:
        raise_illegal_fact(fact, f"the call is {call.phase}")
    return call, phase
