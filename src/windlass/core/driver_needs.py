"""When a session needs a driver: what brings one to a run that waits.

Invariant: a run that waits is never forgotten. A message brings a driver to it, or a time that its
row says: its first question expires, or it asks a shared budget again.
"""

import math

from windlass.core.state import State


def needs_driver(
    state: State, *, has_control_mail: bool, has_prompts: bool, now: float = math.inf
) -> bool:
    """Return whether a root session needs a driver now: the one rule for every search for work.

    The flags say whether each lane has messages beyond its cursor. An open run needs a driver
    unless it is paused or waits for a person. Even then a driver must come for control messages,
    because one of them may end the pause, answer the question or cancel the run; the driver takes
    them and releases the run again. One that waits for a shared budget needs a driver at the time
    when it asks the budget again; `now` is in seconds since the epoch. A prompt waits until the run
    before it has ended and, if that run must be undone, until its calls are undone.
    """
    if state.run is not None and state.run.undo_due:
        return True
    if not state.is_active:
        return has_control_mail or has_prompts
    if state.is_queued:
        # Its driver begins it with its prompt. In a pause, only a message brings one.
        return has_prompts and (has_control_mail or not state.is_paused)
    if state.is_paused or state.is_waiting:
        return has_control_mail
    due = find_due(state)
    return due is None or has_control_mail or due <= now


def find_due(state: State) -> float | None:
    """Return when a run that waits needs a driver; None if no time alone brings it one."""
    if state.is_waiting:
        return find_expiry(state)
    wait = state.run.budget_wait if state.run is not None and state.awaits_budget else None
    return None if wait is None else wait.due_at


def find_expiry(state: State) -> float | None:
    """Return when the first open question of a run or its sub-agents expires; None if none does."""
    calls = state.step_calls
    times = [call.question.expires_at for call in calls if call.question is not None]
    for call in calls:
        if call.waits_for is not None:
            times += [question.expires_at for question in call.waits_for.questions]
    return min((at for at in times if at is not None), default=None)
