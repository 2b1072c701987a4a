"""How a call of the open step comes from the model's proposal to its one result."""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn, assert_never

import msgspec
from msgspec.structs import replace

from windlass.core.decide.lookups import build_findings_note
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    Fact,
    RunEnded,
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
from windlass.core.state import CallState, CallStreak, State, add_labels, add_messages, find_call
from windlass.core.verdicts import Allow, AnswerVerdict, Ask, Deny, InvalidCall, Modify

UNREADABLE_MAX = 200
"""Characters kept in the transcript of arguments that are no JSON."""

BYTE_ORDER_MARK = "\ufeff"
UNUSUAL_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def apply_call_judged(state: State, fact: CallJudged) -> State:
    call = _require_call(state, fact.call_id, fact)
    # A call that a crash interrupted is judged again: by its own `reconcile`, or by a person.
    # And a yes may be taken back for a question, as long as the call has not started.
    again = call.phase == "cleared" and isinstance(fact.verdict, Ask)
    if call.phase not in ("proposed", "interrupted") and not again:
        raise_illegal_fact(fact, f"the call is {call.phase}")
    call = replace(call, changes=(*call.changes, *fact.changes), resource=fact.resource)
    given = None if fact.arguments is None else _encode_arguments(fact.arguments)
    if isinstance(fact.verdict, InvalidCall):
        result = ToolResult.from_text("invalid", fact.verdict.message)
        return close_call(state, replace(call, arguments=given), result)
    if call.arguments is None:
        text = _arguments_as_written(call.call.arguments) if given is None else given
        if text is None:
            raise_illegal_fact(fact, "its arguments cannot be read")
        call = replace(call, arguments=text)
    if isinstance(fact.verdict, Ask):
        return _replace_call(state, _ask_about_call(call, fact.verdict))
    return _apply_verdict(state, call, fact.verdict)


def _ask_about_call(call: CallState, question: Ask) -> CallState:
    """The arguments that would run are the ones that a person is asked about."""
    if question.arguments is not None:
        changed = ArgumentChange("", "the gate: as in its question")
        text, changes = _encode_arguments(question.arguments), (*call.changes, changed)
        call = replace(call, arguments=text, changes=changes)
    call = replace(call, answered=False)
    return replace(call, phase="asked", question=question)


def apply_call_answered(state: State, fact: CallAnswered) -> State:
    call = _require_call(state, fact.call_id, fact)
    question = call.question
    if call.phase != "asked" or question is None:
        raise_illegal_fact(fact, "nobody asked")
    if fact.digest != digest(call.decoded_arguments):
        raise_illegal_fact(fact, "it answers for other arguments")
    expired = question.expires_at is not None and fact.at > question.expires_at
    if expired and not isinstance(fact.verdict, Deny):
        raise_illegal_fact(fact, "the question had expired")
    if fact.grant is not None:
        if not isinstance(fact.verdict, Allow) or fact.grant.tool != call.call.name:
            raise_illegal_fact(
                fact, "only a yes can hold for more than one call, and only for that tool"
            )
        state = replace(state, grants=(*state.grants, fact.grant))
    # Nobody knows what other arguments would touch.
    resource = None if isinstance(fact.verdict, Modify) else call.resource
    call = replace(call, question=None, answered=True, resource=resource)
    return _apply_verdict(state, call, fact.verdict)


def _apply_verdict(state: State, call: CallState, verdict: AnswerVerdict) -> State:
    match verdict:
        case Allow():
            return _replace_call(state, replace(call, phase="cleared"))
        case Modify(arguments, reason):
            changes = (*call.changes, ArgumentChange("", f"the gate: {reason}"))
            text = _encode_arguments(arguments)
            return _replace_call(
                state, replace(call, phase="cleared", arguments=text, changes=changes)
            )
        case Deny(reason):
            return close_call(state, call, ToolResult.from_text("denied", f"Denied: {reason}"))
        case _:
            assert_never(verdict)


def apply_call_started(state: State, fact: CallStarted) -> State:
    call = _require_call(state, fact.call_id, fact)
    spec = state.setup.find_tool(call.call.name) if state.setup else None
    again = call.phase == "interrupted" and spec is not None and spec.effect != "write"
    if state.is_waiting or (call.phase != "cleared" and not again):
        raise_illegal_fact(
            fact, "a question waits" if state.is_waiting else f"the call is {call.phase}"
        )
    return _replace_call(state, replace(call, phase="started", began=True))


def take_over_call(call: CallState, before: Setup | None, after: Setup | None) -> CallState:
    """A call as the next driver has it. Under another gate, or for another tool, a yes is none."""
    name, begun = call.call.name, call.phase in ("started", "interrupted")
    spec = before.find_tool(name) if before else None
    other = after is not None and (
        before is None or before.gate != after.gate or after.find_tool(name) != spec
    )
    again = begun and not (spec is None or spec.effect == "write")
    if other and not call.answered and (call.phase == "cleared" or again):
        return replace(call, phase="proposed", arguments=None, changes=(), resource=None)
    return replace(call, phase="interrupted") if begun else call


def apply_call_finished(state: State, fact: CallFinished) -> State:
    call = _require_call(state, fact.call_id, fact)
    if call.phase not in ("started", "interrupted"):
        raise_illegal_fact(fact, f"the call is {call.phase}")
    spec = state.setup.find_tool(call.call.name) if state.setup else None
    if spec is not None:
        state = add_labels(state, spec.labels, f"{call.call.name} ({call.id})")
    return close_call(add_charges(state, fact.charges), call, fact.result)


def add_charges(state: State, charges: Sequence[Charge]) -> State:
    """What a call paid to models of its own is the run's to pay."""
    if not charges or state.run is None:
        return state
    run = replace(state.run, ledger=reduce(Ledger.add, charges, state.run.ledger))
    return replace(state, run=run, ledger=reduce(Ledger.add, charges, state.ledger))


def abandoned_result(call: CallState, end: RunEnded) -> ToolResult:
    if call.began:
        told = "It had started; whether it took effect is not known."
    else:
        told = "It had not started."
    return ToolResult.from_text(
        "cancelled", f"Given up, since the run ended ({end.outcome}). {told}"
    )


def close_call(state: State, call: CallState, result: ToolResult) -> State:
    state = _replace_call(state, replace(call, phase="closed", result=result))
    step, run = state.step, state.run
    if step is None or run is None or any(one.phase != "closed" for one in step.calls):
        return state
    items = tuple(CallOutcome(_call_as_run(one), one.result or result) for one in step.calls)
    if step.hydrates:
        return add_messages(replace(state, step=None), build_findings_note(items, state.setup))
    ran = iter(item.call for item in items)
    parts = tuple(next(ran) if isinstance(part, ToolCall) else part for part in step.reply.parts)
    names = [call.call.name for call in step.calls]
    met = (
        run.choice_met or state.setup is None or _meets_choice(state.setup.rules.tool_choice, names)
    )
    worked = any(item.result.kind == "value" for item in items)
    out = not worked and any(item.result.outage for item in items)
    run = replace(
        run,
        streak=reduce(_extend_streak, items, run.streak),
        choice_met=met,
        outages=run.outages + 1 if out else 0,
    )
    state = replace(state, step=None, run=run)
    return add_messages(state, replace(step.reply, parts=parts), ToolResults(items))


def _meets_choice(choice: ToolChoice, names: Sequence[str]) -> bool:
    return choice in ("auto", "none", "required") or choice in names


def _call_as_run(call: CallState) -> ToolCall:
    """The call with the arguments that count: history and execution agree, and history is JSON."""
    text = call.arguments
    if text is None:
        text = _arguments_as_written(call.call.arguments)
    if text is None:
        text = _encode_arguments({"unreadable_arguments": call.call.arguments[:UNREADABLE_MAX]})
    return replace(call.call, name=_acceptable_name(call.call.name), arguments=text)


def _arguments_as_written(text: str) -> str | None:
    """The model's own text, if it is one JSON object; None if it is not."""
    match read_strict(text.removeprefix(BYTE_ORDER_MARK)):
        case ReadJson(dict() as arguments):
            return text if text.startswith("{") else _encode_arguments(arguments)
        case ReadJson() | BrokenJson():
            return None


def _encode_arguments(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def _acceptable_name(name: str) -> str:
    """A name that every provider takes back, whatever the model made up."""
    return UNUSUAL_NAME_CHARS.sub("_", name)[:64] or "unnamed"


def _extend_streak(streak: CallStreak, item: CallOutcome) -> CallStreak:
    call = item.call
    if (streak.name, streak.result) == (call.name, item.result):
        same = streak.arguments == call.arguments or _same_arguments(
            streak.arguments, call.arguments
        )
        if same:
            return replace(streak, count=streak.count + 1)
    return CallStreak(call.name, call.arguments, item.result, 1)


def _same_arguments(one: str, other: str) -> bool:
    """Whether two texts hold the same arguments, however they are spaced."""
    return msgspec.json.decode(one) == msgspec.json.decode(other)


def _replace_call(state: State, call: CallState) -> State:
    step = state.step
    if step is None:  # pragma: no cover - every caller holds an open call
        raise AssertionError
    calls = tuple(call if one.id == call.id else one for one in step.calls)
    return replace(state, step=replace(step, calls=calls))


def _require_call(state: State, call_id: str, fact: Fact) -> CallState:
    call = find_call(state, call_id)
    return call if call is not None else raise_illegal_fact(fact, f"no call {call_id} is open")


def raise_illegal_fact(fact: Fact, why: str) -> NoReturn:
    msg = f"{type(fact).__name__} cannot be record {fact.seq}: {why}"
    raise IllegalFact(msg)
