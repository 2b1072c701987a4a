"""Why a run did what it did, in words: a line for each thing that is on record.

Each line begins with the number of its record, so that one can fork there. All that comes from
outside, such as text of the model or of a tool, is bounded and holds no control characters.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from windlass.core.audit.phrases import (
    added,
    allotted,
    answered,
    attached,
    brief,
    by_rule,
    compacted,
    count,
    judged_reply,
    limits,
    money,
    paid,
    quoted,
    repairs,
    result,
    said,
    seconds,
    shown,
    verdict,
)
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    Allotted,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Compacted,
    Fact,
    Heeded,
    Hydrated,
    NoteGiven,
    Recalled,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    Steered,
    StepProposed,
)
from windlass.core.fold.run import apply
from windlass.core.messages import ToolCall
from windlass.core.run_report import questions
from windlass.core.setup import Setup
from windlass.core.state import Call, Run, State
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Modify

Told = tuple[int, str]
"""How deep a line stands, and its words."""


def explain(session: str, facts: Iterable[Fact]) -> Iterator[str]:
    """The lines of a session's story."""
    teller, state = _Teller(), State(session)
    for fact in facts:
        for depth, words in teller.tell(state, fact):
            yield f"{fact.seq:>4}  {'  ' * depth}{words}"
        try:
            state = apply(state, fact)
        except IllegalFact as error:
            yield f"{fact.seq:>4}  The record contradicts itself: {error}"
            return
        if isinstance(fact, RunEnded) and state.run is not None:
            yield f"{'':>4}    {_totals(state.run)}"
    yield from (f"{'':>4}    {words}" for words in _left_open(state))


class _Teller:
    """Remembers what a fact alone does not say: the names of the calls, and when each began."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._began: dict[str, float] = {}

    def tell(self, state: State, fact: Fact) -> Iterator[Told]:
        """What this fact says, in a session that has come so far."""
        match fact:
            case RunStarted():
                yield from _run_started(fact)
            case RunResumed():
                yield from self._run_resumed(state, fact)
            case AttemptStarted():
                yield from _attempt_started(state, fact)
            case AttemptFailed():
                yield from _attempt_failed(fact)
            case StepProposed():
                yield from self._step_proposed(fact)
            case CallJudged():
                yield from self._call_judged(fact)
            case CallAnswered():
                yield 3, f"{self._name(fact.call_id)}: {answered(fact)}"
            case CallStarted():
                yield from self._call_started(state, fact)
            case CallFinished() | CallLate():
                yield from self._call_ended(fact)
            case ReplyJudged():
                yield 2, f"The reply {judged_reply(fact.verdict)}"
            case NoteGiven(text):
                yield 1, f"The model was told: {quoted(text)}"
            case Allotted():
                yield 1, allotted(fact)
            case Compacted():
                yield 1, compacted(fact)
            case Steered() | Heeded() | Recalled():
                yield 1, added(fact)
            case Hydrated(calls):
                yield 1, f"The prompt speaks of what {count(len(calls), 'call')} can look up"
                yield from self._called(calls)
            case RunEnded():
                yield from _run_ended(state, fact)
            case _:
                assert_never(fact)

    def _name(self, call_id: str) -> str:
        return f"{self._names.get(call_id, 'call')} ({shown(call_id)})"

    def _run_resumed(self, state: State, fact: RunResumed) -> Iterator[Told]:
        idle = f" after {seconds(fact.at - state.at)}" if fact.at > state.at else ""
        self._began.clear()
        yield 1, f"Another driver took over{idle}"
        for change in fact.drift:
            yield 2, f"Changed since, with consent: {shown(change)}"
        for words in _set_up(fact.setup) if fact.setup else ():
            yield 2, words
        for left in fact.reaped:
            yield 2, f"Still ran, and was ended: {shown(left)}"
        attempt = state.run.attempt if state.run else None
        if attempt is not None:
            cost = f"{attempt.reserved.input + attempt.reserved.output:,} tokens"
            yield 2, f"A request was under way: all that was reserved counts as spent, {cost}"
        for call in state.step.calls if state.step else ():
            if call.phase == "started":
                yield 2, f"{self._name(call.id)} had started, and may have taken effect"

    def _step_proposed(self, fact: StepProposed) -> Iterator[Told]:
        text, calls = fact.reply.text.strip(), fact.reply.calls
        words = quoted(text) if text else "nothing" if not calls else "no text"
        asked = f", and {count(len(calls), 'call')}" if calls else ""
        stops = {"length": ", cut off by its length", "refusal": ", a refusal"}
        yield 2, f"It replied {words}{asked}{stops.get(fact.stop, '')}{paid(fact.charge)}"
        yield from self._called(calls)

    def _called(self, calls: Iterable[ToolCall]) -> Iterator[Told]:
        for call in calls:
            self._names[call.id] = shown(call.name)
            yield 3, f"{self._name(call.id)} called with {brief(call.arguments or '{}')}"

    def _call_judged(self, fact: CallJudged) -> Iterator[Told]:
        name = self._name(fact.call_id)
        if fact.changes:
            yield 3, f"{name}: its arguments were repaired: {repairs(fact.changes)}"
        match fact.verdict:
            case Ask(question):
                yield (
                    3,
                    f"{name}: a person is asked{by_rule(fact.verdict.rule)}: {quoted(question)}",
                )
            case Invalid(code, message):
                yield 3, f"{name}: not a valid call ({code}): {quoted(message)}"
            case Allow() | Deny() | Modify():
                yield 3, f"{name}: {verdict(fact.verdict)}"

    def _call_started(self, state: State, fact: CallStarted) -> Iterator[Told]:
        call = _open_call(state, fact.call_id)
        spec = state.setup.tool(call.call.name) if call and state.setup else None
        effect = spec.effect if spec else "write"
        again = "started again" if call and call.began else "started"
        self._began[fact.call_id] = fact.at
        yield 3, f"{self._name(fact.call_id)}: {again} ({effect}), as {shown(fact.key)}"

    def _call_ended(self, fact: CallFinished | CallLate) -> Iterator[Told]:
        since = self._began.get(fact.call_id, fact.at)
        took = f" after {seconds(fact.at - since)}" if fact.at > since else ""
        late = "too late to count: " if isinstance(fact, CallLate) else ""
        yield 3, f"{self._name(fact.call_id)}: {late}{result(fact.result)}{took}"
        for charge in fact.charges if isinstance(fact, CallFinished) else ():
            yield 4, f"It paid {shown(charge.model)}{paid(charge)}"


def _open_call(state: State, call_id: str) -> Call | None:
    calls = state.step.calls if state.step else ()
    return next((call for call in calls if call.id == call_id), None)


def _run_started(fact: RunStarted) -> Iterator[Told]:
    caller = f" on behalf of {shown(fact.caller)}" if fact.caller else ""
    caller += f" for {shown(fact.parent)}" if fact.parent else ""
    yield 0, f"Run {fact.run} began{caller}: {quoted(said(fact.prompt))}{attached(fact.prompt)}"
    if fact.setup is not None:
        yield from ((1, words) for words in _set_up(fact.setup))


def _set_up(setup: Setup) -> Iterator[str]:
    others = "".join(f", then {info.name}" for info in setup.fallbacks)
    tools = ", ".join(f"{spec.name} ({spec.effect})" for spec in setup.tools)
    yield f"The model: {shown(setup.model.name + others)}. The policy: {setup.gate or 'none'}"
    yield f"The tools: {shown(tools or 'none')}"
    session, shared = limits(setup.session_limits), ", ".join(one.name for one in setup.budgets)
    more = f". Of the session: {session}" if session != "none" else ""
    more += f". Shared budgets: {shown(shared)}" if shared else ""
    yield f"The limits: {limits(setup.limits)}{more}"


def _attempt_started(state: State, fact: AttemptStarted) -> Iterator[Told]:
    run, reserved = state.run, fact.reserved
    most = f"{reserved.input:,} tokens in, {reserved.output:,} out{money(reserved.usd)}"
    if fact.purpose != "main":
        yield 1, f"Asked {shown(fact.model)} for a summary; it may take {most}"
        return
    last = run.failures[-1] if run and run.failures else None
    whom = shown(fact.model)
    if last is not None and run is not None and run.model != fact.model:
        asked = f"asked {whom}, since the attempts at {shown(run.model)} are spent"
    elif last is not None:
        asked = f"asked {whom} again, attempt {fact.attempt}, after {seconds(last.wait_s)}"
    else:
        asked = f"asked {whom}"
    landing = "; the tools are switched off, since the cap is reached" if fact.landing else ""
    yield 1, f"Step {fact.step}: {asked}; it may take {most}{landing}"


def _attempt_failed(fact: AttemptFailed) -> Iterator[Told]:
    kind = fact.fault.kind.replace("_", " ")
    yield 2, f"The attempt failed ({kind}): {quoted(fact.fault.message)}{paid(fact.charge)}"
    if fact.partial:
        seen = "watchers had seen" if fact.visible else "it had come to"
        yield 3, f"By then {seen} {quoted(fact.partial)}"


def _run_ended(state: State, fact: RunEnded) -> Iterator[Told]:
    why = f": {shown(fact.reason)}" if fact.reason else ""
    number = state.run.number if state.run else 0
    for call in state.step.calls if state.step else ():
        if call.phase != "closed":
            how = "had started, and may have taken effect" if call.began else "had not started"
            yield 2, f"{shown(call.call.name)} ({call.id}) was given up: it {how}"
    for charge in fact.charges:
        yield 2, f"The calls under way paid {shown(charge.model)}{paid(charge)}"
    if fact.partial:
        yield 2, f"The reply had come to {quoted(fact.partial)}"
    yield 1, f"Run {number} ended as {fact.outcome}{why}{paid(fact.charge)}"


def _totals(run: Run) -> str:
    steps, asked = count(run.steps, "step"), count(run.model_calls, "request")
    usage, known = run.ledger.usage, run.ledger.usd
    tokens = f"{usage.input:,} tokens in, {usage.output:,} out" if usage else "no usage known"
    cost = money(known) if known is not None or usage is None else ", at an unknown price"
    part = " (in part estimated)" if usage and usage.estimated else ""
    return f"In all: {steps}, {asked}, {tokens}{cost}{part}, {seconds(run.elapsed_s)} at work"


def _left_open(state: State) -> Iterator[str]:
    if not state.active or state.run is None:
        return
    for question in questions(state):
        yield f"It waits for an answer: {quoted(question.question)} ({question.call.id})"
    if not state.waiting:
        yield f"Run {state.run.number} has not ended: it is under way, or waits to be resumed"
