"""Why a run did what it did, in words: a line for each thing that is on record.

Each line begins with the number of its record, so that one can fork there. All that comes from
outside, such as text of the model or of a tool, is bounded and holds no control characters.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from windlass.core.audit.phrases import (
    clip_text,
    count_attachments,
    explain_addition,
    explain_allotment,
    explain_answer,
    explain_compaction,
    explain_reply_verdict,
    format_charge,
    format_count,
    format_duration,
    format_limits,
    format_money,
    format_repairs,
    format_result,
    format_rule,
    format_verdict,
    join_texts,
    printable_line,
    quote_text,
)
from windlass.core.errors import IllegalFact
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
)
from windlass.core.fold.run import apply_fact
from windlass.core.messages import ToolCall
from windlass.core.run_report import open_questions
from windlass.core.setup import Setup
from windlass.core.state import CallState, RunState, State
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify

ExplainedLine = tuple[int, str]
"""How deep a line stands, and its words."""


def explain(session: str, facts: Iterable[Fact]) -> Iterator[str]:
    """The lines of a session's story."""
    teller, state = _FactExplainer(), State(session)
    for fact in facts:
        for depth, words in teller.explain_fact(state, fact):
            yield f"{fact.seq:>4}  {'  ' * depth}{words}"
        try:
            state = apply_fact(state, fact)
        except IllegalFact as error:
            yield f"{fact.seq:>4}  The record contradicts itself: {error}"
            return
        if isinstance(fact, RunEnded) and state.run is not None:
            yield f"{'':>4}    {_format_totals(state.run)}"
    yield from (f"{'':>4}    {words}" for words in _explain_open_run(state))


class _FactExplainer:
    """Remembers what a fact alone does not say: the names of the calls, and when each began."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._began: dict[str, float] = {}

    def explain_fact(self, state: State, fact: Fact) -> Iterator[ExplainedLine]:
        """What this fact says, in a session that has come so far."""
        match fact:
            case RunStarted():
                yield from _explain_run_started(fact)
            case RunResumed():
                yield from self._explain_run_resumed(state, fact)
            case AttemptStarted():
                yield from _explain_attempt_started(state, fact)
            case AttemptFailed():
                yield from _explain_attempt_failed(fact)
            case StepProposed():
                yield from self._explain_step_proposed(fact)
            case CallJudged():
                yield from self._explain_call_judged(fact)
            case CallAnswered():
                yield 3, f"{self._call_label(fact.call_id)}: {explain_answer(fact)}"
            case CallStarted():
                yield from self._explain_call_started(state, fact)
            case CallFinished() | CallLate():
                yield from self._explain_call_ended(fact)
            case ReplyJudged():
                yield 2, f"The reply {explain_reply_verdict(fact.verdict)}"
            case NoteGiven(text):
                yield 1, f"The model was told: {quote_text(text)}"
            case BudgetAllotted():
                yield 1, explain_allotment(fact)
            case ContextCompacted():
                yield 1, explain_compaction(fact)
            case SteeringGiven() | SteeringTaken() | KnowledgeRecalled():
                yield 1, explain_addition(fact)
            case LookupsPlanned(calls):
                yield 1, f"The prompt speaks of what {format_count(len(calls), 'call')} can look up"
                yield from self._explain_calls(calls)
            case RunEnded():
                yield from _explain_run_ended(state, fact)
            case _:
                assert_never(fact)

    def _call_label(self, call_id: str) -> str:
        return f"{self._names.get(call_id, 'call')} ({printable_line(call_id)})"

    def _explain_run_resumed(self, state: State, fact: RunResumed) -> Iterator[ExplainedLine]:
        idle = f" after {format_duration(fact.at - state.at)}" if fact.at > state.at else ""
        self._began.clear()
        yield 1, f"Another driver took over{idle}"
        for change in fact.drift:
            yield 2, f"Changed since, with consent: {printable_line(change)}"
        for words in _explain_setup(fact.setup) if fact.setup else ():
            yield 2, words
        for left in fact.reaped:
            yield 2, f"Still ran, and was ended: {printable_line(left)}"
        attempt = state.run.attempt if state.run else None
        if attempt is not None:
            cost = f"{attempt.reserved.input + attempt.reserved.output:,} tokens"
            yield 2, f"A request was under way: all that was reserved counts as spent, {cost}"
        for call in state.step.calls if state.step else ():
            if call.phase == "started":
                yield 2, f"{self._call_label(call.id)} had started, and may have taken effect"

    def _explain_step_proposed(self, fact: StepProposed) -> Iterator[ExplainedLine]:
        text, calls = fact.reply.text.strip(), fact.reply.calls
        words = quote_text(text) if text else "nothing" if not calls else "no text"
        asked = f", and {format_count(len(calls), 'call')}" if calls else ""
        stops = {"length": ", cut off by its length", "refusal": ", a refusal"}
        yield 2, f"It replied {words}{asked}{stops.get(fact.stop, '')}{format_charge(fact.charge)}"
        yield from self._explain_calls(calls)

    def _explain_calls(self, calls: Iterable[ToolCall]) -> Iterator[ExplainedLine]:
        for call in calls:
            self._names[call.id] = printable_line(call.name)
            yield 3, f"{self._call_label(call.id)} called with {clip_text(call.arguments or '{}')}"

    def _explain_call_judged(self, fact: CallJudged) -> Iterator[ExplainedLine]:
        name = self._call_label(fact.call_id)
        if fact.changes:
            yield 3, f"{name}: its arguments were repaired: {format_repairs(fact.changes)}"
        match fact.verdict:
            case Ask(question):
                yield (
                    3,
                    f"{name}: a person is asked{format_rule(fact.verdict.rule)}: {quote_text(question)}",
                )
            case InvalidCall(code, message):
                yield 3, f"{name}: not a valid call ({code}): {quote_text(message)}"
            case Allow() | Deny() | Modify():
                yield 3, f"{name}: {format_verdict(fact.verdict)}"

    def _explain_call_started(self, state: State, fact: CallStarted) -> Iterator[ExplainedLine]:
        call = _find_open_call(state, fact.call_id)
        spec = state.setup.find_tool(call.call.name) if call and state.setup else None
        effect = spec.effect if spec else "write"
        again = "started again" if call and call.began else "started"
        self._began[fact.call_id] = fact.at
        yield (
            3,
            f"{self._call_label(fact.call_id)}: {again} ({effect}), as {printable_line(fact.key)}",
        )

    def _explain_call_ended(self, fact: CallFinished | CallLate) -> Iterator[ExplainedLine]:
        since = self._began.get(fact.call_id, fact.at)
        took = f" after {format_duration(fact.at - since)}" if fact.at > since else ""
        late = "too late to count: " if isinstance(fact, CallLate) else ""
        yield 3, f"{self._call_label(fact.call_id)}: {late}{format_result(fact.result)}{took}"
        for charge in fact.charges if isinstance(fact, CallFinished) else ():
            yield 4, f"It paid {printable_line(charge.model)}{format_charge(charge)}"


def _find_open_call(state: State, call_id: str) -> CallState | None:
    calls = state.step.calls if state.step else ()
    return next((call for call in calls if call.id == call_id), None)


def _explain_run_started(fact: RunStarted) -> Iterator[ExplainedLine]:
    caller = f" on behalf of {printable_line(fact.caller)}" if fact.caller else ""
    caller += f" for {printable_line(fact.parent)}" if fact.parent else ""
    yield (
        0,
        f"Run {fact.run} began{caller}: {quote_text(join_texts(fact.prompt))}{count_attachments(fact.prompt)}",
    )
    if fact.setup is not None:
        yield from ((1, words) for words in _explain_setup(fact.setup))


def _explain_setup(setup: Setup) -> Iterator[str]:
    others = "".join(f", then {info.name}" for info in setup.fallbacks)
    tools = ", ".join(f"{spec.name} ({spec.effect})" for spec in setup.tools)
    yield f"The model: {printable_line(setup.model.name + others)}. The policy: {setup.gate or 'none'}"
    yield f"The tools: {printable_line(tools or 'none')}"
    session, shared = (
        format_limits(setup.session_limits),
        ", ".join(one.name for one in setup.budgets),
    )
    more = f". Of the session: {session}" if session != "none" else ""
    more += f". Shared budgets: {printable_line(shared)}" if shared else ""
    yield f"The limits: {format_limits(setup.limits)}{more}"


def _explain_attempt_started(state: State, fact: AttemptStarted) -> Iterator[ExplainedLine]:
    run, reserved = state.run, fact.reserved
    most = f"{reserved.input:,} tokens in, {reserved.output:,} out{format_money(reserved.usd)}"
    if fact.purpose != "main":
        yield 1, f"Asked {printable_line(fact.model)} for a summary; it may take {most}"
        return
    last = run.failures[-1] if run and run.failures else None
    whom = printable_line(fact.model)
    if last is not None and run is not None and run.model != fact.model:
        asked = f"asked {whom}, since the attempts at {printable_line(run.model)} are spent"
    elif last is not None:
        asked = f"asked {whom} again, attempt {fact.attempt}, after {format_duration(last.wait_s)}"
    else:
        asked = f"asked {whom}"
    landing = "; the tools are switched off, since the cap is reached" if fact.landing else ""
    yield 1, f"Step {fact.step}: {asked}; it may take {most}{landing}"


def _explain_attempt_failed(fact: AttemptFailed) -> Iterator[ExplainedLine]:
    kind = fact.fault.kind.replace("_", " ")
    yield (
        2,
        f"The attempt failed ({kind}): {quote_text(fact.fault.message)}{format_charge(fact.charge)}",
    )
    if fact.partial:
        seen = "watchers had seen" if fact.visible else "it had come to"
        yield 3, f"By then {seen} {quote_text(fact.partial)}"


def _explain_run_ended(state: State, fact: RunEnded) -> Iterator[ExplainedLine]:
    why = f": {printable_line(fact.reason)}" if fact.reason else ""
    number = state.run.number if state.run else 0
    for call in state.step.calls if state.step else ():
        if call.phase != "closed":
            how = "had started, and may have taken effect" if call.began else "had not started"
            yield 2, f"{printable_line(call.call.name)} ({call.id}) was given up: it {how}"
    for charge in fact.charges:
        yield 2, f"The calls under way paid {printable_line(charge.model)}{format_charge(charge)}"
    if fact.partial:
        yield 2, f"The reply had come to {quote_text(fact.partial)}"
    yield 1, f"Run {number} ended as {fact.outcome}{why}{format_charge(fact.charge)}"


def _format_totals(run: RunState) -> str:
    steps, asked = format_count(run.steps, "step"), format_count(run.model_calls, "request")
    usage, known = run.ledger.usage, run.ledger.usd
    tokens = f"{usage.input:,} tokens in, {usage.output:,} out" if usage else "no usage known"
    cost = format_money(known) if known is not None or usage is None else ", at an unknown price"
    part = " (in part estimated)" if usage and usage.estimated else ""
    return (
        f"In all: {steps}, {asked}, {tokens}{cost}{part}, {format_duration(run.elapsed_s)} at work"
    )


def _explain_open_run(state: State) -> Iterator[str]:
    if not state.is_active or state.run is None:
        return
    for question in open_questions(state):
        yield f"It waits for an answer: {quote_text(question.question)} ({question.call.id})"
    if not state.is_waiting:
        yield f"Run {state.run.number} has not ended: it is under way, or waits to be resumed"
