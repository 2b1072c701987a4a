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

from windlass.core.context import CompactionMethod
from windlass.core.decide.reserving import estimate_tokens
from windlass.core.fold.context import is_pinned, mask_saving
from windlass.core.messages import AssistantMessage, Message, ToolResults
from windlass.core.setup import ModelInfo, Setup
from windlass.core.state import RunState, State, message_tokens_max

FORCED_KEEP_SHARE = 0.5
"""The part of the view that is kept when a provider says that it is too long."""
SAVING_SHARE_MIN = 0.1
"""The part of the view that must become free; less is not worth a step."""
_LEFT_OUT_NOTE = re.compile(r"\s*\[\d+ earlier messages were left out, [^\]]*\]\Z")


class CompactionPlan(NamedTuple):
    """One way to make the view shorter, up to a message."""

    how: CompactionMethod
    upto: int


def plan_compaction(
    state: State, setup: Setup, run: RunState, model: ModelInfo
) -> Iterator[CompactionPlan]:
    """What could be done about the length of the view now, the first choice first."""
    goal = _target_tokens(state, setup, run, model)
    if goal is None:
        return
    tokens, rules = estimate_tokens(state, model.name), setup.compaction
    # Sizes are in bytes; a token is as many of them as this model's tokens have been.
    room = max(0, int(goal * (state.fixed + state.size) / max(1.0, tokens)) - state.fixed)
    for how in _certain_methods(rules.strategies) if _is_forced(run) else rules.strategies:
        if how in run.compacted or (how == "summary" and state.steps < state.no_summary_before):
            continue
        upto = _mask_upto(state, run, room) if how == "mask" else _leave_out_upto(state, run, room)
        if upto is not None:
            yield CompactionPlan(how, upto)


def _certain_methods(strategies: Sequence[CompactionMethod]) -> Sequence[CompactionMethod]:
    """Those that make room for certain."""
    return [*(how for how in strategies if how == "summary"), "window"]


def has_overflowed(run: RunState) -> bool:
    """A provider said that the prompt is too long."""
    return bool(run.failures) and run.failures[-1].fault.kind == "context_overflow"


def _is_forced(run: RunState) -> bool:
    return has_overflowed(run) and not run.forced


def _target_tokens(state: State, setup: Setup, run: RunState, model: ModelInfo) -> float | None:
    """The tokens that the view should have; None if it may stay as it is."""
    rules, window = setup.compaction, setup.compaction.window or model.window
    tokens = estimate_tokens(state, model.name)
    if _is_forced(run):
        half = tokens * FORCED_KEEP_SHARE
        return half if window is None else min(half, window * rules.target)
    if window is None or run.failures:
        return None
    bound = rules.target if run.compacted else rules.trigger
    return window * rules.target if tokens > window * bound else None


def _mask_upto(state: State, run: RunState, room: int) -> int | None:
    """Up to where the results of calls are old enough to be masked, if that makes room."""
    messages, kept = state.transcript, 0
    first = max(state.shown_from, state.masked_upto)
    upto = first
    starts = _group_starts(messages, first, run)
    for at, end in reversed(list(pairwise([*starts, len(messages)]))):
        kept += sum(message_tokens_max(messages[one]) for one in range(at, end))
        if kept > room / 2:
            upto = at
            break
    saved = sum(mask_saving(messages[at]) for at in range(first, upto))
    return upto if upto > first and saved > SAVING_SHARE_MIN * state.size else None


def _leave_out_upto(state: State, run: RunState, room: int) -> int | None:
    """The message from which on the view goes on, or None if there is nothing to leave out."""
    messages = state.transcript
    starts = _group_starts(messages, state.shown_from + 1, run)
    prompt = messages[run.new_from]
    kept = sum(message_tokens_max(one) for one in state.shown if one is prompt or is_pinned(one))
    best: int | None = None
    for at, end in reversed(list(pairwise([*starts, len(messages)]))):
        kept += sum(_removable_tokens(state, run, one) for one in range(at, end))
        if best is not None and kept > room:
            break
        best = at
    if best is None:
        return None
    freed = sum(_removable_tokens(state, run, at) for at in range(state.shown_from, best))
    return best if freed > (0 if _is_forced(run) else SAVING_SHARE_MIN * state.size) else None


def _removable_tokens(state: State, run: RunState, at: int) -> int:
    """How much smaller the view is without a message; nothing, if it must stay."""
    message = state.transcript[at]
    if at == run.new_from or is_pinned(message):
        return 0
    return message_tokens_max(message) - (mask_saving(message) if at < state.masked_upto else 0)


def left_out_note(state: State, upto: int) -> str:
    """What the model is told in the place of what was left out."""
    told = f"[{upto} earlier messages were left out, since the conversation grew too long.]"
    # What was told before counts no more; what was summed up does.
    summed_up = _LEFT_OUT_NOTE.sub("", state.summary)
    return f"{summed_up}\n\n{told}" if summed_up else told


def _group_starts(messages: Sequence[Message], first: int, run: RunState) -> list[int]:
    """Where a group begins: at every message that is not the results of the one before.

    The last group begins at the run's last reply, or at its prompt, and holds all that came since.
    """
    last = len(messages) - 1
    while last > run.new_from and not isinstance(messages[last], AssistantMessage):
        last -= 1
    return [at for at in range(first, last + 1) if not isinstance(messages[at], ToolResults)]
