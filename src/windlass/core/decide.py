"""State in, the next move out.

The moves are sealed: only this module can make one, and only from what the journal says, so that a
call which nobody judged cannot be dispatched.
"""

from dataclasses import InitVar, dataclass
from typing import Any, final

from windlass.core.budget import input_max, reserve
from windlass.core.compact import note, plan
from windlass.core.events import AttemptFailed, Outcome, Reservation, Stop
from windlass.core.faults import Fault
from windlass.core.messages import Assistant, ToolCall, ToolSpec
from windlass.core.retry import whom_to_ask
from windlass.core.setup import Setup
from windlass.core.state import Call, Run, State, Step
from windlass.core.verdicts import Ask
from windlass.core.view import Prompt, view
from windlass.core.waves import next_wave


class _Seal:
    """Proof that `decide` made a value."""


_SEAL = _Seal()


@final
@dataclass(frozen=True, slots=True)
class Reason:
    """Ask the model once."""

    prompt: Prompt
    reserved: Reservation
    step: int
    """Of the session, so that call ids made from it are unique there."""
    attempt: int
    wait_s: float
    landing: bool
    last: AttemptFailed | None
    """The attempt before, which failed."""
    failed: int
    """Its number."""
    moved_from: str
    """The model whose attempts are spent, if this is the first one at another."""
    seal: InitVar[_Seal]

    @property
    def discard(self) -> bool:
        """Watchers saw text of the attempt before; they are told that it does not count."""
        return self.last is not None and self.last.visible


@final
@dataclass(frozen=True, slots=True)
class Proposed:
    """A call that the model made and nobody has judged."""

    call: ToolCall
    spec: ToolSpec | None
    cut: bool
    """The reply ended by length, so that the arguments may not be whole."""
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Gate:
    """Judge these calls."""

    calls: tuple[Proposed, ...]
    tools: tuple[ToolSpec, ...]
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Cleared:
    """A call that the journal says may run."""

    call: ToolCall
    arguments: dict[str, Any]
    spec: ToolSpec
    key: str
    """Names this effect: the same each time this call is tried, and no other call's."""
    interrupted: bool
    """It had started when a driver died, so that its effect may have happened already."""
    seal: InitVar[_Seal]

    @property
    def repeatable(self) -> bool:
        return self.spec.effect != "write"


@final
@dataclass(frozen=True, slots=True)
class Act:
    """Run these calls together."""

    calls: tuple[Cleared, ...]
    at_once_max: int
    ask_unknown: bool
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Hear:
    """Judge a final reply."""

    reply: Assistant
    whole: bool
    """It came to its end by itself, so that it must fit the output type too."""
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Remind:
    """Tell the model that it goes round in circles."""

    text: str
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Shrink:
    """Leave the beginning out of the view: the provider says that the prompt is too long."""

    upto: int
    note: str
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for a person to answer these."""

    questions: tuple[tuple[Call, Ask], ...]
    seal: InitVar[_Seal]


@final
@dataclass(frozen=True, slots=True)
class Finish:
    """End the run."""

    outcome: Outcome
    reason: str
    seal: InitVar[_Seal]
    fault: Fault | None = None


Move = Reason | Gate | Act | Hear | Remind | Shrink | Hold | Finish


def decide(state: State) -> Move:
    """What to do next in an open run."""
    run, setup = state.run, state.setup
    if run is None or setup is None or run.outcome is not None:
        msg = "no run is open"
        raise ValueError(msg)
    seconds = setup.limits.seconds
    if seconds is not None and run.elapsed_s >= seconds:
        return Finish("timed_out", f"the limit of {seconds:g} s is reached", _SEAL)
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
    wave = tuple(_cleared(state, call, spec) for call, spec in next_wave(open_calls, setup))
    return Act(wave, rules.calls_at_once_max, rules.on_unknown == "ask", _SEAL)


def _proposed(call: Call, setup: Setup, stop: Stop) -> Proposed:
    return Proposed(call.call, setup.tool(call.call.name), stop == "length", _SEAL)


def _cleared(state: State, call: Call, spec: ToolSpec) -> Cleared:
    key = f"{state.session}/{call.id}"
    interrupted = call.phase == "interrupted"
    return Cleared(call.call, call.decoded, spec, key, interrupted, _SEAL)


def _settle_reply(run: Run, reply: Assistant, setup: Setup) -> Move:
    """What a reply without calls means."""
    whole = run.stop not in ("length", "refusal")
    if setup.judge_replies and not run.passed and reply.text:
        return Hear(reply, whole, _SEAL)
    if run.stop == "refusal":
        return Finish("refused", "the model refused", _SEAL)
    if run.stop == "length":
        return Finish("truncated", "the model hit its output limit", _SEAL)
    if run.landing:
        return Finish("max_steps", "answered at the cap of steps", _SEAL)
    return Finish("completed", "", _SEAL)


def _ask(state: State, setup: Setup, run: Run) -> Move:
    overflow = bool(run.failures) and run.failures[-1].fault.kind == "context_overflow"
    upto = plan(state, run) if overflow and not run.shrunk else None
    if upto is not None:
        return Shrink(upto, note(upto), _SEAL)
    stop = _stopped(setup, run)
    if stop is not None:
        return stop
    rules, streak = setup.rules, run.streak
    if streak.count >= rules.same_call_note and not streak.noted_at:
        return Remind(
            f"You called {streak.name} {streak.count} times with the same arguments and got the "
            "same result. Try another way, or answer with what you have.",
            _SEAL,
        )
    landing = run.landing or (setup.limits.steps is not None and run.steps >= setup.limits.steps)
    return _reason(state, setup, run, landing=landing)


def _stopped(setup: Setup, run: Run) -> Finish | None:
    """The reasons not to ask the model again."""
    rules, limits = setup.rules, setup.limits
    if whom_to_ask(setup, run) is None:
        fault = run.failures[-1].fault
        return Finish("failed", fault.message, _SEAL, fault)
    if run.empties > 1:
        return Finish("empty_reply", "the model said nothing, twice", _SEAL)
    if run.misfits > rules.misfits_max:
        fault = Fault("output_misfit", "the replies did not fit the output type")
        return Finish("failed", fault.message, _SEAL, fault)
    if run.outages >= rules.outages_max:
        fault = Fault("tools", f"the tools were out of order in {run.outages} steps in a row")
        return Finish("failed", fault.message, _SEAL, fault)
    if run.denials >= rules.denials_max:
        return Finish("policy_denied", f"{run.denials} replies were denied", _SEAL)
    if run.streak.noted_at and run.streak.count >= run.streak.noted_at + rules.same_call_stop:
        reason = f"{run.streak.name} gave the same result {run.streak.count} times"
        return Finish("stuck", reason, _SEAL)
    cap = limits.steps
    if cap is not None and run.steps >= cap and (run.steps > cap or rules.on_limit == "stop"):
        return Finish("max_steps", f"the cap of {cap} steps is reached", _SEAL)
    return None


def _reason(state: State, setup: Setup, run: Run, *, landing: bool) -> Move:
    model = whom_to_ask(setup, run) or setup.model
    tokens = input_max(model.name, state.fixed, state.size, state.measure)
    reserved = reserve(model, tokens, setup.limits, run.ledger)
    if reserved is None:
        return Finish("budget_exceeded", "the next request does not fit into what is left", _SEAL)
    last = run.failures[-1] if run.failures else None
    moved = last is not None and model.name != run.model
    return Reason(
        prompt=view(state, setup, run, model.name, output_max=reserved.output, landing=landing),
        reserved=reserved,
        step=state.steps + 1,
        attempt=1 if moved else len(run.failures) + 1,
        wait_s=0.0 if last is None or moved else last.wait_s,
        landing=landing,
        last=last,
        failed=len(run.failures),
        moved_from=run.model if moved else "",
        seal=_SEAL,
    )
