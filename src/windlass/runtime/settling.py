"""What a run still owes its journal when its loop has stopped: replies, results, charges.

The law: what had come is recorded, and what was paid is charged by what had streamed.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain

from msgspec.structs import replace

from windlass.core.events import CallLate, Fact, RunEnded, RunReleased
from windlass.core.messages import Charge, ToolResult
from windlass.runtime.in_flight import InFlight
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.recorder import Recorder


class RunSettlement:
    """Settles one run, at its end or when it is let go."""

    def __init__(self, recorder: Recorder, in_flight: InFlight, leftovers: LeftoverTasks) -> None:
        self._recorder = recorder
        self._in_flight = in_flight
        self._leftovers = leftovers

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
                self._in_flight.keep_leftover(task)
        running_calls.clear()

    def _record_late_result(self, call_id: str, result: ToolResult) -> None:
        self._recorder.add_late_result(CallLate(call_id, result))

    def complete_end(self, end: RunEnded) -> RunEnded:
        """Add to the end what was paid and streamed by an attempt that did not finish."""
        attempt = self._in_flight.attempt
        charges = self._in_flight.charges_by_call
        if charges:
            end = replace(end, charges=tuple(chain.from_iterable(charges.values())))
        if attempt is None or attempt.is_whole_reply:
            return end
        partial_text = attempt.partial_text if attempt.is_main else ""
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
