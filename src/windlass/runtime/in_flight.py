"""What a run has in the air: not yet on record, and not to be lost when it is stopped."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from windlass.core.events import CallFinished
from windlass.core.messages import Charge, Result
from windlass.core.state import State, call_of
from windlass.runtime.attempt import Attempt


@dataclass(slots=True)
class Underway:
    """One request, the calls that run, and the ends that are on their way to the journal."""

    attempt: Attempt | None = None
    calls: dict[asyncio.Task[Result], str] = field(default_factory=dict[asyncio.Task[Result], str])
    ended: list[CallFinished] = field(default_factory=list[CallFinished])
    """Calls that are over, on their way to the journal."""
    paid: dict[str, Sequence[Charge]] = field(default_factory=dict[str, Sequence[Charge]])
    """What the calls have paid to models of their own; it may grow while they run."""

    def finished(self, task: asyncio.Task[Result]) -> CallFinished:
        """The end of a call that is over."""
        call_id = self.calls.pop(task)
        return CallFinished(call_id, outcome_of(task), tuple(self.paid.pop(call_id, ())))

    def unrecorded(self, state: State) -> Iterator[CallFinished]:
        """The ends of calls that did not get to the journal, as it stands."""
        for fact in self.ended:
            call = call_of(state, fact.call_id)
            if call is not None and call.phase in ("started", "interrupted"):
                yield fact


def outcome_of(task: asyncio.Task[Result]) -> Result:
    """The result of a call that is over; a failing call never takes its siblings with it."""
    if task.cancelled():
        return Result.say("cancelled", "The tool gave up.")
    error = task.exception()
    if error is None:
        return task.result()
    return Result.say("error", f"{type(error).__name__}: the tool failed")
