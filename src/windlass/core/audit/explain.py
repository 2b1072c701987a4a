"""Explain why a run did what it did: one line for each thing on record.

Each line begins with the number of its record, so that a reader can fork the session there. Text
from outside, such as that of a model or a tool, is bounded and free of control characters.

A fact that needs nothing but itself has its words in `describe()`, beside its fields. The others
are put into words here, because they need the session: the name of a call, the last failure.
"""

from collections.abc import Iterable, Iterator, Sequence

from windlass.core.errors import IllegalFact
from windlass.core.events import (
    AnswerCounted,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Fact,
    LookupsPlanned,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
    UndoPlanned,
)
from windlass.core.fold.run import apply_fact
from windlass.core.messages import Charge, ToolCall, ToolSpec
from windlass.core.phrases import (
    clip_text,
    count_attachments,
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
    quote_text,
)
from windlass.core.result import open_questions
from windlass.core.setup import Setup
from windlass.core.state import RunState, State, find_call
from windlass.core.text_clip import printable_line
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify, OutputMismatch

ExplainedLine = tuple[int, str]
"""The depth of a line, and its words."""
_STOP_PHRASES = {"length": ", cut off at the output limit", "refusal": ", a refusal"}
_MAY_HAVE_RUN = "had started, and may have taken effect"


def explain(session: str, facts: Iterable[Fact]) -> Iterator[str]:
    """Yield the lines that explain a session. A record that cannot follow ends them."""
    explainer = _FactExplainer()
    state = State(session)
    for fact in facts:
        for depth, words in explainer.explain_fact(state, fact):
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
    """Remembers what a single fact does not say: the names of the calls, and when each began."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._started_at: dict[str, float] = {}

    def explain_fact(self, state: State, fact: Fact) -> Iterator[ExplainedLine]:  # noqa: C901 - an arm per fact
        """Yield the lines for a fact. `state` is the session before it."""
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
            case CallAnswered() | AnswerCounted():
                yield 3, f"{self._call_label(fact.call_id)}: {_explain_answer(fact)}"
            case CallStarted():
                yield from self._explain_call_started(state, fact)
            case CallFinished() | CallLate():
                yield from self._explain_call_ended(fact)
            case ReplyJudged():
                yield 2, f"The reply {_explain_reply_verdict(fact.verdict)}"
            case LookupsPlanned(calls):
                yield 1, f"The prompt refers to what {format_count(len(calls), 'call')} can look up"
                yield from self._explain_calls(calls)
            case UndoPlanned(calls, run=run):
                yield 1, f"Undo {format_count(len(calls), 'call')} of run {run}, the last one first"
                yield from self._explain_calls(calls)
            case RunEnded():
                yield from _explain_run_ended(state, fact)
            case _:
                yield 1, fact.describe()

    def _call_label(self, call_id: str) -> str:
        return f"{self._names.get(call_id, 'call')} ({printable_line(call_id)})"

    def _explain_run_resumed(self, state: State, fact: RunResumed) -> Iterator[ExplainedLine]:
        if fact.at > state.at:
            idle = f" after {format_duration(fact.at - state.at)}"
        else:
            idle = ""
        self._started_at.clear()
        yield 1, f"Another driver took over{idle}"
        for change in fact.drift:
            yield 2, f"Changed since, with consent: {printable_line(change)}"
        for words in _explain_setup(fact.setup) if fact.setup else ():
            yield 2, words
        for process in fact.reaped:
            yield 2, f"Was still running, and was ended: {printable_line(process)}"
        for call_id in fact.doubted:
            yield 2, f"{self._call_label(call_id)} is judged again: nothing proves who allowed it"
        attempt = state.run.attempt if state.run else None
        if attempt is not None:
            tokens = f"{attempt.reserved.input + attempt.reserved.output:,} tokens"
            yield 2, f"A request was in flight: its whole reservation counts as spent, {tokens}"
        for call in state.step_calls:
            if call.phase == "started":
                yield 2, f"{self._call_label(call.id)} {_MAY_HAVE_RUN}"

    def _explain_step_proposed(self, fact: StepProposed) -> Iterator[ExplainedLine]:
        text = fact.reply.text.strip()
        calls = fact.reply.calls
        silence = "no text" if calls else "nothing"
        words = quote_text(text) if text else silence
        if calls:
            and_calls = f", and {format_count(len(calls), 'call')}"
        else:
            and_calls = ""
        stop = _STOP_PHRASES.get(fact.stop, "")
        yield 2, f"It replied {words}{and_calls}{stop}{format_charge(fact.charge)}"
        yield from self._explain_calls(calls)

    def _explain_calls(self, calls: Iterable[ToolCall]) -> Iterator[ExplainedLine]:
        for call in calls:
            self._names[call.id] = printable_line(call.name)
            yield 3, f"{self._call_label(call.id)} called with {clip_text(call.arguments or '{}')}"

    def _explain_call_judged(self, fact: CallJudged) -> Iterator[ExplainedLine]:
        label = self._call_label(fact.call_id)
        if fact.changes:
            yield 3, f"{label}: its arguments were repaired: {format_repairs(fact.changes)}"
        match fact.verdict:
            case Ask(question, rule):
                needed = ", and ".join(one.describe() for one in fact.verdict.approvals)
                who = printable_line(needed) or "a person"
                yield 3, f"{label}: {who} is asked{format_rule(rule)}: {quote_text(question)}"
            case InvalidCall(code, message):
                yield 3, f"{label}: not a valid call ({code}): {quote_text(message)}"
            case Allow() | Deny() | Modify():
                yield 3, f"{label}: {format_verdict(fact.verdict)}"
        yield from _explain_charges(fact.charges)

    def _explain_call_started(self, state: State, fact: CallStarted) -> Iterator[ExplainedLine]:
        call = find_call(state, fact.call_id)
        if call and state.setup:
            spec = state.setup.find_tool(call.call.name)
        else:
            spec = None
        effect = spec.effect if spec else "write"
        started = "started again" if call and call.began else "started"
        self._started_at[fact.call_id] = fact.at
        label = self._call_label(fact.call_id)
        yield 3, f"{label}: {started} ({effect}), as {printable_line(fact.key)}"

    def _explain_call_ended(self, fact: CallFinished | CallLate) -> Iterator[ExplainedLine]:
        since = self._started_at.get(fact.call_id, fact.at)
        if fact.at > since:
            took = f" after {format_duration(fact.at - since)}"
        else:
            took = ""
        late = "too late to count: " if isinstance(fact, CallLate) else ""
        yield 3, f"{self._call_label(fact.call_id)}: {late}{format_result(fact.result)}{took}"
        yield from _explain_charges(fact.charges if isinstance(fact, CallFinished) else ())


def _explain_charges(charges: Sequence[Charge]) -> Iterator[ExplainedLine]:
    for charge in charges:
        yield 4, f"It paid {printable_line(charge.model)}{format_charge(charge)}"


def _explain_answer(fact: CallAnswered | AnswerCounted) -> str:
    person = printable_line(fact.by) if fact.by else "somebody"
    if fact.person is not None and fact.person.origin:
        person += f" ({printable_line(fact.person.origin)})"
    granted = ""
    if isinstance(fact, AnswerCounted):
        granted = "; others have to agree too"
    elif fact.grant is not None:
        scope = printable_line(fact.grant.pattern or "exactly this call")
        granted = f"; and {scope} for the rest of the session"
    return f"{person} answered: {format_verdict(fact.verdict)}{granted}"


def _explain_reply_verdict(verdict: Allow | Deny | OutputMismatch) -> str:
    match verdict:
        case Allow(rule):
            return f"passed{format_rule(rule)}"
        case Deny(reason, rule):
            return f"was withheld{format_rule(rule)}: {quote_text(reason)}"
        case OutputMismatch(message):
            return f"does not fit the output type: {quote_text(message)}"


def _explain_run_started(fact: RunStarted) -> Iterator[ExplainedLine]:
    if fact.caller:
        caller = f" on behalf of {printable_line(fact.caller)}"
    else:
        caller = ""
    parent = f" for {printable_line(fact.parent)}" if fact.parent else ""
    prompt = quote_text(join_texts(fact.prompt))
    yield 0, f"Run {fact.run} began{caller}{parent}: {prompt}{count_attachments(fact.prompt)}"
    if fact.earlier:
        count = format_count(len(fact.earlier), "message")
        yield 1, f"It goes on with a conversation from elsewhere: {count}"
    if fact.setup is not None:
        yield from ((1, words) for words in _explain_setup(fact.setup))


def _explain_tool(spec: ToolSpec) -> str:
    when = ", once a result was shortened" if spec.needs_artifact else ""
    return f"{spec.name} ({spec.effect}{when})"


def _explain_setup(setup: Setup) -> Iterator[str]:
    fallbacks = "".join(f", then {info.name}" for info in setup.fallbacks)
    models = printable_line(setup.model.name + fallbacks)
    yield f"The model: {models}. The policy: {setup.gate or 'none'}"
    tools = ", ".join(map(_explain_tool, setup.tools))
    yield f"The tools: {printable_line(tools or 'none')}"
    limits = f"The limits: {format_limits(setup.limits)}"
    session_limits = format_limits(setup.session_limits)
    if session_limits != "none":
        limits += f". Of the session: {session_limits}"
    if setup.budgets:
        names = ", ".join(budget.name for budget in setup.budgets)
        limits += f". Shared budgets: {printable_line(names)}"
    yield limits


def _explain_attempt_started(state: State, fact: AttemptStarted) -> Iterator[ExplainedLine]:
    run = state.run
    reserved = fact.reserved
    model = printable_line(fact.model)
    most = f"{reserved.input:,} tokens in, {reserved.output:,} out{format_money(reserved.usd)}"
    if fact.purpose != "main":
        yield 1, f"Asked {model} for a summary; it may take {most}"
        return
    last = run.failures[-1] if run and run.failures else None
    if run is None or last is None:
        request = f"asked {model}"
    elif run.model != fact.model:
        request = f"asked {model}, since no attempts are left for {printable_line(run.model)}"
    else:
        wait = format_duration(last.wait_s)
        request = f"asked {model} again, attempt {fact.attempt}, after {wait}"
    landing = (
        "; the tools are switched off, since the step limit is reached" if fact.landing else ""
    )
    yield 1, f"Step {fact.step}: {request}; it may take {most}{landing}"


def _explain_attempt_failed(fact: AttemptFailed) -> Iterator[ExplainedLine]:
    kind = fact.fault.kind.replace("_", " ")
    message = quote_text(fact.fault.message)
    yield 2, f"The attempt failed ({kind}): {message}{format_charge(fact.charge)}"
    if fact.partial:
        seen = "watchers had seen" if fact.visible else "the reply was"
        yield 3, f"By then {seen} {quote_text(fact.partial)}"


def _explain_run_ended(state: State, fact: RunEnded) -> Iterator[ExplainedLine]:
    for call in state.step_calls:
        if call.phase != "closed":
            how = _MAY_HAVE_RUN if call.began else "had not started"
            yield 2, f"{printable_line(call.call.name)} ({call.id}) was given up: it {how}"
    for charge in fact.charges:
        yield 2, f"The calls in flight paid {printable_line(charge.model)}{format_charge(charge)}"
    if fact.partial:
        yield 2, f"The reply so far was {quote_text(fact.partial)}"
    author = f" by {printable_line(fact.by)}" if fact.by else ""
    reason = f": {printable_line(fact.reason)}" if fact.reason else ""
    number = state.run.number if state.run else 0
    yield 1, f"Run {number} ended as {fact.outcome}{author}{reason}{format_charge(fact.charge)}"


def _format_totals(run: RunState) -> str:
    steps = format_count(run.steps, "step")
    requests = format_count(run.model_calls, "request")
    worked = f"{format_duration(run.elapsed_s)} at work"
    usage = run.ledger.usage
    usd = run.ledger.usd
    if usage is None:
        return f"In all: {steps}, {requests}, no usage known{format_money(usd)}, {worked}"
    cost = ", at an unknown price" if usd is None else format_money(usd)
    estimated = " (in part estimated)" if usage.estimated else ""
    tokens = f"{usage.input:,} tokens in, {usage.output:,} out"
    return f"In all: {steps}, {requests}, {tokens}{cost}{estimated}, {worked}"


def _explain_open_run(state: State) -> Iterator[str]:
    if not state.is_active or state.run is None:
        return
    for question in open_questions(state):
        yield f"It waits for an answer: {quote_text(question.question)} ({question.call_id})"
    if state.is_queued:
        yield f"Run {state.run.number} waits in the queue for a driver"
    elif not state.is_waiting:
        yield f"Run {state.run.number} has not ended: it is working, or has to be resumed"
