"""What a run still owes its journal when its loop has stopped: replies, results, charges.

The law: what had come is recorded, and what was paid is charged by what had streamed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from msgspec.structs import replace

from windlass.core.errors import OUT_OF_FILES, JournalFailed, fault_from_error, is_out_of_files
from windlass.core.events import CallFinished, CallLate, Fact, RunEnded, RunReleased
from windlass.core.messages import Charge, ToolResult
from windlass.logs import get_logger
from windlass.runtime.in_flight import InFlight
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.recorder import Recorder

_log = get_logger(__name__)


class RunSettlement:
    """Settles one run, at its end or when it is let go."""

    def __init__(
        self,
        recorder: Recorder,
        in_flight: InFlight,
        leftovers: LeftoverTasks,
    ) -> None:
        self._recorder = recorder
        self._in_flight = in_flight
        self._leftovers = leftovers
        self._abandoned: list[str] = []

    async def settle_end(
        self, end: RunEnded, wait_for_stage: Callable[[asyncio.Task[Any]], Awaitable[None]]
    ) -> Sequence[Fact]:
        """Return the facts that end the run, once those that work for it have ended too.

        `wait_for_stage` waits for a task for as long as an end may take.
        """
        parked = self._in_flight.parked_calls
        # The sub-agents of these calls are driven here: they are cancelled with their calls.
        driven = {call for call in self._in_flight.charges_by_call if call not in parked}
        facts = tuple(self.wind_up_calls())
        finished = {fact.call_id for fact in facts if isinstance(fact, CallFinished)}
        state = self._recorder.expected_state
        if all(call.phase == "closed" or not call.began for call in state.step_calls):
            return (*facts, self._complete_end(end))
        ending = asyncio.create_task(self._in_flight.end_children(state, end, driven | finished))
        await wait_for_stage(ending)
        if ending.done() and not ending.cancelled() and ending.exception() is None:
            return (*facts, self._complete_end(end, ending.result()))
        _log.warning("session %s: its sub-agents may still be open", self._recorder.session)
        return (*facts, self._complete_end(end))

    def wind_up_calls(self) -> Iterator[Fact]:
        """Yield what had ended but was not on record, and abandon the calls that still run."""
        attempt = self._in_flight.attempt
        if attempt is not None and attempt.is_whole_reply:
            yield attempt.make_proposal()
        yield from self._in_flight.unrecorded_ends(self._recorder.expected_state)
        running_calls = self._in_flight.running_calls
        for task, cleared in tuple(running_calls.items()):
            if task.done() and not task.cancelled():
                yield self._in_flight.take_finished(task)
            else:
                on_late_result = partial(self._record_late_result, cleared.call.id)
                self._leftovers.abandon_call(task, on_late_result)
                self._abandoned.append(cleared.call.id)
                self._in_flight.keep_leftover(task)
        running_calls.clear()

    def _record_late_result(self, call_id: str, result: ToolResult) -> None:
        self._recorder.add_late_result(CallLate(call_id, result))

    def _complete_end(
        self, end: RunEnded, earlier_charges: Mapping[str, Sequence[Charge]] | None = None
    ) -> RunEnded:
        """Add to the end what was paid and streamed by an attempt that did not finish.

        `earlier_charges` is what calls have paid under earlier drivers, by the id of the call.
        """
        attempt = self._in_flight.attempt
        end = replace(end, still_running=tuple(self._abandoned))
        charges = {**(earlier_charges or {}), **self._in_flight.charges_by_call}
        if charges:
            end = replace(end, charges=tuple(chain.from_iterable(charges.values())))
        standing_text = self._in_flight.standing_text
        if attempt is None:
            return replace(end, partial=end.partial or standing_text)
        if attempt.is_whole_reply:
            return end
        partial_text = attempt.partial_text if attempt.is_main else standing_text
        return replace(end, partial=partial_text, charge=self._charge_open_attempt())

    def complete_release(self, release: RunReleased) -> RunReleased:
        """Add to the release what the attempt in flight has cost so far."""
        attempt = self._in_flight.attempt
        if attempt is None or attempt.is_whole_reply:
            return release
        return replace(release, charge=self._charge_open_attempt())

    def _charge_open_attempt(self) -> Charge | None:
        attempt = self._in_flight.attempt
        run = self._recorder.expected_state.run
        # A failure that is on record, or is being written, brings its own charge.
        if attempt is None or (run is not None and run.attempt is None):
            return None
        return attempt.compute_charge()


def find_append_error(closing: asyncio.Task[None]) -> BaseException | None:
    """Return why the last facts of a run may not be kept; None if they are."""
    if not closing.done():
        return JournalFailed("the journal did not answer; the end of the run may not be kept")
    if closing.cancelled():
        return JournalFailed("the last append was cancelled")
    return closing.exception()


def make_failed_end(error: BaseException) -> RunEnded | RunReleased:
    """Return the end of a run that an error stopped.

    Without file descriptors it is released: any driver can resume it, like after a full disk.
    """
    if is_out_of_files(error):
        return RunReleased(OUT_OF_FILES)
    fault = fault_from_error(error)
    return RunEnded("failed", fault.message, fault)
