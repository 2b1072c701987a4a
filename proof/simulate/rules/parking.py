"""Rules for calls that ran when a driver died: they run alone, and never a third time unasked."""

from collections import Counter
from collections.abc import Sequence

from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from proof.simulate.rules.effects import tool_names
from proof.simulate.sim_tools import WITH_SESSIONS
from windlass.core.events import (
    CallAnswered,
    CallFinished,
    CallStarted,
    CallWaiting,
    Fact,
    RunContinued,
    RunEnded,
    RunPaused,
    RunReleased,
    RunResumed,
    SessionImported,
)

DEATHS_MAX = 2


def check_parking(played: PlayedSession) -> None:
    """D15: by the facts of each session, without the fold."""
    for facts in (played.facts, *played.inner.values()):
        _check_session(facts)


def _check_session(facts: list[Fact]) -> None:
    names = tool_names(facts)
    deaths: Counter[str] = Counter()
    running: set[str] = set()
    was_released = False
    for fact in facts:
        match fact:
            case CallStarted(call_id):
                suspects = sorted(one for one in (*running, call_id) if deaths[one])
                require(len(suspects) <= 1, f"D15: {suspects} run together, and a driver died")
                times = deaths[call_id]
                require(times < DEATHS_MAX, f"D15: {call_id} runs again after {times} deaths")
                running.add(call_id)
            case CallFinished(call_id) | CallWaiting(call_id):
                running.discard(call_id)
            case RunReleased():
                was_released = True
            case RunResumed():
                if not was_released:
                    deaths.update(one for one in running if names[one] not in WITH_SESSIONS)
                running.clear()
                was_released = False
            case RunPaused(cause="deaths", by=""):
                parked = [one for one, times in deaths.items() if times >= DEATHS_MAX]
                require(parked, f"D15: a run is parked, and no call is poison: {deaths}")
            case RunContinued() | CallAnswered():
                _pardon(deaths, [fact.call_id] if isinstance(fact, CallAnswered) else [*deaths])
            case RunEnded() | SessionImported():
                deaths.clear()
                running.clear()
            case _:
                pass


def _pardon(deaths: Counter[str], calls: Sequence[str]) -> None:
    for call_id in calls:
        deaths[call_id] = min(deaths[call_id], DEATHS_MAX - 1)
