"""What a run has under way: not on record yet, and not to be lost when the run is stopped."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from windlass.core.events import CallFinished
from windlass.core.messages import Charge, ToolResult
from windlass.core.state import State, find_call
from windlass.runtime.attempt import ModelAttempt


@dataclass(slots=True)
class InFlight:
    """The request, the running calls, and the ended calls that are on their way to the journal."""

    attempt: ModelAttempt | None = None
    running_calls: dict[asyncio.Task[ToolResult], str] = field(
        default_factory=dict[asyncio.Task[ToolResult], str]
    )
    """The id of each call, by its task."""
    ended_calls: list[CallFinished] = field(default_factory=list[CallFinished])
    charges_by_call: dict[str, Sequence[Charge]] = field(
        default_factory=dict[str, Sequence[Charge]]
    )
    """What each call has paid to models of its own so far; it may grow while the call runs."""

    def take_finished(self, task: asyncio.Task[ToolResult]) -> CallFinished:
        """Remove a call that is over, and return its end."""
        call_id = self.running_calls.pop(task)
        charges = tuple(self.charges_by_call.pop(call_id, ()))
        return CallFinished(call_id, result_of_task(task), charges)

    def unrecorded_ends(self, state: State) -> Iterator[CallFinished]:
        """Yield the ended calls that are still open in a state, so that they can be recorded."""
        for fact in self.ended_calls:
            call = find_call(state, fact.call_id)
            if call is not None and call.phase in ("started", "interrupted"):
                yield fact


def result_of_task(task: asyncio.Task[ToolResult]) -> ToolResult:
    """Return the result of a call that is over. A call that raised has an error as its result."""
    if task.cancelled():
        return ToolResult.from_text("cancelled", "The tool was cancelled.")
    error = task.exception()
    if error is None:
        return task.result()
    # Only the type: the text of an unexpected exception may hold anything.
    return ToolResult.from_text("error", f"{type(error).__name__}: the tool failed")
