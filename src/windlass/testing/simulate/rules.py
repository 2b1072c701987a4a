"""What must be true of every session, whatever happened in it."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

from windlass.core.events import (
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallStarted,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepProposed,
)
from windlass.core.fold import fold
from windlass.core.messages import Assistant, Ledger, Results, ToolCall, User
from windlass.core.state import State
from windlass.testing.events import Trace, check_trace
from windlass.testing.simulate.plan import EFFECTS, Plan
from windlass.testing.simulate.play import SESSION, Drive, Played, play
from windlass.testing.simulate.world import reply_at, told

CANCEL_S = 0.1


class Broken(AssertionError):
    """A rule does not hold."""


def check(played: Played) -> None:
    """Raise Broken unless all rules hold."""
    state = fold(SESSION, played.facts)
    for drive in played.drives:
        _watched_rightly(drive, played.plan)
        _stopped_in_time(drive)
    _ended_once(played)
    _effects_in_order(played)
    _paid_once(played)
    _within_budget(played, state)
    _counted(played, state)
    _paired(state)
    _said_what_was_said(played, state)
    _judged_first(played)
    _same_as_undisturbed(played, state)


def _watched_rightly(drive: Drive, plan: Plan) -> None:
    """L3, E1, E2, E6, S5: one end, which is last; places grow; the text is shown exactly once."""
    if not plan.watched or not drive.powered:
        return
    if drive.result is None and drive.cancelled_at is None:
        raise Broken("L3: a drive without a result")
    if not drive.events and drive.cancelled_at is not None:
        return  # Stopped before the run had begun.
    check_trace(drive.events)
    last = drive.events[-1]
    if drive.result is not None:
        outcome = "suspended" if isinstance(last, RunSuspended) else getattr(last, "outcome", "")
        _require(outcome == drive.result.outcome, f"L3: {outcome} shown, {drive.result.outcome}")
    _text_once(drive)


def _text_once(drive: Drive) -> None:
    said, asked = "", False
    for event in drive.events:
        asked = asked or isinstance(event, AttemptStarted)
        if isinstance(event, StepProposed):
            said, asked = said + event.reply.text, False
        elif isinstance(event, RunEnded) and asked:
            # Text of an attempt in an earlier process was shown there, and not here.
            said += event.partial
    shown = Trace(drive.events).text_shown()
    _require(shown == said, f"S5: shown {shown!r}, said {said!r}")


def _stopped_in_time(drive: Drive) -> None:
    """C1: the end comes within 100 ms of a cancel."""
    if drive.cancelled_at is not None and drive.powered:
        took = drive.ended_at - drive.cancelled_at
        _require(took <= CANCEL_S, f"C1: the end came {took:.3f} s after the cancel")


def _ended_once(played: Played) -> None:
    """L3, J1: the records count up, and each run has one start and one end, in turn."""
    turns = [fact for fact in played.facts if isinstance(fact, RunStarted | RunEnded)]
    kinds = [type(fact) for fact in turns]
    _require(kinds == [RunStarted, RunEnded] * played.plan.runs, f"L3: {kinds}")
    _require(all(b.seq == a.seq + 1 for a, b in pairwise(played.facts)), "J1: a gap")
    _require(all(b.at >= a.at for a, b in pairwise(played.facts)), "J1: time ran backwards")


def _effects_in_order(played: Played) -> None:
    """J2: no write twice; none without its record; none reported that did not happen."""
    started = Counter(fact.key for fact in played.facts if isinstance(fact, CallStarted))
    done = Counter(key for key, _, _ in played.outside.effects)
    for key, tool, number in played.outside.effects:
        _require(key in started, f"J1: {tool} {number} was done before its record")
        _require(done[key] == 1, f"J2: {tool} {number} was done {done[key]} times")
    keys = {fact.call_id: fact.key for fact in played.facts if isinstance(fact, CallStarted)}
    names = _names(played)
    for fact in played.facts:
        if isinstance(fact, CallFinished) and fact.result.kind == "value":
            needs_effect = EFFECTS[names[fact.call_id]] != "read"
            happened = done[keys[fact.call_id]] == 1 or not needs_effect
            _require(happened, f"J2: {fact.call_id} is told as done and was not")


def _names(played: Played) -> dict[str, str]:
    proposed = (fact for fact in played.facts if isinstance(fact, StepProposed))
    return {call.id: call.name for fact in proposed for call in fact.reply.calls}


def _paid_once(played: Played) -> None:
    """J3: a step whose reply is on record is not asked for again; one counter per step (S3)."""
    open_attempts = 0
    for fact in played.facts:
        if isinstance(fact, AttemptStarted):
            open_attempts += 1
            _require(fact.attempt <= 6, "S3: more than six attempts")  # noqa: PLR2004
        elif isinstance(fact, StepProposed | RunResumed | RunEnded):
            open_attempts = 0
        _require(open_attempts <= 6, "S3: more than six requests for a step")  # noqa: PLR2004
    proposed = sum(isinstance(fact, StepProposed) for fact in played.facts)
    whole = sum(served.whole for served in played.outside.served)
    lost = sum(not drive.powered or drive.cancelled_at is not None for drive in played.drives)
    _require(whole <= proposed + lost, f"J3: {whole} replies paid, {proposed} kept, {lost} stops")


def _within_budget(played: Played, state: State) -> None:
    """B2: with truthful usage, no run costs more than its limit."""
    limit = played.plan.usd_max
    if limit is None or not played.plan.usage_reported:
        return
    spent = sum((served.usd for served in played.outside.served), Decimal(0))
    _require(spent <= limit * played.plan.runs, f"B2: {spent} spent, the limit was {limit} a run")
    booked = state.ledger.usd or Decimal(0)
    _require(booked >= spent, f"B2: {spent} spent, {booked} booked")


def _counted(played: Played, state: State) -> None:
    """S12, L7: totals are the sums of the charges; the steps of a run are within the cap."""
    ledger = Ledger()
    for fact in played.facts:
        charge = getattr(fact, "charge", None)
        ledger = ledger.add(charge) if charge else ledger
    resumed = any(isinstance(fact, RunResumed) for fact in played.facts)
    _require(resumed or ledger == state.ledger, "S12: the totals are not the sums of the charges")
    steps, most = 0, played.plan.steps_max + (played.plan.on_limit == "answer")
    for fact in played.facts:
        steps = 0 if isinstance(fact, RunStarted) else steps + isinstance(fact, StepProposed)
        _require(steps <= most, f"L7: {steps} replies under a cap of {played.plan.steps_max}")
    if resumed or played.plan.troubles or not played.plan.usage_reported:
        return
    reported = sum(served.usage.total for served in played.outside.served if served.whole)
    usage = state.ledger.usage
    if usage is not None and not usage.estimated:
        _require(usage.total == reported, f"S12: {usage.total} counted, {reported} reported")


def _paired(state: State) -> None:
    """T6, C3, X1: each call is answered once, in the model's order, before all else."""
    messages = list(state.transcript)
    _require(isinstance(messages[0], User), "X1: the first message is not a user's")
    for at, message in enumerate(messages):
        calls = message.calls if isinstance(message, Assistant) else ()
        after = messages[at + 1] if at + 1 < len(messages) else None
        if calls:
            answered = [item.call.id for item in after.items] if isinstance(after, Results) else []
            _require(answered == [call.id for call in calls], f"T6: {calls} got {answered}")
        else:
            _require(not isinstance(after, Results), "X1: results without calls")


def _said_what_was_said(played: Played, state: State) -> None:
    """S7, S9, L9, T4: replies, arguments and results are the planned ones, unmixed."""
    proposed = [fact for fact in played.facts if isinstance(fact, StepProposed)]
    texts = {reply_at(played.plan, at).text for at in range(len(played.plan.replies) + 1)}
    for fact in proposed:
        _require(fact.reply.text in texts, f"S7: {fact.reply.text!r} was never said")
    planned = {call.number: call for reply in played.plan.replies for call in reply.calls}
    raw = {(call.tool, call.arguments) for call in planned.values()}
    for fact in proposed:
        for call in fact.reply.calls:
            _require((call.name, call.arguments) in raw, f"S9: {call} was never made")
    for message in state.transcript:
        for item in message.items if isinstance(message, Results) else ():
            _value_is_right(item.call, item.result.kind, item.result.text)


def _value_is_right(call: ToolCall, kind: str, text: str) -> None:
    if kind == "value":
        number = int("".join(filter(str.isdigit, call.arguments)))
        _require(text == told(call.name, number).text, f"T4: {call} got {text!r}")


def _judged_first(played: Played) -> None:
    """G2, L2: a call starts only after an allowing verdict of its own."""
    allowed: set[str] = set()
    for fact in played.facts:
        verdict = getattr(fact, "verdict", None)
        if isinstance(fact, CallJudged) or hasattr(fact, "digest"):
            tag = type(verdict).__name__
            call_id = str(getattr(fact, "call_id", ""))
            (allowed.add if tag in ("Allow", "Modify") else allowed.discard)(call_id)
        elif isinstance(fact, CallStarted):
            _require(fact.call_id in allowed, f"L2: {fact.call_id} ran without leave")


def _same_as_undisturbed(played: Played, state: State) -> None:
    """J4: crashes leave no trace in the transcript, if interrupted writes can be looked up."""
    plan = played.plan
    crashed = any(not drive.powered for drive in played.drives)
    timed = plan.seconds_max is not None or plan.usd_max is not None
    if not crashed or not plan.reconciles or plan.cancel_after_s is not None:
        return
    if plan.troubles or timed:
        return
    twin = fold(SESSION, play(replace(plan, crashes=())).facts)
    _require(twin.transcript == state.transcript, "J4: the transcript differs from the calm one")


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise Broken(otherwise)
