"""What a run has in the air: not yet on record, and not to be lost when it is stopped."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from windlass.core.events import CallFinished
from windlass.core.messages import Charge, ToolResult
from windlass.core.state import State, find_call
from windlass.runtime.attempt import ModelAttempt


@dataclass(slots=True)
class InFlight:
    """One request, the calls that run, and the ends that are on their way to the journal."""

    attempt: ModelAttempt | None = None
    running_calls: dict[asyncio.Task[ToolResult], str] = field(
        default_factory=dict[asyncio.Task[ToolResult], str]
    )
    ended_calls: list[CallFinished] = field(default_factory=list[CallFinished])
    """Calls that are over, on their way to the journal."""
    charges_by_call: dict[str, Sequence[Charge]] = field(
        default_factory=dict[str, Sequence[Charge]]
    )
    """What the calls have paid to models of their own; it may grow while they run."""

    def take_finished(self, task: asyncio.Task[ToolResult]) -> CallFinished:
        """The end of a call that is over."""
        call_id = self.running_calls.pop(task)
        return CallFinished(
            call_id, result_of_task(task), tuple(self.charges_by_call.pop(call_id, ()))
        )

    def unrecorded_ends(self, state: State) -> Iterator[CallFinished]:
        """The ends of calls that did not get to the journal, as it stands."""
        for fact in self.ended_calls:
            call = find_call(state, fact.call_id)
            if call is not None and call.phase in ("started", "interrupted"):
                yield fact


def result_of_task(task: asyncio.Task[ToolResult]) -> ToolResult:
    """The result of a call that is over; a failing call never takes its siblings with it."""
    if task.cancelled():
        return ToolResult.from_text("cancelled", "The tool gave up.")
    error = task.exception()
    if error is None:
        return task.result()
    return ToolResult.from_text("error", f"{type(error).__name__}: the tool failed")
