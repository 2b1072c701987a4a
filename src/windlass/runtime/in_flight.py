"""What a run has under way: not on record yet, and not to be lost when the run is stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.core.events import CallFinished
from windlass.core.messages import Charge, ToolResult
from windlass.core.moves import ClearedCall
from windlass.core.state import State, find_call
from windlass.runtime.attempt import ModelAttempt

PROOF_LASTS_S = 0.25
"""How long after its start was recorded a call may begin without asking who drives the session."""


async def _always_driving() -> bool:
    return True


@dataclass(slots=True)
class InFlight:
    """The request, the running calls, and the ended calls that are on their way to the journal."""

    attempt: ModelAttempt | None = None
    running_calls: dict[asyncio.Task[ToolResult], ClearedCall] = field(
        default_factory=dict[asyncio.Task[ToolResult], ClearedCall]
    )
    """Each call, by its task."""
    ended_calls: list[CallFinished] = field(default_factory=list[CallFinished])
    charges_by_call: dict[str, Sequence[Charge]] = field(
        default_factory=dict[str, Sequence[Charge]]
    )
    """What each call has paid to models of its own so far; it may grow while the call runs."""

    still_driving: Callable[[], Awaitable[bool]] = _always_driving
    """Ask the journal whether this driver still has the session."""

    _starts_recorded_at: float = 0.0
    """When the starts of the latest calls were on record, by the clock of the event loop."""

    def read_text(self) -> str | None:
        """Return the text so far of the reply that is streaming; None if there is none."""
        attempt = self.attempt
        return attempt.partial_text if attempt is not None and attempt.is_main else None

    def note_starts(self) -> None:
        """Say that the starts of the next calls are on record: nobody else drives the session."""
        self._starts_recorded_at = asyncio.get_running_loop().time()

    async def run_if_driving(self, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        """Run a call, unless its start was recorded a while ago and the session is lost meanwhile.

        A process that was stopped in between, and goes on now, must ask again.
        """
        passed_s = asyncio.get_running_loop().time() - self._starts_recorded_at
        if passed_s > PROOF_LASTS_S and not await self.still_driving():
            work.close()
            return ToolResult.from_text(
                "cancelled", "The call did not start: another driver has taken the session over."
            )
        return await work

    def take_finished(self, task: asyncio.Task[ToolResult]) -> CallFinished:
        """Remove a call that is over, and return its end."""
        cleared = self.running_calls.pop(task)
        call_id = cleared.call.id
        charges = tuple(self.charges_by_call.pop(call_id, ()))
        return CallFinished(call_id, result_of_task(task), charges, cleared.spec.name)

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
