"""Rules for records: what a journal adds up to, and how often a run may do something."""

from itertools import pairwise

from proof.simulate.outside import reply_at
from proof.simulate.people import call_number
from proof.simulate.plan import EFFECTS
from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from proof.simulate.sim_tools import tool_result
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAwaited,
    CallFinished,
    CallLate,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LimitsRaised,
    LookupsPlanned,
    MailRefused,
    NoteGiven,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    StepProposed,
)
from windlass.core.messages import AssistantMessage, TextPart, ToolCall, ToolResults, UserMessage
from windlass.core.state import State
from windlass.core.tool_search import unwrap_call
from windlass.core.verdicts import Allow

ATTEMPTS_MAX = 6
ESTABLISH_MAX = 4
DENIALS_MAX = 3
SLACK_S = 0.2


def check_records(played: PlayedSession, state: State) -> None:
    _check_ends(played)
    _check_paid_once(played)
    _check_pairs(state)
    _check_content(played, state)
    _check_history(played, state)
    _check_steering(played, state)
    _check_results(played, state)
    _check_knowledge(played)
    for run in _split_runs(played.facts):
        _check_step_count(run, played)
        _check_denials(run)
        _check_duration(run, played)
        _check_retries(run, played)


def _split_runs(facts: list[Fact]) -> list[list[Fact]]:
    runs: list[list[Fact]] = []
    for fact in facts:
        if isinstance(fact, RunStarted):
            runs.append([])
        runs[-1].append(fact)
    return runs


def _check_ends(played: PlayedSession) -> None:
    """L3, J1: the records count up; each run has one start and one end, and no bug ends it."""
    turns = [fact for fact in played.facts if isinstance(fact, RunStarted | RunEnded)]
    kinds = [type(fact) for fact in turns]
    require(kinds == [RunStarted, RunEnded] * played.plan.runs, f"L3: {kinds}")
    require(all(b.seq == a.seq + 1 for a, b in pairwise(played.facts)), "J1: a gap")
    require(all(b.at >= a.at for a, b in pairwise(played.facts)), "J1: time ran backwards")
    for fact in (*played.facts, *(one for facts in played.inner.values() for one in facts)):
        bug = isinstance(fact, RunEnded) and fact.fault is not None and fact.fault.kind == "bug"
        require(not bug, f"L3: {fact}")


def _check_paid_once(played: PlayedSession) -> None:
    """J3: a reply that is recorded is not requested again."""
    proposed = sum(isinstance(fact, StepProposed) for fact in played.facts)
    whole = sum(one.whole for one in played.outside.billed_requests if one.purpose == "main")
    lost = sum(not drive.powered or drive.cancelled_at is not None for drive in played.drives)
    require(whole <= proposed + lost, f"J3: {whole} replies paid, {proposed} kept, {lost} stops")


def _check_pairs(state: State) -> None:
    """T6, C3, X1: each call is answered once, in the order of the model, before anything else."""
    messages = list(state.transcript)
    require(isinstance(messages[0], UserMessage), "X1: the first message is not from a user")
    for at, message in enumerate(messages):
        calls = message.calls if isinstance(message, AssistantMessage) else ()
        after = next(iter(messages[at + 1 : at + 2]), None)
        if calls:
            answered = (
                [item.call.id for item in after.items] if isinstance(after, ToolResults) else []
            )
            require(answered == [call.id for call in calls], f"T6: {calls} got {answered}")
        else:
            require(not isinstance(after, ToolResults), "X1: results without calls")


def _check_content(played: PlayedSession, state: State) -> None:
    """S7, S9, L9, T4: replies, arguments and results are the planned ones."""
    script = played.plan.replies
    proposed = [fact for fact in played.facts if isinstance(fact, StepProposed)]
    texts = {reply_at(script, at).text for at in range(len(script) + 1)}
    for fact in proposed:
        require(fact.reply.text in texts, f"S7: {fact.reply.text!r} was never said")
    raw = {(call.tool, call.arguments) for reply in script for call in reply.calls}
    for fact in proposed:
        for call in map(unwrap_call, fact.reply.calls):
            require((call.name, call.arguments) in raw, f"S9: {call} was never made")
    for message in state.transcript:
        for item in message.items if isinstance(message, ToolResults) else ():
            call = unwrap_call(item.call)
            if item.result.kind == "value" and call.name in EFFECTS:
                _check_value(call, item.result.text)


def _check_value(call: ToolCall, text: str) -> None:
    number = int("".join(filter(str.isdigit, call.arguments)))
    require(text == tool_result(call.name, number).text, f"T4: {call} got {text!r}")


def _check_history(played: PlayedSession, state: State) -> None:
    """X1, C4: history has each reply and each message to the model once, in order."""
    replies = (
        fact.reply.text if isinstance(fact, StepProposed) else fact.partial
        for fact in played.facts
        if isinstance(fact, StepProposed | RunEnded)
    )
    texts = (message.text for message in state.transcript if isinstance(message, AssistantMessage))
    kept = [text for text in texts if text.strip()]
    wanted = [text for text in replies if text.strip()]
    require(kept == wanted, f"X1: history has {kept}, but the model said {wanted}")
    users = sum(isinstance(message, UserMessage) for message in state.transcript)
    recorded = sum(
        isinstance(fact, RunStarted | NoteGiven | SteeringGiven | LookupsPlanned)
        or (isinstance(fact, ReplyJudged) and not isinstance(fact.verdict, Allow))
        for fact in played.facts
    )
    require(users == recorded, f"X1: {users} user messages, {recorded} recorded")


def _check_steering(played: PlayedSession, state: State) -> None:
    """L8: each message of a person to a running agent is in the conversation exactly once."""
    users = [message.text for message in state.transcript if isinstance(message, UserMessage)]
    for text in played.outside.steered:
        require(users.count(text) == 1, f"L8: {text!r} is said {users.count(text)} times")
    for fact in played.facts:
        if isinstance(fact, SteeringGiven):
            text = "".join(part.text for part in fact.prompt if isinstance(part, TextPart))
            require(users.count(text) == 1, f"L8: {text!r} is said {users.count(text)} times")
            require(text != "Let me in", "L8: a second process steered the run")


def _check_knowledge(played: PlayedSession) -> None:
    """K1, G1: knowledge is recalled once in a run, if there is any and the gate allows it."""
    knowledge = played.plan.more.knowledge
    for run in _split_runs(played.facts):
        found = [fact.text for fact in run if isinstance(fact, KnowledgeRecalled)]
        require(len(found) <= (knowledge != "none"), f"K1: recalled {len(found)} times")
        as_planned = all(bool(text) == (knowledge == "something") for text in found)
        require(as_planned, f"K1: {found} was recalled, but {knowledge} was planned")


def _check_results(played: PlayedSession, state: State) -> None:
    """T6, T8, C3: each proposed call has a result in history, and a finished call its own."""
    results = {
        item.call.id: item.result
        for message in state.transcript
        if isinstance(message, ToolResults)
        for item in message.items
    }
    looked_up = set[str]()
    for fact in played.facts:
        if isinstance(fact, LookupsPlanned):
            looked_up |= {call.id for call in fact.calls}
            numbers = [
                call_number({"number": call.arguments.strip('{"number:} ')}) for call in fact.calls
            ]
            planned = [call.number for call in played.plan.more.lookups]
            require(numbers == planned, f"X4: {numbers} looked up, but {planned} named")
        elif isinstance(fact, StepProposed):
            lost = [call.id for call in fact.reply.calls if call.id not in results]
            require(not lost, f"T6: {lost} have no result")
        elif isinstance(fact, CallFinished) and fact.call_id not in looked_up:
            kept = results[fact.call_id]
            require(kept == fact.result, f"C3: {fact.call_id} finished, but history has {kept}")


def _outcome_of(run: list[Fact]) -> str:
    return next(fact.outcome for fact in run if isinstance(fact, RunEnded))


def _check_step_count(run: list[Fact], played: PlayedSession) -> None:
    """L7, L10: how many replies a run may have, and how many empty ones in a row."""
    plan = played.plan
    steps = [fact for fact in run if isinstance(fact, StepProposed)]
    most = plan.steps_max + (plan.on_limit == "answer")
    require(len(steps) <= most, f"L7: {len(steps)} replies under a cap of {plan.steps_max}")
    capped = _outcome_of(run) == "max_steps" and plan.more.session_steps is None
    require(not capped or len(steps) >= plan.steps_max, f"L7: ended after {len(steps)} replies")
    silent = [_is_silent(fact) for fact in steps]
    require((True, True, True) not in zip(silent, silent[1:], silent[2:], strict=False), "L10")


def _is_silent(step: StepProposed) -> bool:
    """Whether a model said nothing. One that hit its output limit or refused did not finish."""
    has_ended = step.stop in ("end", "calls")
    return has_ended and not step.reply.calls and not step.reply.text.strip()


def _check_denials(run: list[Fact]) -> None:
    """G3: how many replies of a run may be denied."""
    judged = [fact.verdict for fact in run if isinstance(fact, ReplyJudged)]
    denied = sum(not isinstance(verdict, Allow) for verdict in judged)
    require(denied <= DENIALS_MAX, f"G3: {denied} replies were denied")
    enough = denied == DENIALS_MAX or _outcome_of(run) != "policy_denied"
    require(enough, f"G3: policy_denied after {denied} denials")


def _check_duration(run: list[Fact], played: PlayedSession) -> None:
    """C5: how long a run may take. Waits for a person or a budget do not count, nor a crash."""
    limit_s = played.plan.seconds_max
    if limit_s is None or any(isinstance(fact, RunResumed | LimitsRaised) for fact in run):
        return
    if any(getattr(getattr(fact, "verdict", None), "question", "") for fact in run):
        return
    # Others may write while the driver works: its own next fact counts the time.
    own = [fact for fact in run if not isinstance(fact, SteeringGiven | CallLate | MailRefused)]
    own = own[: 1 + next(at for at, fact in enumerate(own) if isinstance(fact, RunEnded))]
    took_s = sum(
        fact.at - before.at if fact.worked_s is None else fact.worked_s
        for before, fact in pairwise(own)
        if not isinstance(before, BudgetAwaited)
    )
    require(took_s <= limit_s + SLACK_S, f"C5: {took_s:.3f} s under a limit of {limit_s}")
    is_early = _outcome_of(run) == "timed_out" and took_s < limit_s - SLACK_S
    require(not is_early, f"C5: timed out after {took_s:.3f} s of {limit_s}")


def _check_retries(run: list[Fact], played: PlayedSession) -> None:
    """S3, S6, S13: how often a model is asked for the same step, and after which failures."""
    failures = 0
    opened = overflow = False
    start = run[0]
    # A run from the queue goes on after a broken reply, whatever the agent's own rule is.
    on_partial = (isinstance(start, RunStarted) and start.on_partial) or played.plan.on_partial
    for fact in run:
        if isinstance(fact, AttemptStarted) and fact.purpose == "main":
            most = ATTEMPTS_MAX if opened else ESTABLISH_MAX
            require(failures < most, f"S3: asked again after {failures} failures")
            require(not overflow, "S13: asked again with the same prompt, which was too long")
        elif isinstance(fact, AttemptFailed) and _is_main(fact, run):
            failures += 1
            opened = opened or fact.established
            overflow = fact.fault.kind == "context_overflow"
            if fact.visible and on_partial == "fail":
                failures += ATTEMPTS_MAX  # Text was shown, so no further attempt is allowed.
        elif isinstance(fact, StepProposed | ContextCompacted):
            failures = 0
            opened = overflow = False


def _is_main(failed: AttemptFailed, run: list[Fact]) -> bool:
    attempts = (fact for fact in run if isinstance(fact, AttemptStarted))
    return [fact for fact in attempts if fact.seq < failed.seq][-1].purpose == "main"
