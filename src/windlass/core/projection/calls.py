"""How the calls of the last reply change in a projection.

The table of `core/fold/phases.py` says which phase a call is in after its driver changed. All else
follows from the fact itself: a view shows what was recorded and refuses nothing.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from windlass.core.events import (
    AnswerCounted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallStarted,
    CallWaiting,
    RunEnded,
    RunResumed,
    SessionImported,
)
from windlass.core.fold.calls import (
    abandoned_result,
    arguments_as_written,
    encode_judged,
    read_given,
)
from windlass.core.fold.phases import classify_resume, next_phase
from windlass.core.messages import ArgumentChange, ResultKind, ToolCall, ToolResult
from windlass.core.projection.changes import stop_agents
from windlass.core.projection.entries import Place
from windlass.core.projection.view import (
    CallStatus,
    CallView,
    OpenCallState,
    Projection,
    ReplyEntry,
)
from windlass.core.setup import Setup
from windlass.core.state import CallPhase, CallState
from windlass.core.verdicts import Allow, AnswerVerdict, Ask, Deny, InvalidCall, Modify

_PHASES: Mapping[OpenCallState, CallPhase] = {
    "proposed": "proposed",
    "asked": "asked",
    "cleared": "cleared",
    "running": "started",
    "waiting": "waiting",
    "interrupted": "interrupted",
}
_OPEN_STATES: Mapping[CallPhase, CallStatus] = {phase: state for state, phase in _PHASES.items()}
_CLOSED_STATES: Mapping[ResultKind, CallStatus] = {
    "value": "done",
    "error": "failed",
    "denied": "denied",
    "invalid": "invalid",
    "timed_out": "timed_out",
    "cancelled": "cancelled",
    "unknown": "unknown",
}

CallFact = CallJudged | CallAnswered | AnswerCounted | CallStarted | CallFinished | CallWaiting


def apply_call_fact(view: Projection, fact: CallFact) -> Projection:
    """Return the view after a fact about one call."""
    call = view.find_call(fact.call_id)
    if call is None:
        view = _add_unknown_call(view, fact)
        call = CallView(ToolCall(fact.call_id, getattr(fact, "name", "")))
    match fact:
        case CallJudged():
            call = _judge_call(call, fact)
        case CallAnswered():
            call = _answer_call(call, fact)
        case AnswerCounted():
            call = _count_answer(call, fact)
        case CallStarted():
            call = replace(
                call, state="running", key=fact.key, starts=call.starts + 1, started_at=fact.at
            )
        case CallWaiting():
            call = replace(call, state="waiting", waits_for=fact, progress="")
        case CallFinished():
            call = _close_call(replace(call, charges=fact.charges), fact.result, fact.at)
    return replace_call(view, call, (fact.seq, 0))


def _add_unknown_call(view: Projection, fact: CallFact) -> Projection:
    """Make room for a call whose proposal the watcher did not see, because it came too late."""
    number = view.run.number if view.run else 0
    call = CallView(ToolCall(fact.call_id, getattr(fact, "name", "")))
    entry = ReplyEntry(seq=fact.seq, at=fact.at, run=number, calls=(call,))
    return replace(view, tail=(*view.tail, entry))


def _judge_call(call: CallView, fact: CallJudged) -> CallView:
    if fact.arguments is not None and call.arguments is not None:
        call = replace(call, changes=())  # What was made of it before is void.
    changes = (*call.changes, *fact.changes)
    call = replace(call, verdict=fact.verdict, answer=None, changes=changes, answers=())
    if fact.charges:
        call = replace(call, charges=fact.charges)
    if fact.arguments is not None:
        call = replace(call, arguments=encode_judged(call.call, fact.arguments))
    elif call.arguments is None and not isinstance(fact.verdict, InvalidCall):
        call = replace(call, arguments=arguments_as_written(call.call.arguments))
    match fact.verdict:
        case Ask() as question:
            if question.arguments is not None:
                change = ArgumentChange("", "the gate: as in its question")
                arguments = _encode_arguments(question.arguments)
                call = replace(call, arguments=arguments, changes=(*call.changes, change))
            asked_at = call.asked_at or fact.at
            return replace(call, state="asked", question=question, asked_at=asked_at)
        case InvalidCall(message=message):
            return _close_call(call, ToolResult.from_text("invalid", message), fact.at)
        case Allow() | Deny() | Modify():
            return _apply_verdict(call, fact.verdict, fact.at)


def _answer_call(call: CallView, fact: CallAnswered) -> CallView:
    call = replace(
        call,
        question=None,
        answer=fact.verdict,
        answered_by=fact.by,
        answered_at=fact.at,
        person=fact.person,
    )
    return _apply_verdict(call, fact.verdict, fact.at)


def _count_answer(call: CallView, fact: AnswerCounted) -> CallView:
    """Return a call to which one of several people agreed."""
    call = replace(call, answers=(*call.answers, read_given(fact)))
    if not isinstance(fact.verdict, Modify):
        return call
    change = ArgumentChange("", f"{fact.by}: {fact.verdict.reason}")
    text = _encode_arguments(fact.verdict.arguments)
    return replace(call, arguments=text, changes=(*call.changes, change))


def _apply_verdict(call: CallView, verdict: AnswerVerdict, at: float) -> CallView:
    match verdict:
        case Allow():
            return replace(call, state="cleared", question=None)
        case Modify(arguments, reason):
            changes = (*call.changes, ArgumentChange("", f"the gate: {reason}"))
            text = _encode_arguments(arguments)
            return replace(call, state="cleared", question=None, arguments=text, changes=changes)
        case Deny(reason):
            result = ToolResult.from_text("denied", f"Denied: {reason}")
            return _close_call(call, result, at)


def _close_call(call: CallView, result: ToolResult, at: float) -> CallView:
    state = _CLOSED_STATES[result.kind]
    return replace(
        stop_agents(call),
        state=state,
        question=None,
        waits_for=None,
        result=result,
        ended_at=at,
        progress="",
    )


def _encode_arguments(arguments: Mapping[str, object]) -> str:
    return msgspec.json.encode(arguments).decode()


def take_over_calls(view: Projection, fact: RunResumed, before: Setup | None) -> Projection:
    """Return the view after another driver has taken the open calls over."""

    def take_over(call: CallView) -> CallView:
        doubted = call.call.id in fact.doubted
        if doubted:
            call = replace(call, answer=None, answered_by="", answered_at=None)
        known = _as_call_state(call)
        phase = next_phase(known, classify_resume(known, before, fact.setup, doubted=doubted))
        if phase == "proposed":
            call = replace(call, arguments=None, changes=(), verdict=None)
        state = _OPEN_STATES[phase or known.phase]
        return replace(stop_agents(call), state=state, waits_for=None, progress="")

    return _change_open_calls(view, take_over, (fact.seq, 0))


def disown_calls(view: Projection, fact: SessionImported) -> Projection:
    """Return the view after an import: whatever was decided about the open calls is void."""

    def disown(call: CallView) -> CallView:
        return CallView(call.call, key=call.key, starts=call.starts, started_at=call.started_at)

    return _change_open_calls(view, disown, (fact.seq, 0))


def abandon_calls(view: Projection, end: RunEnded) -> Projection:
    """Return the view with a result for each call that the end of the run closed."""

    def abandon(call: CallView) -> CallView:
        result = abandoned_result(_as_call_state(call), end)
        return replace(_close_call(call, result, end.at), abandoned=True)

    return _change_open_calls(view, abandon, (end.seq, 0))


def _as_call_state(call: CallView) -> CallState:
    """Return a call that is open as the fold knows it."""
    phase: CallPhase = "closed"
    for state, known in _PHASES.items():
        if call.state == state:
            phase = known
    return CallState(call.call, phase, answered=call.answer is not None, began=call.starts > 0)


def _change_open_calls(
    view: Projection, change: Callable[[CallView], CallView], place: Place
) -> Projection:
    for call in view.open_calls:
        view = replace_call(view, change(call), place)
    return view


def replace_call(view: Projection, call: CallView, place: Place) -> Projection:
    """Return the view with a call of its last reply changed."""
    call = replace(call, changed=place)
    tail = tuple(
        _with_call(entry, call, place)
        if isinstance(entry, ReplyEntry) and any(one.id == call.id for one in entry.calls)
        else entry
        for entry in view.tail
    )
    return replace(view, tail=tail)


def _with_call(entry: ReplyEntry, call: CallView, place: Place) -> ReplyEntry:
    calls = tuple(call if one.id == call.id else one for one in entry.calls)
    return replace(entry, calls=calls, changed=place)
