"""The calls that run at the same time, as a journal shows them: which may start, and which may end.

`RunCalls` hands the loop a group of calls. Their facts may come in many orders, and a replay has to
tell the possible orders from the impossible ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from windlass.core.events import CallFinished, CallJudged
from windlass.core.moves import ClearedCall, RunCalls
from windlass.core.state import CallState
from windlass.core.verdicts import Allow, Ask


@dataclass(slots=True)
class CallWave:
    """The calls of one move, and how far each has come."""

    waiting: dict[str, ClearedCall]
    running: set[str]
    lost: set[str]
    """Writes that a crash interrupted. They are settled first, and nothing else starts before."""
    doubted: set[str]
    """Calls whose permission is not believed: the gate judges them again if they were not done."""
    at_once_max: int
    ask_if_unknown: bool
    had_lost: bool

    @classmethod
    def from_move(cls, move: RunCalls, calls: Iterable[CallState]) -> Self:
        """Return the wave of a move; `calls` are those of its step."""
        lost = {
            cleared.call.id
            for cleared in move.calls
            if cleared.interrupted and not cleared.repeatable
        }
        waiting = {cleared.call.id: cleared for cleared in move.calls}
        doubted = {call.id for call in calls if call.doubted}
        return cls(waiting, set(), lost, doubted, move.at_once_max, move.ask_if_unknown, bool(lost))

    @property
    def is_over(self) -> bool:
        """Whether the loop asks for the next move now: lost writes are their own wave."""
        if self.had_lost:
            return not self.lost
        return not self.waiting and not self.running

    @property
    def next_actions(self) -> str:
        """What may happen next, in words."""
        if self.lost:
            return f"find out what became of {', '.join(sorted(self.lost))}"
        actions: list[str] = []
        if self.waiting and len(self.running) < self.at_once_max:
            actions.append(f"start {next(iter(self.waiting.values())).key}")
        if self.running:
            actions.append(f"wait for {', '.join(sorted(self.running))}")
        return " or ".join(actions)

    def try_start(self, call_id: str) -> bool:
        """Start a call, if it is the next in the model's order and not too many run."""
        has_room = not self.lost and len(self.running) < self.at_once_max
        if not has_room or next(iter(self.waiting)) != call_id:
            return False
        del self.waiting[call_id]
        self.running.add(call_id)
        return True

    def try_settle(self, call_id: str, fact: CallFinished | CallJudged) -> bool:
        """End a call that runs, or settle one that a crash interrupted, if the fact can do so."""
        if call_id in self.running and isinstance(fact, CallFinished):
            self.running.discard(call_id)
            return True
        cleared = self.waiting.get(call_id)
        if cleared is None or not cleared.interrupted:
            return False
        is_lost = call_id in self.lost
        if isinstance(fact, CallFinished):
            fits = is_lost or fact.result.kind == "unknown"
        elif call_id in self.doubted:
            fits = is_lost
        elif isinstance(fact.verdict, Ask):
            fits = self.ask_if_unknown
        else:
            fits = is_lost and isinstance(fact.verdict, Allow)
        if fits:
            del self.waiting[call_id]
            self.lost.discard(call_id)
        return fits
