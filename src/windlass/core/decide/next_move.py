"""State in, the next move out. Pure: the same journal leads to the same move, in any process."""

from dataclasses import replace as dataclass_replace

from msgspec.structs import replace

from windlass.core.decide.compacting import (
    CompactionPlan,
    has_overflowed,
    left_out_note,
    plan_compaction,
)
from windlass.core.decide.funding import BudgetDrawNeeded, reserve_request
from windlass.core.decide.lookups import plan_lookups
from windlass.core.decide.reserving import (
    CHARS_PER_TOKEN,
    equal_share,
    estimate_tokens,
    input_tokens_max,
    remaining_amount,
    tightest_amount,
)
from windlass.core.decide.retrying import choose_model
from windlass.core.decide.scheduling import next_wave
from windlass.core.decide.stopping import check_exhausted, check_time_limits, explain_no_room
from windlass.core.decide.summarizing import build_summary_prompt
from windlass.core.events import StopReason
from windlass.core.limits import Amount
from windlass.core.messages import AssistantMessage, ToolSpec, UserMessage
from windlass.core.moves import (
    _SEAL,  # pyright: ignore[reportPrivateUsage] - nobody else may make a move
    ClearedCall,
    Compact,
    DrawBudget,
    EndRun,
    JudgeCalls,
    JudgeReply,
    LookUp,
    Move,
    ProposedCall,
    RecallKnowledge,
    RemindModel,
    RequestReply,
    RunCalls,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import CallState, RunState, State, StepState, message_tokens_max
from windlass.core.view import build_prompt

DEFAULT_WINDOW = 32_000
"""Tokens that a model is taken to have room for when nobody has said."""
REPLY_MIN = 256
"""Tokens that a reply gets, however full the window is taken to be."""


def decide(state: State) -> Move:
    """What to do next in an open run."""
    run, setup = state.run, state.setup
    if run is None or setup is None or run.outcome is not None:
        msg = "no run is open"
        raise ValueError(msg)
    late = check_time_limits(state, setup, run)
    if late is not None:
        return EndRun(*late, _SEAL)
    if state.step is not None:
        return _continue_step(state, state.step, setup, run)
    if run.reply is not None:
        return _settle_reply(run, run.reply, setup)
    return _prepare_request(state, setup, run)


def _continue_step(state: State, step: StepState, setup: Setup, run: RunState) -> Move:
    """Gate all calls, then wait for the answers, then act, wave by wave, in the model's order."""
    if run.landing:
        return EndRun("max_steps", "the last reply still called tools", _SEAL)
    unjudged = [call for call in step.calls if call.phase == "proposed"]
    if unjudged:
        proposed = tuple(_propose_call(call, setup, step.stop) for call in unjudged)
        return JudgeCalls(proposed, setup.tools, _SEAL)
    asked = tuple((call, call.question) for call in step.calls if call.question is not None)
    if asked:
        return WaitForAnswers(asked, _SEAL)
    rules = setup.rules
    open_calls = (call for call in step.calls if call.phase != "closed")
    ready = tuple(next_wave(open_calls, setup))
    room = (
        remaining_amount(setup.limits, run.ledger),
        remaining_amount(setup.session_limits, state.ledger),
    )
    share = equal_share(tightest_amount(*room), len(ready))
    wave = tuple(_clear_call(state, call, spec, share) for call, spec in ready)
    bound = setup.hydration.seconds if step.hydrates and setup.hydration else None
    return RunCalls(wave, rules.calls_at_once_max, rules.on_unknown == "ask", bound, _SEAL)


def _propose_call(call: CallState, setup: Setup, stop: StopReason) -> ProposedCall:
    return ProposedCall(call.call, setup.find_tool(call.call.name), stop == "length", _SEAL)


def _clear_call(state: State, call: CallState, spec: ToolSpec, share: Amount) -> ClearedCall:
    key = f"{state.session}/{call.id}"
    interrupted = call.phase == "interrupted"
    return ClearedCall(call.call, call.decoded_arguments, spec, key, interrupted, share, _SEAL)


def _settle_reply(run: RunState, reply: AssistantMessage, setup: Setup) -> Move:
    """What a reply without calls means."""
    whole = run.stop not in ("length", "refusal")
    if setup.judge_replies and not run.passed and reply.text:
        return JudgeReply(reply, whole, _SEAL)
    if run.pending and not run.landing:
        return TakeSteering(_SEAL)
    if run.stop == "refusal":
        return EndRun("refused", "the model refused", _SEAL)
    if run.stop == "length":
        return EndRun("truncated", "the model hit its output limit", _SEAL)
    if run.landing:
        return EndRun("max_steps", "answered at the cap of steps", _SEAL)
    return EndRun("completed", "", _SEAL)


def _prepare_request(state: State, setup: Setup, run: RunState) -> Move:
    """What comes before the next request, or the request itself."""
    end = check_exhausted(state, setup, run)
    fresh = end is None and not run.steps and not run.failures
    first = _before_first_step(state, setup, run) if fresh else None
    if first is not None:
        return first
    model = choose_model(setup, run) or setup.model
    # What comes to its end pays for no summary, unless it ends for want of one.
    for shorter in (
        plan_compaction(state, setup, run, model) if end is None or has_overflowed(run) else ()
    ):
        move = _compact_view(state, setup, run, model, shorter)
        if move is not None:
            return move
    if end is not None:
        return EndRun(end.outcome, end.reason, _SEAL, end.fault)
    if run.pending:
        return TakeSteering(_SEAL)
    rules, streak = setup.rules, run.streak
    if streak.count >= rules.same_call_note and not streak.noted_at:
        return RemindModel(
            f"You called {streak.name} {streak.count} times with the same arguments and got the "
            "same result. Try another way, or answer with what you have.",
            _SEAL,
        )
    landing = run.landing or (setup.limits.steps is not None and run.steps >= setup.limits.steps)
    return _request_reply(state, setup, run, model, landing=landing)


def _before_first_step(state: State, setup: Setup, run: RunState) -> Move | None:
    """What is looked up and recalled before the first step."""
    prompt = state.transcript[run.new_from]
    if not isinstance(prompt, UserMessage):  # pragma: no cover - a run begins with a prompt
        return None
    if setup.recalls and not run.recalled:
        return RecallKnowledge(prompt.text, _SEAL)
    calls = () if run.hydrated else plan_lookups(prompt.parts, setup, run.number)
    return LookUp(calls, _SEAL) if calls else None


def _compact_view(
    state: State, setup: Setup, run: RunState, model: ModelInfo, shorter: CompactionPlan
) -> Move | None:
    """The move that makes the view shorter so; None if it cannot be paid for."""
    how, upto = shorter
    if how == "mask":
        return Compact(upto, "", how, _SEAL)
    if how == "window":
        return Compact(upto, left_out_note(state, upto), how, _SEAL)
    model = setup.summariser or model
    output = min(model.output_max, setup.compaction.summary_tokens)
    chars = CHARS_PER_TOKEN * (model.window or setup.compaction.window or DEFAULT_WINDOW) // 2
    prompt = build_summary_prompt(state, upto, model.name, output, chars)
    tokens = sum(map(message_tokens_max, prompt.messages)) + len(prompt.system)
    funds = reserve_request(state, setup, run, replace(model, output_max=output), tokens)
    if funds is None:
        return None
    if isinstance(funds, BudgetDrawNeeded):
        return DrawBudget(*funds, _SEAL)
    prompt = dataclass_replace(prompt, output_max=funds.output)
    return Summarize(prompt, funds, state.steps + 1, upto, _SEAL)


def _request_reply(
    state: State, setup: Setup, run: RunState, model: ModelInfo, *, landing: bool
) -> Move:
    tokens = input_tokens_max(model.name, state.fixed, state.size, state.measure)
    funds = reserve_request(state, setup, run, _fit_output_to_window(state, model), tokens)
    if funds is None:
        return EndRun("budget_exceeded", explain_no_room(run), _SEAL)
    if isinstance(funds, BudgetDrawNeeded):
        return DrawBudget(*funds, _SEAL)
    last = run.failures[-1] if run.failures else None
    moved = last is not None and model.name != run.model
    return RequestReply(
        prompt=build_prompt(
            state, setup, run, model.name, output_max=funds.output, landing=landing
        ),
        reserved=funds,
        step=state.steps + 1,
        attempt=1 if moved else len(run.failures) + 1,
        wait_s=0.0 if last is None or moved else last.wait_s,
        landing=landing,
        last_failure=last,
        failed_attempts=len(run.failures),
        fell_back_from=run.model if moved else "",
        seal=_SEAL,
    )


def _fit_output_to_window(state: State, model: ModelInfo) -> ModelInfo:
    """A model asked for no longer a reply than its window has room for."""
    if model.window is None:
        return model
    room = max(REPLY_MIN, model.window - int(estimate_tokens(state, model.name)))
    return model if room >= model.output_max else replace(model, output_max=room)
