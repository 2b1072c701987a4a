"""State in, the next move out. Pure: the same journal leads to the same move, in any process."""

from dataclasses import replace as dataclass_replace

from msgspec.structs import replace

from windlass.core.decide.compacting import Shorter, note, overflowing, plan
from windlass.core.decide.funding import Short, fund
from windlass.core.decide.lookups import lookups
from windlass.core.decide.reserving import (
    CHARS_PER_TOKEN,
    estimate,
    input_max,
    left,
    part,
    tightest,
)
from windlass.core.decide.retrying import whom_to_ask
from windlass.core.decide.scheduling import next_wave
from windlass.core.decide.stopping import exhausted, no_room, overtime
from windlass.core.decide.summarizing import summary_prompt
from windlass.core.events import Stop
from windlass.core.limits import Amount
from windlass.core.messages import Assistant, ToolSpec, User
from windlass.core.moves import (
    _SEAL,  # pyright: ignore[reportPrivateUsage] - nobody else may make a move
    Act,
    Cleared,
    Draw,
    Finish,
    Gate,
    Hear,
    Heed,
    Hold,
    Hydrate,
    Move,
    Proposed,
    Reason,
    Recall,
    Remind,
    Shrink,
    Summarise,
)
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import Call, Run, State, Step, weigh
from windlass.core.view import view

WINDOW = 32_000
"""Tokens that a model is taken to have room for when nobody has said."""
REPLY_MIN = 256
"""Tokens that a reply gets, however full the window is taken to be."""


def decide(state: State) -> Move:
    """What to do next in an open run."""
    run, setup = state.run, state.setup
    if run is None or setup is None or run.outcome is not None:
        msg = "no run is open"
        raise ValueError(msg)
    late = overtime(state, setup, run)
    if late is not None:
        return Finish(*late, _SEAL)
    if state.step is not None:
        return _in_step(state, state.step, setup, run)
    if run.reply is not None:
        return _settle_reply(run, run.reply, setup)
    return _ask(state, setup, run)


def _in_step(state: State, step: Step, setup: Setup, run: Run) -> Move:
    """Gate all calls, then wait for the answers, then act, wave by wave, in the model's order."""
    if run.landing:
        return Finish("max_steps", "the last reply still called tools", _SEAL)
    unjudged = [call for call in step.calls if call.phase == "proposed"]
    if unjudged:
        proposed = tuple(_proposed(call, setup, step.stop) for call in unjudged)
        return Gate(proposed, setup.tools, _SEAL)
    asked = tuple((call, call.question) for call in step.calls if call.question is not None)
    if asked:
        return Hold(asked, _SEAL)
    rules = setup.rules
    open_calls = (call for call in step.calls if call.phase != "closed")
    ready = tuple(next_wave(open_calls, setup))
    room = left(setup.limits, run.ledger), left(setup.session_limits, state.ledger)
    share = part(tightest(*room), len(ready))
    wave = tuple(_cleared(state, call, spec, share) for call, spec in ready)
    bound = setup.hydration.seconds if step.hydrates and setup.hydration else None
    return Act(wave, rules.calls_at_once_max, rules.on_unknown == "ask", bound, _SEAL)


def _proposed(call: Call, setup: Setup, stop: Stop) -> Proposed:
    return Proposed(call.call, setup.tool(call.call.name), stop == "length", _SEAL)


def _cleared(state: State, call: Call, spec: ToolSpec, share: Amount) -> Cleared:
    key = f"{state.session}/{call.id}"
    interrupted = call.phase == "interrupted"
    return Cleared(call.call, call.decoded, spec, key, interrupted, share, _SEAL)


def _settle_reply(run: Run, reply: Assistant, setup: Setup) -> Move:
    """What a reply without calls means."""
    whole = run.stop not in ("length", "refusal")
    if setup.judge_replies and not run.passed and reply.text:
        return Hear(reply, whole, _SEAL)
    if run.pending and not run.landing:
        return Heed(_SEAL)
    if run.stop == "refusal":
        return Finish("refused", "the model refused", _SEAL)
    if run.stop == "length":
        return Finish("truncated", "the model hit its output limit", _SEAL)
    if run.landing:
        return Finish("max_steps", "answered at the cap of steps", _SEAL)
    return Finish("completed", "", _SEAL)


def _ask(state: State, setup: Setup, run: Run) -> Move:
    """What comes before the next request, or the request itself."""
    end = exhausted(state, setup, run)
    fresh = end is None and not run.steps and not run.failures
    first = _first(state, setup, run) if fresh else None
    if first is not None:
        return first
    model = whom_to_ask(setup, run) or setup.model
    # What comes to its end pays for no summary, unless it ends for want of one.
    for shorter in plan(state, setup, run, model) if end is None or overflowing(run) else ():
        move = _shorten(state, setup, run, model, shorter)
        if move is not None:
            return move
    if end is not None:
        return Finish(end.outcome, end.reason, _SEAL, end.fault)
    if run.pending:
        return Heed(_SEAL)
    rules, streak = setup.rules, run.streak
    if streak.count >= rules.same_call_note and not streak.noted_at:
        return Remind(
            f"You called {streak.name} {streak.count} times with the same arguments and got the "
            "same result. Try another way, or answer with what you have.",
            _SEAL,
        )
    landing = run.landing or (setup.limits.steps is not None and run.steps >= setup.limits.steps)
    return _reason(state, setup, run, model, landing=landing)


def _first(state: State, setup: Setup, run: Run) -> Move | None:
    """What is looked up and recalled before the first step."""
    prompt = state.transcript[run.new_from]
    if not isinstance(prompt, User):  # pragma: no cover - a run begins with a prompt
        return None
    if setup.recalls and not run.recalled:
        return Recall(prompt.text, _SEAL)
    calls = () if run.hydrated else lookups(prompt.parts, setup, run.number)
    return Hydrate(calls, _SEAL) if calls else None


def _shorten(
    state: State, setup: Setup, run: Run, model: ModelInfo, shorter: Shorter
) -> Move | None:
    """The move that makes the view shorter so; None if it cannot be paid for."""
    how, upto = shorter
    if how == "mask":
        return Shrink(upto, "", how, _SEAL)
    if how == "window":
        return Shrink(upto, note(state, upto), how, _SEAL)
    model = setup.summariser or model
    output = min(model.output_max, setup.compaction.summary_tokens)
    chars = CHARS_PER_TOKEN * (model.window or setup.compaction.window or WINDOW) // 2
    prompt = summary_prompt(state, upto, model.name, output, chars)
    tokens = sum(map(weigh, prompt.messages)) + len(prompt.system)
    funds = fund(state, setup, run, replace(model, output_max=output), tokens)
    if funds is None:
        return None
    if isinstance(funds, Short):
        return Draw(*funds, _SEAL)
    prompt = dataclass_replace(prompt, output_max=funds.output)
    return Summarise(prompt, funds, state.steps + 1, upto, _SEAL)


def _reason(state: State, setup: Setup, run: Run, model: ModelInfo, *, landing: bool) -> Move:
    tokens = input_max(model.name, state.fixed, state.size, state.measure)
    funds = fund(state, setup, run, _within_window(state, model), tokens)
    if funds is None:
        return Finish("budget_exceeded", no_room(run), _SEAL)
    if isinstance(funds, Short):
        return Draw(*funds, _SEAL)
    last = run.failures[-1] if run.failures else None
    moved = last is not None and model.name != run.model
    return Reason(
        prompt=view(state, setup, run, model.name, output_max=funds.output, landing=landing),
        reserved=funds,
        step=state.steps + 1,
        attempt=1 if moved else len(run.failures) + 1,
        wait_s=0.0 if last is None or moved else last.wait_s,
        landing=landing,
        last=last,
        failed=len(run.failures),
        moved_from=run.model if moved else "",
        seal=_SEAL,
    )


def _within_window(state: State, model: ModelInfo) -> ModelInfo:
    """A model asked for no longer a reply than its window has room for."""
    if model.window is None:
        return model
    room = max(REPLY_MIN, model.window - int(estimate(state, model.name)))
    return model if room >= model.output_max else replace(model, output_max=room)
