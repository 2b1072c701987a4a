"""Calls that run side by side, as a journal tells of them: who may start, and who may end."""

from dataclasses import dataclass
from typing import Self

from windlass.core.events import CallFinished, CallJudged
from windlass.core.moves import ClearedCall, RunCalls
from windlass.core.verdicts import Allow, Ask


@dataclass(slots=True)
class CallWave:
    """The calls of one move, and how far each has come."""

    waiting: dict[str, ClearedCall]
    running: set[str]
    lost: set[str]
    """Writes that a crash interrupted: they are settled first, and by themselves."""
    at_once_max: int
    ask_unknown: bool
    had_lost: bool

    @classmethod
    def from_move(cls, move: RunCalls) -> Self:
        lost = {one.call.id for one in move.calls if one.interrupted and not one.repeatable}
        waiting = {one.call.id: one for one in move.calls}
        return cls(waiting, set(), lost, move.at_once_max, move.ask_if_unknown, bool(lost))

    @property
    def is_over(self) -> bool:
        return not self.lost if self.had_lost else not (self.waiting or self.running)

    @property
    def next_actions(self) -> str:
        if self.lost:
            return f"find out what became of {', '.join(sorted(self.lost))}"
        keys = [one.key for one in self.waiting.values()]
        begin = f"start {keys[0]}" if keys and len(self.running) < self.at_once_max else ""
        wait = f"wait for {', '.join(sorted(self.running))}" if self.running else ""
        return " or ".join(filter(None, (begin, wait)))

    def try_start(self, call_id: str) -> bool:
        """Whether this call is the next to start: in the model's order, and not too many."""
        room = not self.lost and len(self.running) < self.at_once_max
        if not room or next(iter(self.waiting)) != call_id:
            return False
        del self.waiting[call_id]
        self.running.add(call_id)
        return True

    def try_settle(self, call_id: str, fact: CallFinished | CallJudged) -> bool:
        """Whether this ends a call that runs, or settles one that a crash interrupted."""
        if call_id in self.running and isinstance(fact, CallFinished):
            self.running.discard(call_id)
            return True
        cleared = self.waiting.get(call_id)
        if cleared is None or not cleared.interrupted:
            return False
        lost = call_id in self.lost
        if isinstance(fact, CallFinished):
            fits = lost or fact.result.kind == "unknown"
        elif isinstance(fact.verdict, Ask):
            fits = self.ask_unknown
        else:
            fits = lost and isinstance(fact.verdict, Allow)
        if fits:
            del self.waiting[call_id]
            self.lost.discard(call_id)
        return fits
