"""How far the sessions have come that work for a run: its sub-agents, code that calls tools."""

from collections.abc import Sequence

from windlass.agent.child_sessions import (
    SESSION_NAMES_MAX,
    find_sessions_below,
    model_session_name,
)
from windlass.core.events import (
    CallFinished,
    Fact,
    RunContinued,
    RunEnded,
    RunStarted,
    SessionProgress,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.state import State
from windlass.ports import Journal

_PROGRESS = (StepProposed, CallFinished, RunStarted, RunContinued, RunEnded)


async def read_progress_below(journal: Journal, state: State) -> tuple[SessionProgress, ...]:
    """Return how far the sessions have come that work for open calls of a run, at any depth."""
    found: list[SessionProgress] = []
    for call in state.step_calls:
        if not call.began or call.phase == "closed":
            continue
        for session, facts in await _read_sessions(journal, state.child_session_name(call.id)):
            found.append(SessionProgress(session, _last_progress(facts)))
            found += await read_progress_below(journal, fold(session, facts))
    return tuple(found)


async def _read_sessions(journal: Journal, call: str) -> Sequence[tuple[str, Sequence[Fact]]]:
    """Return the sessions that work for a call, with their facts."""
    found = list(await find_sessions_below(journal, call))
    for nth in range(1, SESSION_NAMES_MAX + 1):
        name = model_session_name(call, nth)
        facts = await journal.read(name)
        if not facts:
            break
        first = facts[0]
        if isinstance(first, RunStarted) and first.parent == call:
            found.append((name, facts))
    return found


def _last_progress(facts: Sequence[Fact]) -> int:
    return next((fact.seq for fact in reversed(facts) if isinstance(fact, _PROGRESS)), 0)
