"""The one writer of a session: check, write, advance; then the publisher notifies the watchers.

Invariant: a fact is folded into the state before it is written, so that an illegal one is never
written, and it is published once it is durable. An append that has begun cannot be taken back: a
caller that is cancelled meanwhile waits for it for a bounded time, and nothing else is written
before it is over, so that the state in memory and the one on disk never differ. Secrets are masked
here, before a fact is folded in.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from windlass.core.decide.reserving import estimate_tokens
from windlass.core.errors import JournalFailed, WindlassError
from windlass.core.events import (
    CallJudged,
    CallLate,
    ContextCompacted,
    Fact,
    RunEnded,
    RunQueued,
    RunResumed,
    RunStarted,
)
from windlass.core.fold.control import bind_question
from windlass.core.fold.run import (
    OUTSIDE_FACTS,
    apply_fact,
    counts_as_work,
    may_come_from_outside,
)
from windlass.core.secrets.fact_masks import count_prompt_chars
from windlass.core.secrets.mask import Mask
from windlass.core.session_summary import row_of
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.ports import Clock, Journal
from windlass.runtime.leftover_tasks import wait_bounded
from windlass.runtime.publisher import EventPublisher

LONG_PROMPT_CHARS = 200_000
"""A prompt with more characters is masked in a thread; searching it takes some milliseconds."""
CANCELLED_WAIT_S = 0.04
"""How long a caller that was cancelled still waits for the journal."""
CLOCK_SLACK_S = 1.0
"""How far the wall clock may be from the time at work before a fact says so."""
NAME_BITS = 48
"""Of the random name of a driver, or of a session."""


class _Append(msgspec.Struct, frozen=True, eq=False):
    """Facts on their way to the journal, and the state once they are there."""

    write: "asyncio.Future[None]"
    state: State
    facts: list[Fact]


class Recorder:
    """Writes the facts of one session."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        state: State,
        mask: Mask,
        publisher: EventPublisher | None = None,
        on_late_result: Callable[[CallLate], None] | None = None,
    ) -> None:
        """Make a recorder that continues from a state.

        `on_late_result` gets the results of abandoned calls that come in after the recorder was
        closed.
        """
        self._journal = journal
        self._clock = clock
        self.session = state.session
        self.mask = mask
        self.publisher = publisher or EventPublisher(mask)
        self._on_late_result = on_late_result
        self._late_results: list[CallLate] = []
        self._failure: WindlassError | None = None
        self._append: _Append | None = None
        self._staged: list[Fact] = []
        """Facts that are in the state already and go to the disk with the next ones."""
        self.last_fact: Fact | None = None
        """The last fact of the session, or None if this recorder has not written yet."""
        self._next_append: asyncio.Future[None] | None = None
        """Done once the next facts are durable, if a reader waits for them."""
        self.is_closed = False
        self._counted_at: float | None = None
        """The time of the event loop up to which work is counted; None before the first fact."""
        self.start_from(state)

    @property
    def expected_state(self) -> State:
        """The state once the append in progress has succeeded."""
        return self.state if self._append is None else self._append.state

    @property
    def setup(self) -> Setup:
        if self.state.setup is None:
            raise RuntimeError("no run has started in this session")
        return self.state.setup

    def start_from(self, state: State) -> None:
        """Continue from the state that the session was found in."""
        self.state = state
        """The state of the session, with the staged facts. Only the recorder sets it."""
        self.ended_state: State | None = None
        """The state at the end of the run, before the next one was queued with it."""
        self.durable_state = state
        """The state by the facts that are on record, as far as the journal has confirmed them."""
        self.publisher.start_from(state)

    async def record(self, *facts: Fact, masked: Sequence[Fact] = ()) -> None:
        """Write facts, with those that were staged, and return once they are durable.

        Those in `masked` come from `mask_opening`. Raises JournalFailed, SessionBusy or
        IllegalFact. After a failure nothing more is written.
        """
        if self._append is not None or self.is_closed or self._failure is not None:
            await self._finish_append()
        state, stamped = self._stamp_facts((*self._late_results, *facts), masked)
        self._late_results = []
        batch = [*self._staged, *stamped]
        self._staged = []
        write = self._start_append(batch, state)
        append = self._append = _Append(write, state, batch)
        try:
            if not write.done():
                await asyncio.shield(write)
        except asyncio.CancelledError:
            await wait_bounded(write, CANCELLED_WAIT_S)
            if write.done():
                self._complete_append(append)
            raise
        except Exception:  # noqa: BLE001, S110 - `_complete_append` classifies it
            pass
        self._complete_append(append)

    async def record_from(self, make_facts: Callable[[State], Sequence[Fact]]) -> None:
        """Write the facts that follow from the state, with nothing written in between.

        Does nothing if there are none. Raises what `record` raises.
        """
        await self._finish_append()
        # No append is in progress now, so `record` begins its own before anything else can run.
        if facts := make_facts(self.state):
            await self.record(*facts)

    async def wait_for_fact(self, after: int) -> None:
        """Return once the session has a durable fact after this number."""
        while self.durable_state.seq <= after:
            if self._next_append is None or self._next_append.done():
                self._next_append = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next_append)

    async def mask_opening(self, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Return the facts that open a run without their secrets.

        A prompt or an attachment may have many megabytes: those are searched in a thread, in short
        steps, so that the event loop stays responsive.
        """
        find_tool = self.state.setup.find_tool if self.state.setup else None
        masked: list[Fact] = []
        for fact in facts:
            if count_prompt_chars(fact) > LONG_PROMPT_CHARS:
                masked.append(await asyncio.to_thread(self.mask.mask_fact, fact, find_tool))
            else:
                masked.append(self.mask.mask_fact(fact, find_tool))
        return masked

    async def stage(self, *facts: Fact) -> None:
        """Fold facts in that the next record writes along with its own, in one append.

        Only for a caller that goes straight on to that record. It must not do or wait for anything
        in between without calling `flush` first.
        """
        if self._append is not None or self.is_closed or self._failure is not None:
            await self._finish_append()
        self.state, stamped = self._stamp_facts(facts)
        self._staged += stamped

    async def flush(self) -> None:
        """Write what is still staged."""
        if self._staged:
            await self.record()

    async def _finish_append(self) -> None:
        """Wait for an append whose caller was cancelled before it was over."""
        if self.is_closed:
            raise JournalFailed("the run has ended: nothing more is written")
        while (append := self._append) is not None:
            await asyncio.wait({append.write})
            self._complete_append(append)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise why an append failed, if one did: the journal takes nothing more of this run."""
        if self._failure is not None:
            raise self._failure

    def _start_append(self, batch: list[Fact], state: State) -> "asyncio.Future[None]":
        try:
            write = self._journal.append(self.session, batch, row_of(state))
            return asyncio.ensure_future(write)
        except Exception as error:  # noqa: BLE001 - a journal may fail before it has begun
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    def _complete_append(self, append: _Append) -> None:
        """Advance by an append that is over, unless a caller that waited behind it did so."""
        write = append.write
        if self._append is not append:
            self.raise_failure()
            return
        self._append = None
        if not write.cancelled() and write.exception() is None:
            batch = append.facts
            shown: Sequence[Fact] = batch
            for at, fact in enumerate(batch):
                if isinstance(fact, ContextCompacted):
                    saving = _show_saving(fact, self.durable_state, append.state)
                    shown = [*batch[:at], saving, *batch[at + 1 :]]
            self.state = append.state
            self.durable_state = append.state
            self.last_fact = batch[-1]
            if isinstance(batch[-1], RunQueued):
                # It belongs to the next run: for those who watch this one, the end is the last.
                shown = shown[:-1]
            self.publisher.publish_facts(shown, append.state)
            if self._next_append is not None and not self._next_append.done():
                self._next_append.set_result(None)
            if isinstance(batch[-1], RunEnded | RunQueued):
                self.close()
            return
        self._failure = self._classify_error(write)
        # The staged facts went with this append, so they were not kept either.
        self.state = self.durable_state
        self._staged = []
        raise self._failure

    def _classify_error(self, write: "asyncio.Future[None]") -> WindlassError:
        if write.cancelled():
            return JournalFailed("the journal cancelled an append")
        error = write.exception()
        if isinstance(error, WindlassError):
            return error
        message = f"the journal failed: {error}"
        return JournalFailed(self.mask.mask_text(message))

    def _stamp_facts(
        self, facts: Sequence[Fact], masked_before: Sequence[Fact] = ()
    ) -> tuple[State, list[Fact]]:
        """Mask facts, number and date them, and fold them in. Raises IllegalFact."""
        state = self.state
        now = self._clock.now()
        # The event loop's clock is never set, and it stops while the machine sleeps.
        ticks = asyncio.get_running_loop().time()
        counted_at = ticks if self._counted_at is None else self._counted_at
        batch: list[Fact] = []
        for fact in facts:
            masked = fact
            if not masked_before or all(fact is not other for other in masked_before):
                masked = self.mask.mask_fact(fact, state.setup.find_tool if state.setup else None)
            if isinstance(masked, RunStarted | RunResumed | RunQueued):
                name = f"{int(self._clock.random_fraction() * 2**NAME_BITS):x}"
                if not isinstance(masked, RunQueued):
                    masked = replace(masked, driver=name)
                elif not state.seq:
                    masked = replace(masked, session_id=name)
            # Time never runs backwards in a journal, whatever the wall clock does.
            at = max(now, state.at)
            stamped = replace(masked, seq=state.seq + 1, at=at)
            worked_s = ticks - counted_at
            if abs(at - state.at - worked_s) > CLOCK_SLACK_S and counts_as_work(state, stamped):
                stamped = replace(stamped, worked_s=round(worked_s, 3))
            if type(fact) not in OUTSIDE_FACTS or not may_come_from_outside(state, stamped):
                counted_at = ticks
            state = apply_fact(state, stamped)
            if isinstance(stamped, RunEnded):
                self.ended_state = state
            if isinstance(stamped, CallJudged):
                stamped = bind_question(state, stamped)
            batch.append(stamped)
        self._counted_at = counted_at
        return state, batch

    def add_late_result(self, fact: CallLate) -> None:
        """Take the late result of an abandoned call: it is written with the next facts."""
        if self.is_closed and self._on_late_result is not None:
            self._on_late_result(fact)
        else:
            self._late_results.append(fact)

    def announce_unrecorded_end(self, *facts: Fact) -> State:
        """Tell the watchers of an end that the journal did not take, and close.

        Returns the state as if the facts had been written.
        """
        batch: list[Fact] = []
        if self._append is not None:
            self.state = self._append.state
            batch = self._append.facts
            if isinstance(batch[-1], RunQueued):
                batch = batch[:-1]
            if isinstance(batch[-1], RunEnded):
                facts = ()
        state, stamped = self._stamp_facts(facts)
        self.publisher.publish((*batch, *stamped)[-1])
        self.close()
        return self.ended_state or state

    def close(self) -> None:
        """Write and tell nothing more; results that came too late go to `on_late_result`."""
        self.is_closed = True
        self.publisher.close()
        if self._on_late_result is not None:
            late_results = self._late_results
            self._late_results = []
            for fact in late_results:
                self._on_late_result(fact)


def _show_saving(fact: ContextCompacted, before: State, after: State) -> ContextCompacted:
    """Return a compaction as watchers see it: with what it saved, which is not recorded."""
    model = after.setup.model.name if after.setup else ""
    tokens = max(0, round(estimate_tokens(before, model) - estimate_tokens(after, model)))
    messages = max(0, len(before.shown) - len(after.shown))
    return replace(fact, messages_saved=messages, tokens_saved=tokens)


class RealClock:
    """Implements `ports.Clock` with the machine's time and Python's random numbers."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random_fraction(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret
