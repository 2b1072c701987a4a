"""State in, the next move out. Pure: the same journal leads to the same move, in any process.

Where the model is not asked again, the reason is found here too, and with it how the run ends.
"""

from dataclasses import replace as dataclass_replace
from typing import NamedTuple

from msgspec.structs import replace

from windlass.core.decide.compacting import (
    CompactionPlan,
    build_summary_prompt,
    has_overflowed,
    left_out_note,
    plan_compaction,
)
from windlass.core.decide.lookups import plan_lookups
from windlass.core.decide.reserving import (
    CHARS_PER_TOKEN,
    BudgetDrawNeeded,
    estimate_tokens,
    find_held_allotment,
    input_tokens_max,
    missing_amount,
    reserve_request,
)
from windlass.core.decide.retrying import choose_model, explain_partial
from windlass.core.decide.scheduling import (
    REPEAT_NOTE,
    WavePlan,
    explain_poison,
    needs_repeat_note,
    plan_wave,
)
from windlass.core.errors import Fault
from windlass.core.events import Outcome, StopReason
from windlass.core.fold.phases import NEXT_ACTION
from windlass.core.limits import Amount, Reservation
from windlass.core.messages import AssistantMessage, ToolSpec, UserMessage
from windlass.core.moves import (
    _SEAL,  # pyright: ignore[reportPrivateUsage] - no other module may make a move
    AwaitBudget,
    ClearedCall,
    Compact,
    DrawBudget,
    EndRun,
    JudgeCalls,
    JudgeReply,
    LookUp,
    Move,
    PauseRun,
    ProposedCall,
    RecallKnowledge,
    RemindModel,
    RequestReply,
    RunCalls,
    StayPaused,
    StayWaiting,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import CallState, RunState, State, StepState
from windlass.core.transcript import message_tokens_max
from windlass.core.view import build_prompt


class RunEnding(NamedTuple):
    """How a run ends that stops."""

    outcome: Outcome
    reason: str
    fault: Fault | None = None


def check_time_limits(state: State, setup: Setup, run: RunState) -> RunEnding | None:
    """Return the ending if the run or the session has used up its time."""
    run_limit_s = setup.limits.seconds
    session_limit_s = setup.session_limits.seconds
    if run_limit_s is not None and run.elapsed_s >= run_limit_s:
        return RunEnding("timed_out", f"the limit of {run_limit_s:g} s is reached")
    if session_limit_s is not None and state.elapsed_s >= session_limit_s:
        return RunEnding("timed_out", f"the session's limit of {session_limit_s:g} s is reached")
    return None


def check_exhausted(state: State, setup: Setup, run: RunState) -> RunEnding | None:
    """Return the end of the run if an attempt limit has been reached."""
    rules = setup.rules
    if run.failures and choose_model(setup, run) is None:
        fault = explain_partial(setup.rules, run)
        return RunEnding("failed", fault.message, fault)
    if run.empties > 1:
        return RunEnding("empty_reply", "the model said nothing, twice")
    if run.misfits > rules.misfits_max:
        fault = Fault("output_misfit", "the replies did not fit the output type")
        return RunEnding("failed", fault.message, fault)
    if run.outages >= rules.outages_max:
        fault = Fault("tools", f"the tools were out of order in {run.outages} steps in a row")
        return RunEnding("failed", fault.message, fault)
    if run.denials >= rules.denials_max:
        return RunEnding("policy_denied", f"{run.denials} replies were denied")
    streak = run.streak
    if streak.noted_at and streak.count >= streak.noted_at + rules.same_call_stop:
        return RunEnding("stuck", f"{streak.name} gave the same result {streak.count} times")
    cap = setup.limits.steps
    session_cap = setup.session_limits.steps
    # With `on_limit="answer"` the model gets one more step, without tools.
    if cap is not None and run.steps >= cap and (run.steps > cap or setup.rules.on_limit == "stop"):
        return RunEnding("max_steps", f"the limit of {cap} steps is reached")
    if session_cap is not None and state.steps >= session_cap:
        return RunEnding("max_steps", f"the session's limit of {session_cap} steps is reached")
    return None


def explain_no_room(run: RunState) -> str:
    """Return why no further request can be paid for."""
    dry = [allotment.budget for allotment in run.allotments if allotment.dry]
    if dry:
        why = f"the budget {dry[0]} has no room for the next request"
        if run.budget_wait_since is not None:
            why += ", although the run waited for others to give back what they hold of it"
        return why
    return "the next request does not fit into what is left of the limits"


DEFAULT_WINDOW = 32_000
"""Tokens that a model is assumed to have room for if its window is not known."""
REPLY_MIN = 256
"""Tokens that a reply gets, however full the window is estimated to be. If a shared budget has room
for fewer, because other runs hold reserves, the run waits for it."""
BUDGET_WAIT_MIN_S = 2.0
BUDGET_WAIT_MAX_S = 60.0
"""How long a run waits before it asks a shared budget again, if none gives anything back."""


def decide(state: State) -> Move:
    """Return what to do next in an open run. Raises ValueError if no run is open."""
    run = state.run
    setup = state.setup
    if run is None or setup is None or run.outcome is not None:
        raise ValueError("no run is open")
    timeout = check_time_limits(state, setup, run)
    if timeout is not None:
        return EndRun(timeout.outcome, timeout.reason, _SEAL)
    if state.step is not None:
        return _continue_step(state, state.step, setup, run)
    if run.is_undo:
        if not run.not_undone:
            return EndRun("completed", "", _SEAL)
        reason = f"{run.not_undone} of {len(run.undoes)} calls could not be undone"
        return EndRun("failed", reason, _SEAL, Fault("tools", reason))
    if run.reply is not None:
        return _settle_reply(run, run.reply, setup)
    return _prepare_request(state, setup, run)


def _continue_step(state: State, step: StepState, setup: Setup, run: RunState) -> Move:
    """Judge all calls, then wait for the answers, then run them in the model's order.

    No reply made the calls that undo others, so there may be any number of them.
    """
    if run.landing:
        return EndRun("max_steps", "the last reply still called tools", _SEAL)
    if run.pause is not None and run.pause_holds:
        return StayPaused(run.pause, _SEAL)
    unjudged = [call for call in step.calls if NEXT_ACTION[call.phase] == "judge"]
    if unjudged:
        calls_max = None if run.is_undo else setup.rules.calls_per_reply_max
        beyond_max = () if calls_max is None else step.calls[calls_max:]
        # What may be called is what the model is shown, or can search for, and nothing else.
        offered = state.offered
        if setup.searches_tools:
            offered = setup.callable_tools(has_artifacts=state.has_artifacts)
        proposed = [
            _propose_call(call, setup, offered, step.stop, is_excess=call in beyond_max)
            for call in unjudged
        ]
        return JudgeCalls(tuple(proposed), offered, _SEAL)
    questions = [(call, call.question) for call in step.calls if call.question is not None]
    if questions:
        return WaitForAnswers(tuple(questions), _SEAL)
    wave = plan_wave(state, setup, run, step)
    if not wave.calls:
        if run.pause is not None:
            return StayPaused(run.pause, _SEAL)
        if wave.poison is not None:
            return PauseRun(explain_poison(wave.poison), None, _SEAL, "deaths")
        waiting = tuple(call for call in step.calls if call.phase == "waiting")
        return WaitForAnswers((), _SEAL, waiting)
    return RunCalls(
        tuple([_clear_call(state, call, spec, wave.share) for call, spec in wave.calls]),
        _calls_at_once(setup, wave),
        setup.rules.on_unknown == "ask",
        wave.timeout_s,
        _SEAL,
    )


def _calls_at_once(setup: Setup, wave: WavePlan) -> int:
    """Return how many calls of a wave may run at the same time."""
    reads_max = setup.rules.reads_at_once_max
    if reads_max is not None and all(spec.effect == "read" for _, spec in wave.calls):
        return reads_max
    return setup.rules.calls_at_once_max


def _propose_call(
    call: CallState,
    setup: Setup,
    offered: tuple[ToolSpec, ...],
    stop: StopReason,
    *,
    is_excess: bool,
) -> ProposedCall:
    calls_max = setup.rules.calls_per_reply_max if is_excess else None
    is_cut = stop == "length"
    for spec in offered:
        if spec.name == call.call.name:
            return ProposedCall(call.call, spec, is_cut, _SEAL, calls_max)
    return ProposedCall(call.call, None, is_cut, _SEAL, calls_max)


def _clear_call(state: State, call: CallState, spec: ToolSpec, share: Amount) -> ClearedCall:
    # The key names the effect, so that a tool can recognize a second try of the same call.
    key = f"{state.session}/{call.call.id}"
    interrupted = call.phase == "interrupted"
    is_suspect = bool(call.died_with)
    arguments = call.decoded_arguments
    return ClearedCall(call.call, arguments, spec, key, interrupted, share, _SEAL, is_suspect)


def _settle_reply(run: RunState, reply: AssistantMessage, setup: Setup) -> Move:
    """Decide what a reply without calls means."""
    if setup.judge_replies and not run.passed and reply.text:
        is_whole = run.stop not in ("length", "refusal")
        return JudgeReply(reply, is_whole, _SEAL)
    if run.pending and not run.landing:
        return TakeSteering(_SEAL)
    if run.stop == "refusal":
        return EndRun("refused", "the model refused", _SEAL)
    if run.stop == "length":
        return EndRun("truncated", "the model hit its output limit", _SEAL)
    if run.landing:
        return EndRun("max_steps", "answered at the step limit", _SEAL)
    return EndRun("completed", "", _SEAL)


def _prepare_request(state: State, setup: Setup, run: RunState) -> Move:
    """Decide what comes before the next request, or make the request itself."""
    if run.pause is not None:
        return StayPaused(run.pause, _SEAL)
    if run.budget_wait is not None:
        # What the budgets allotted was given back: nothing may be requested before they are asked.
        return StayWaiting(run.budget_wait, _SEAL)
    ending = check_exhausted(state, setup, run)
    if ending is None and not run.steps and not run.failures:
        first = _before_first_step(state, setup, run)
        if first is not None:
            return first
    model = choose_model(setup, run) or setup.model
    # A run that is about to end does not pay for a summary, unless the overflow is what ends it.
    if ending is None or has_overflowed(run):
        for plan in plan_compaction(state, setup, run, model):
            move = _compact_view(state, setup, run, model, plan)
            if move is not None:
                return move
    if ending is not None:
        return EndRun(ending.outcome, ending.reason, _SEAL, ending.fault)
    if run.pending:
        return TakeSteering(_SEAL)
    reminder = _remind_model(setup, run)
    if reminder is not None:
        return reminder
    at_step_limit = setup.limits.steps is not None and run.steps >= setup.limits.steps
    return _request_reply(state, setup, run, model, landing=run.landing or at_step_limit)


def _remind_model(setup: Setup, run: RunState) -> Move | None:
    """Tell the model of its own mistake before it is asked again."""
    last = run.failures[-1] if run.failures else None
    if last is not None and last.fault.note and run.failures_noted < len(run.failures):
        return RemindModel(last.fault.note, "refused_reply", _SEAL)
    if needs_repeat_note(setup, run):
        return RemindModel(REPEAT_NOTE, "same_call", _SEAL)
    return None


def _before_first_step(state: State, setup: Setup, run: RunState) -> Move | None:
    """Recall what is known about the prompt, then look up what it refers to."""
    prompt = state.transcript[run.new_from]
    if not isinstance(prompt, UserMessage):  # pragma: no cover - a run begins with a prompt
        return None
    if setup.recalls and not run.recalled:
        return RecallKnowledge(prompt.text, _SEAL)
    if run.hydrated or setup.hydration is None:
        return None
    calls = plan_lookups(prompt.parts, setup, run.number)
    return LookUp(calls, _SEAL) if calls else None


def _compact_view(
    state: State, setup: Setup, run: RunState, model: ModelInfo, plan: CompactionPlan
) -> Move | None:
    """Return the move that carries out a plan; None if it cannot be paid for."""
    how, upto = plan
    if how == "mask":
        return Compact(upto, "", how, _SEAL)
    if how == "window":
        return Compact(upto, left_out_note(state, upto), how, _SEAL)
    model = setup.summariser or model
    output_max = min(model.output_max, setup.compaction.summary_tokens)
    window = model.window or setup.compaction.window or DEFAULT_WINDOW
    # Half of the window is left for the summary itself and for tokens shorter than estimated.
    chars_max = CHARS_PER_TOKEN * window // 2
    prompt = build_summary_prompt(state, upto, model.name, output_max, chars_max)
    input_tokens = sum(map(message_tokens_max, prompt.messages)) + len(prompt.system)
    model = replace(model, output_max=output_max)
    reservation = reserve_request(state, setup, run, model, input_tokens)
    if reservation is None:
        return None
    if isinstance(reservation, BudgetDrawNeeded):
        return DrawBudget(*reservation, _SEAL)
    prompt = dataclass_replace(prompt, output_max=reservation.output)
    return Summarize(prompt, reservation, state.steps + 1, upto, _SEAL)


def _request_reply(
    state: State, setup: Setup, run: RunState, model: ModelInfo, *, landing: bool
) -> Move:
    """Return the next request, or the move that must come first because of its cost."""
    input_tokens = input_tokens_max(state, model.name)
    fitted = model
    if model.window is not None:
        # No longer a reply than the window has room for.
        room = max(REPLY_MIN, model.window - int(estimate_tokens(state, model.name)))
        fitted = model if room >= model.output_max else replace(model, output_max=room)
    reservation = reserve_request(state, setup, run, fitted, input_tokens)
    reply_min = min(REPLY_MIN, fitted.output_max)
    if reservation is None or (
        isinstance(reservation, Reservation) and reservation.output < reply_min
    ):
        needed = replace(fitted, output_max=reply_min)
        waiting = _wait_for_budget(state, setup, run, needed, input_tokens)
        if waiting is not None:
            return waiting
    if reservation is None:
        if setup.rules.on_budget == "pause":
            return _pause_for_budget(state, setup, run, model, input_tokens)
        return EndRun("budget_exceeded", explain_no_room(run), _SEAL)
    if isinstance(reservation, BudgetDrawNeeded):
        return DrawBudget(*reservation, _SEAL)
    last = run.failures[-1] if run.failures else None
    falls_back = last is not None and model.name != run.model
    output_max = reservation.output
    return RequestReply(
        prompt=build_prompt(state, setup, run, model.name, output_max=output_max, landing=landing),
        reserved=reservation,
        step=state.steps + 1,
        attempt=1 if falls_back else len(run.failures) + 1,
        wait_s=0.0 if last is None or falls_back else last.wait_s,
        landing=landing,
        last_failure=last,
        failed_attempts=len(run.failures),
        fell_back_from=run.model if falls_back else "",
        seal=_SEAL,
    )


def _wait_for_budget(
    state: State, setup: Setup, run: RunState, model: ModelInfo, input_tokens: int
) -> Move | None:
    """Wait for a shared budget, if others may give back enough of it, and for a bounded time."""
    allotment = find_held_allotment(state, setup, run, model, input_tokens)
    if allotment is None or allotment.held is None:
        return None
    since = state.at if run.budget_wait_since is None else run.budget_wait_since
    left_s = since + setup.rules.budget_wait_s - state.at
    if left_s <= 0:
        return None
    # Twice as long each time. What is given back ends the wait before.
    wait_s = min(left_s, BUDGET_WAIT_MAX_S, BUDGET_WAIT_MIN_S * 2 ** min(run.budget_waits, 16))
    return AwaitBudget(allotment.budget, allotment.held, wait_s, _SEAL)


def _pause_for_budget(
    state: State, setup: Setup, run: RunState, model: ModelInfo, input_tokens: int
) -> Move:
    """Pause instead of ending, and say what the smallest next request needs beyond what is left."""
    needed = missing_amount(state, setup, run, replace(model, output_max=REPLY_MIN), input_tokens)
    return PauseRun(explain_no_room(run), needed, _SEAL)
