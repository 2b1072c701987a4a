"""How a call of the open step comes from the model's proposal to its one result."""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn, assert_never

import msgspec
from msgspec.structs import replace

from windlass.core.decide.lookups import found
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    Fact,
    RunEnded,
)
from windlass.core.json_repair.strict import Broken, Read, strict
from windlass.core.messages import (
    CallResult,
    Change,
    Charge,
    Ledger,
    Result,
    Results,
    ToolCall,
)
from windlass.core.setup import Setup, ToolChoice, digest
from windlass.core.state import Call, State, Streak, call_of, holding, say
from windlass.core.verdicts import Allow, Answer, Ask, Deny, Invalid, Modify

UNREADABLE_MAX = 200
"""Characters kept in the transcript of arguments that are no JSON."""

BYTE_ORDER_MARK = "\ufeff"
UNSPEAKABLE = re.compile(r"[^a-zA-Z0-9_-]")


def call_judged(state: State, fact: CallJudged) -> State:
    call = _open_call(state, fact.call_id, fact)
    # A call that a crash interrupted is judged again: by its own `reconcile`, or by a person.
    # And a yes may be taken back for a question, as long as the call has not started.
    again = call.phase == "cleared" and isinstance(fact.verdict, Ask)
    if call.phase not in ("proposed", "interrupted") and not again:
        illegal(fact, f"the call is {call.phase}")
    call = replace(call, changes=(*call.changes, *fact.changes), resource=fact.resource)
    given = None if fact.arguments is None else _encoded(fact.arguments)
    if isinstance(fact.verdict, Invalid):
        result = Result.say("invalid", fact.verdict.message)
        return close(state, replace(call, arguments=given), result)
    if call.arguments is None:
        text = _as_written(call.call.arguments) if given is None else given
        if text is None:
            illegal(fact, "its arguments cannot be read")
        call = replace(call, arguments=text)
    if isinstance(fact.verdict, Ask):
        return _put(state, _asked(call, fact.verdict))
    return _settle(state, call, fact.verdict)


def _asked(call: Call, question: Ask) -> Call:
    """The arguments that would run are the ones that a person is asked about."""
    if question.arguments is not None:
        changed = Change("", "the gate: as in its question")
        text, changes = _encoded(question.arguments), (*call.changes, changed)
        call = replace(call, arguments=text, changes=changes)
    call = replace(call, answered=False)
    return replace(call, phase="asked", question=question)


def call_answered(state: State, fact: CallAnswered) -> State:
    call = _open_call(state, fact.call_id, fact)
    question = call.question
    if call.phase != "asked" or question is None:
        illegal(fact, "nobody asked")
    if fact.digest != digest(call.decoded):
        illegal(fact, "it answers for other arguments")
    expired = question.expires_at is not None and fact.at > question.expires_at
    if expired and not isinstance(fact.verdict, Deny):
        illegal(fact, "the question had expired")
    if fact.grant is not None:
        if not isinstance(fact.verdict, Allow) or fact.grant.tool != call.call.name:
            illegal(fact, "only a yes can hold for more than one call, and only for that tool")
        state = replace(state, grants=(*state.grants, fact.grant))
    # Nobody knows what other arguments would touch.
    resource = None if isinstance(fact.verdict, Modify) else call.resource
    call = replace(call, question=None, answered=True, resource=resource)
    return _settle(state, call, fact.verdict)


def _settle(state: State, call: Call, verdict: Answer) -> State:
    match verdict:
        case Allow():
            return _put(state, replace(call, phase="cleared"))
        case Modify(arguments, reason):
            changes = (*call.changes, Change("", f"the gate: {reason}"))
            text = _encoded(arguments)
            return _put(state, replace(call, phase="cleared", arguments=text, changes=changes))
        case Deny(reason):
            return close(state, call, Result.say("denied", f"Denied: {reason}"))
        case _:
            assert_never(verdict)


def call_started(state: State, fact: CallStarted) -> State:
    call = _open_call(state, fact.call_id, fact)
    spec = state.setup.tool(call.call.name) if state.setup else None
    again = call.phase == "interrupted" and spec is not None and spec.effect != "write"
    if state.waiting or (call.phase != "cleared" and not again):
        illegal(fact, "a question waits" if state.waiting else f"the call is {call.phase}")
    return _put(state, replace(call, phase="started", began=True))


def taken_over(call: Call, before: Setup | None, after: Setup | None) -> Call:
    """A call as the next driver has it. Under another gate, or for another tool, a yes is none."""
    name, begun = call.call.name, call.phase in ("started", "interrupted")
    spec = before.tool(name) if before else None
    other = after is not None and (
        before is None or before.gate != after.gate or after.tool(name) != spec
    )
    again = begun and not (spec is None or spec.effect == "write")
    if other and not call.answered and (call.phase == "cleared" or again):
        return replace(call, phase="proposed", arguments=None, changes=(), resource=None)
    return replace(call, phase="interrupted") if begun else call


def call_finished(state: State, fact: CallFinished) -> State:
    call = _open_call(state, fact.call_id, fact)
    if call.phase not in ("started", "interrupted"):
        illegal(fact, f"the call is {call.phase}")
    spec = state.setup.tool(call.call.name) if state.setup else None
    if spec is not None:
        state = holding(state, spec.labels, f"{call.call.name} ({call.id})")
    return close(charged(state, fact.charges), call, fact.result)


def charged(state: State, charges: Sequence[Charge]) -> State:
    """What a call paid to models of its own is the run's to pay."""
    if not charges or state.run is None:
        return state
    run = replace(state.run, ledger=reduce(Ledger.add, charges, state.run.ledger))
    return replace(state, run=run, ledger=reduce(Ledger.add, charges, state.ledger))


def given_up(call: Call, end: RunEnded) -> Result:
    if call.began:
        told = "It had started; whether it took effect is not known."
    else:
        told = "It had not started."
    return Result.say("cancelled", f"Given up, since the run ended ({end.outcome}). {told}")


def close(state: State, call: Call, result: Result) -> State:
    state = _put(state, replace(call, phase="closed", result=result))
    step, run = state.step, state.run
    if step is None or run is None or any(one.phase != "closed" for one in step.calls):
        return state
    items = tuple(CallResult(_as_run(one), one.result or result) for one in step.calls)
    if step.hydrates:
        return say(replace(state, step=None), found(items, state.setup))
    ran = iter(item.call for item in items)
    parts = tuple(next(ran) if isinstance(part, ToolCall) else part for part in step.reply.parts)
    names = [call.call.name for call in step.calls]
    met = run.choice_met or state.setup is None or _meets(state.setup.rules.tool_choice, names)
    worked = any(item.result.kind == "value" for item in items)
    out = not worked and any(item.result.outage for item in items)
    run = replace(
        run,
        streak=reduce(_streak, items, run.streak),
        choice_met=met,
        outages=run.outages + 1 if out else 0,
    )
    state = replace(state, step=None, run=run)
    return say(state, replace(step.reply, parts=parts), Results(items))


def _meets(choice: ToolChoice, names: Sequence[str]) -> bool:
    return choice in ("auto", "none", "required") or choice in names


def _as_run(call: Call) -> ToolCall:
    """The call with the arguments that count: history and execution agree, and history is JSON."""
    text = call.arguments
    if text is None:
        text = _as_written(call.call.arguments)
    if text is None:
        text = _encoded({"unreadable_arguments": call.call.arguments[:UNREADABLE_MAX]})
    return replace(call.call, name=_speakable(call.call.name), arguments=text)


def _as_written(text: str) -> str | None:
    """The model's own text, if it is one JSON object; None if it is not."""
    match strict(text.removeprefix(BYTE_ORDER_MARK)):
        case Read(dict() as arguments):
            return text if text.startswith("{") else _encoded(arguments)
        case Read() | Broken():
            return None


def _encoded(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def _speakable(name: str) -> str:
    """A name that every provider takes back, whatever the model made up."""
    return UNSPEAKABLE.sub("_", name)[:64] or "unnamed"


def _streak(streak: Streak, item: CallResult) -> Streak:
    call = item.call
    if (streak.name, streak.result) == (call.name, item.result):
        same = streak.arguments == call.arguments or _alike(streak.arguments, call.arguments)
        if same:
            return replace(streak, count=streak.count + 1)
    return Streak(call.name, call.arguments, item.result, 1)


def _alike(one: str, other: str) -> bool:
    """Whether two texts hold the same arguments, however they are spaced."""
    return msgspec.json.decode(one) == msgspec.json.decode(other)


def _put(state: State, call: Call) -> State:
    step = state.step
    if step is None:  # pragma: no cover - every caller holds an open call
        raise AssertionError
    calls = tuple(call if one.id == call.id else one for one in step.calls)
    return replace(state, step=replace(step, calls=calls))


def _open_call(state: State, call_id: str, fact: Fact) -> Call:
    call = call_of(state, call_id)
    return call if call is not None else illegal(fact, f"no call {call_id} is open")


def illegal(fact: Fact, why: str) -> NoReturn:
    msg = f"{type(fact).__name__} cannot be record {fact.seq}: {why}"
    raise IllegalFact(msg)
