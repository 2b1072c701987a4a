"""What of a transcript may be made shorter in the view: a plan, not an act.

Only whole groups go: a reply and the results of its calls stay together. The prompt of the running
run, pinned messages and all from the last reply on always stay: what came since, no model has seen.
Nothing is done before the trigger is reached, and then enough to reach the target, so that it is
not done at every step.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from windlass.core.context import How
from windlass.core.decide.reserving import estimate
from windlass.core.fold.context import is_pinned, mask_saves
from windlass.core.messages import Assistant, Message, Results
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import Run, State, weigh

FORCED_KEEP = 0.5
"""The part of the view that is kept when a provider says that it is too long."""
WORTH = 0.1
"""The part of the view that must become free; less is not worth a step."""
_LEFT_OUT = re.compile(r"\s*\[\d+ earlier messages were left out, [^\]]*\]\Z")


class Shorter(NamedTuple):
    """One way to make the view shorter, up to a message."""

    how: How
    upto: int


def plan(state: State, setup: Setup, run: Run, model: ModelInfo) -> Iterator[Shorter]:
    """What could be done about the length of the view now, the first choice first."""
    goal = _goal(state, setup, run, model)
    if goal is None:
        return
    tokens, rules = estimate(state, model.name), setup.compaction
    # Sizes are in bytes; a token is as many of them as this model's tokens have been.
    room = max(0, int(goal * (state.fixed + state.size) / max(1.0, tokens)) - state.fixed)
    for how in _forceful(rules.strategies) if _forced(run) else rules.strategies:
        if how in run.compacted or (how == "summary" and state.steps < state.no_summary_before):
            continue
        upto = _mask(state, run, room) if how == "mask" else _leave_out(state, run, room)
        if upto is not None:
            yield Shorter(how, upto)


def _forceful(strategies: Sequence[How]) -> Sequence[How]:
    """Those that make room for certain."""
    return [*(how for how in strategies if how == "summary"), "window"]


def overflowing(run: Run) -> bool:
    """A provider said that the prompt is too long."""
    return bool(run.failures) and run.failures[-1].fault.kind == "context_overflow"


def _forced(run: Run) -> bool:
    return overflowing(run) and not run.forced


def _goal(state: State, setup: Setup, run: Run, model: ModelInfo) -> float | None:
    """The tokens that the view should have; None if it may stay as it is."""
    rules, window = setup.compaction, setup.compaction.window or model.window
    tokens = estimate(state, model.name)
    if _forced(run):
        half = tokens * FORCED_KEEP
        return half if window is None else min(half, window * rules.target)
    if window is None or run.failures:
        return None
    bound = rules.target if run.compacted else rules.trigger
    return window * rules.target if tokens > window * bound else None


def _mask(state: State, run: Run, room: int) -> int | None:
    """Up to where the results of calls are old enough to be masked, if that makes room."""
    messages, kept = state.transcript, 0
    first = max(state.shown_from, state.masked_upto)
    upto = first
    starts = _groups(messages, first, run)
    for at, end in reversed(list(pairwise([*starts, len(messages)]))):
        kept += sum(weigh(messages[one]) for one in range(at, end))
        if kept > room / 2:
            upto = at
            break
    saved = sum(mask_saves(messages[at]) for at in range(first, upto))
    return upto if upto > first and saved > WORTH * state.size else None


def _leave_out(state: State, run: Run, room: int) -> int | None:
    """The message from which on the view goes on, or None if there is nothing to leave out."""
    messages = state.transcript
    starts = _groups(messages, state.shown_from + 1, run)
    prompt = messages[run.new_from]
    kept = sum(weigh(one) for one in state.shown if one is prompt or is_pinned(one))
    best: int | None = None
    for at, end in reversed(list(pairwise([*starts, len(messages)]))):
        kept += sum(_can_go(state, run, one) for one in range(at, end))
        if best is not None and kept > room:
            break
        best = at
    if best is None:
        return None
    freed = sum(_can_go(state, run, at) for at in range(state.shown_from, best))
    return best if freed > (0 if _forced(run) else WORTH * state.size) else None


def _can_go(state: State, run: Run, at: int) -> int:
    """How much smaller the view is without a message; nothing, if it must stay."""
    message = state.transcript[at]
    if at == run.new_from or is_pinned(message):
        return 0
    return weigh(message) - (mask_saves(message) if at < state.masked_upto else 0)


def note(state: State, upto: int) -> str:
    """What the model is told in the place of what was left out."""
    told = f"[{upto} earlier messages were left out, since the conversation grew too long.]"
    # What was told before counts no more; what was summed up does.
    summed_up = _LEFT_OUT.sub("", state.summary)
    return f"{summed_up}\n\n{told}" if summed_up else told


def _groups(messages: Sequence[Message], first: int, run: Run) -> list[int]:
    """Where a group begins: at every message that is not the results of the one before.

    The last group begins at the run's last reply, or at its prompt, and holds all that came since.
    """
    last = len(messages) - 1
    while last > run.new_from and not isinstance(messages[last], Assistant):
        last -= 1
    return [at for at in range(first, last + 1) if not isinstance(messages[at], Results)]
