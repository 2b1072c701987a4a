"""A run between its acceptance and its first driver, and prompts that wait behind a run.

Invariant: a run that was accepted has one prompt, which stays in the mailbox until the driver that
begins the run takes it. The run ends in the queue, or it is begun by exactly that prompt. A prompt
behind an open run is not a run yet; it can be withdrawn by its number.
"""

from msgspec.structs import replace

from windlass.core.control_facts import PromptWithdrawn, RunQueued
from windlass.core.events import RunStarted
from windlass.core.fold.calls import raise_illegal_fact
from windlass.core.fold.context import rebuild_view
from windlass.core.state import RunState, StartKey, State


def apply_run_queued(state: State, fact: RunQueued) -> State:
    """Let a run exist whose prompt is still in the mailbox."""
    if state.is_active:
        raise_illegal_fact(fact, "the run before it has not ended")
    if state.run is not None and state.run.undo_due:
        raise_illegal_fact(fact, "what the run before it did is to be undone first")
    if fact.mail <= state.prompts_taken or fact.mail in state.withdrawn:
        raise_illegal_fact(fact, f"prompt {fact.mail} was taken already")
    had_recalled = state.run is not None and state.run.known is not None
    run = RunState(
        number=fact.run,
        new_from=len(state.transcript),
        caller=fact.caller,
        context=fact.context,
        key=fact.key,
        queued_mail=fact.mail,
    )
    state = replace(state, run=run, step=None, runs=state.runs + 1, agent=fact.agent)
    state = note_start_key(state, StartKey(fact.key, fact.run, fact.digest))
    return rebuild_view(state) if had_recalled else state


def note_start_key(state: State, start: StartKey) -> State:
    """Remember a start that must not happen twice. That of a queued run is replaced."""
    if not start.key:
        return state
    others = (known for known in state.start_keys if known.run != start.run)
    return replace(state, start_keys=(*others, start))


def find_start(state: State, key: str) -> StartKey | None:
    """Return the start that a caller named so in this session, if there was one."""
    return next((start for start in state.start_keys if start.key == key), None)


def take_from_queue(state: State, fact: RunStarted) -> RunState:
    """Return the queued run that a driver begins. No other open run may be before it."""
    run = state.run
    if run is None or not run.queued_mail:
        raise_illegal_fact(fact, "the run before it has not ended")
    if (fact.run, fact.mail) != (run.number, run.queued_mail):
        raise_illegal_fact(fact, f"run {run.number} waits in the queue before it")
    return run


def apply_prompt_withdrawn(state: State, fact: PromptWithdrawn) -> State:
    """Note a prompt that begins no run, although it has not had its turn."""
    number = fact.prompt
    if number <= state.prompts_taken or number in state.withdrawn:
        raise_illegal_fact(fact, f"prompt {number} was taken already")
    if state.run is not None and state.is_queued and state.run.queued_mail == number:
        raise_illegal_fact(fact, f"prompt {number} is run {state.run.number}: cancel that one")
    return replace(state, withdrawn=(*state.withdrawn, number))
