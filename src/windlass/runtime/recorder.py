"""The one writer of a session: check, write, advance, then show.

A fact is folded in before it is written, so that an illegal one is never written; it is shown once
it is durable. An append that has begun cannot be recalled: whoever is cancelled meanwhile waits for
it for a bounded time, and nothing else is written before it, so that the state in memory and the
one on disk are never two. Secrets are masked here, before a fact is folded in and before a delta is
shown; and a reply that its gate has yet to judge is shown when it has been.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from windlass.core.errors import JournalFailed, WindlassError
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallDelta,
    CallFinished,
    CallLate,
    Delta,
    Event,
    Fact,
    ReplyEnd,
    ReplyPiece,
    RunEnded,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.fold.run import apply_fact
from windlass.core.reply_hold import ReplyHold
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_pieces import PieceMask
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Clock, Journal, Watcher
from windlass.runtime.waiting import wait_bounded

DeltaT = TypeVar("DeltaT", bound=Delta)
_log = get_logger(__name__)
CANCELLED_WAIT_S = 0.04
"""How long somebody who was cancelled still waits for the journal."""


class Recorder:
    """Writes the facts of one session and tells its watchers."""

    def __init__(
        self, journal: Journal, clock: Clock, state: State, mask: Mask | None = None
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._mask = mask
        self._pieces = PieceMask(mask) if mask else None
        self._reply_hold = ReplyHold()
        self._deltas_since_fact = 0
        self._failure: WindlassError | None = None
        self._append_in_progress: tuple[asyncio.Future[None], State, list[Fact]] | None = None
        self._late_results: list[CallLate] = []
        self._staged: list[Fact] = []
        """Facts that are folded in already and go to the disk with the next ones."""
        self.state = state
        """With what is being carried, if anything is."""
        self._durable_state = state
        """As it is on the disk: what is shown is placed after its last fact."""
        self.last_fact: Fact | None = None
        """The last fact of the session, once one was written here."""
        self.on_activity: Callable[[], None] | None = None
        """Is told whenever anything happens."""
        self.watchers: list[Watcher] = []
        self.on_late_result: Callable[[CallLate], None] = self._late_results.append
        self.is_closed = False

    @property
    def mask(self) -> Mask | None:
        return self._mask

    def start_from(self, state: State) -> None:
        """Go on from a session as it was found."""
        self.state = self._durable_state = state

    @property
    def session(self) -> str:
        return self.state.session

    @property
    def expected_state(self) -> State:
        """The state once what is on its way to the disk has arrived there."""
        return self.state if self._append_in_progress is None else self._append_in_progress[1]

    @property
    def setup(self) -> Setup:
        if self.state.setup is None:
            raise RuntimeError("no run has started")
        return self.state.setup

    async def record(self, *facts: Fact) -> None:
        """Return once the facts are durable. After a failure nothing more is written."""
        if self.is_closed:
            raise JournalFailed("the run has ended")
        await self._finish_append()
        inbox, self._late_results = self._late_results, []
        state, stamped = self._stamp_facts((*inbox, *facts))
        batch, self._staged = [*self._staged, *stamped], []
        write = self._start_append(batch)
        mine = self._append_in_progress = (write, state, batch)
        try:
            if not write.done():
                await asyncio.shield(write)
        except asyncio.CancelledError:
            await wait_bounded(write, CANCELLED_WAIT_S)
            if write.done():
                self._complete_append(mine)
            raise
        except Exception:  # noqa: BLE001, S110 - whatever it was, `_advance` classifies it
            pass
        self._complete_append(mine)

    async def stage(self, *facts: Fact) -> None:
        """Take facts in that the next record writes along with its own, in one append.

        Only for whoever goes straight on to that record: nothing may be done or waited for in
        between, or `flush` comes first.
        """
        if self.is_closed:
            raise JournalFailed("the run has ended")
        await self._finish_append()
        self.state, stamped = self._stamp_facts(facts)
        self._staged += stamped

    async def flush(self) -> None:
        """Write what is still being carried."""
        if self._staged:
            await self.record()

    def _complete_append(self, mine: "tuple[asyncio.Future[None], State, list[Fact]]") -> None:
        """Advance by an append that is over, unless whoever waits behind it was faster."""
        if self._append_in_progress is mine:
            self._advance_state(*mine)
        elif self._failure is not None:
            raise self._failure

    def _start_append(self, batch: list[Fact]) -> "asyncio.Future[None]":
        try:
            return asyncio.ensure_future(self._journal.append(self.session, batch))
        except Exception as error:  # noqa: BLE001 - a journal may fail before it has begun
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def _finish_append(self) -> None:
        """An append that somebody was too impatient for comes first."""
        while (under_way := self._append_in_progress) is not None:
            await asyncio.wait({under_way[0]})
            self._complete_append(under_way)
        if self._failure is not None:
            raise self._failure

    def add_late_result(self, fact: CallLate) -> None:
        """Take in a late result: it is written with the next facts, or by whoever comes after."""
        if self.is_closed:
            self.on_late_result(fact)
        else:
            self._late_results.append(fact)

    def _stamp_facts(self, facts: Sequence[Fact]) -> tuple[State, list[Fact]]:
        state, batch, now = self.state, list[Fact](), self._clock.now()
        for fact in facts:
            # Time never runs backwards in a journal, whatever the wall clock does.
            masked = self._mask.mask_fact(fact) if self._mask else fact
            placed = replace(masked, seq=state.seq + 1, at=max(now, state.at))
            state = apply_fact(state, placed)
            batch.append(placed)
        return state, batch

    def _advance_state(
        self, write: "asyncio.Future[None]", state: State, batch: list[Fact]
    ) -> None:
        self._append_in_progress = None
        if write.cancelled():
            self._failure = JournalFailed("the journal gave up an append")
        elif (error := write.exception()) is not None:
            message = self.mask_text(f"the journal failed: {error}")
            self._failure = error if isinstance(error, WindlassError) else JournalFailed(message)
        else:
            self._prepare_deltas(batch)
            self.state = self._durable_state = state
            self._deltas_since_fact, self.last_fact = 0, batch[-1]
            if self.on_activity is not None:
                self.on_activity()
            for fact in () if self.is_closed else batch:
                self._publish(fact)
            if isinstance(batch[-1], RunEnded):
                self.close()
            return
        # What was carried along was not kept either.
        self.state, self._staged = self._durable_state, []
        raise self._failure

    def mask_text(self, text: str) -> str:
        """A text without its secrets, for whoever must cut or keep it before it is recorded."""
        return self._mask.mask_text(text) if self._mask else text

    def announce_unrecorded_end(self, *facts: Fact) -> State:
        """Tell the watchers of an end that the journal did not take; the state as if it had."""
        if self._append_in_progress is not None:
            _, self.state, batch = self._append_in_progress
            facts = () if isinstance(batch[-1], RunEnded) else facts
        else:
            batch = list[Fact]()
        state, stamped = self._stamp_facts(facts)
        self._publish((*batch, *stamped)[-1])
        self.close()
        return state

    def close(self) -> None:
        """Tell nobody anything any more; what came too late goes to whoever comes after."""
        self.is_closed = True
        inbox, self._late_results = self._late_results, []
        for fact in inbox:
            self.on_late_result(fact)

    @property
    def withholds_replies(self) -> bool:
        """Whether a reply is shown only when it has been judged."""
        return self.state.setup is not None and self.state.setup.withhold_replies

    def show_delta(self, delta: Delta) -> None:
        """Tell the watchers something that is not kept."""
        if self.on_activity is not None:
            self.on_activity()
        if not self.watchers or self.is_closed:
            return
        shown = self._pieces.mask_delta(delta) if self._pieces is not None else delta
        if shown is not None:
            self._publish(self.place_delta(shown))

    def place_delta(self, delta: DeltaT) -> DeltaT:
        """A delta at the next place after the last fact."""
        self._deltas_since_fact += 1
        return replace(delta, seq=self._durable_state.seq, nth=self._deltas_since_fact)

    def show_piece(self, piece: ReplyPiece) -> bool:
        """Show a piece of a reply; whether it was text that a watcher now has seen."""
        if self.on_activity is not None:
            self.on_activity()
        withholds = self.withholds_replies
        if self.is_closed or not (self.watchers or withholds):
            return False
        seen = False
        for shown in (piece,) if self._pieces is None else self._pieces.mask_piece(piece):
            match shown:
                case TextDelta(text="") | ThinkingDelta(text="") | ReplyEnd():
                    pass
                case TextDelta() | ThinkingDelta() | CallDelta() if withholds:
                    self._reply_hold.hold_piece(shown)
                case _:
                    self._publish(self.place_delta(shown))
                    seen = seen or type(shown) is TextDelta
        return seen

    def masked_so_far(self, text_so_far: TextDelta) -> TextDelta | None:
        """What a watcher may see of the text so far that comes in the middle of it."""
        if self._pieces is None:
            return text_so_far
        text = self._pieces.mask_so_far(text_so_far.text)
        return replace(text_so_far, text=text) if text else None

    def _prepare_deltas(self, batch: list[Fact]) -> None:
        """Before facts are told, what came before them has its place, or is dropped."""
        for fact in batch:
            match fact:
                case StepProposed():
                    self._reply_hold.place_pieces(self.place_delta)
                case AttemptStarted() | AttemptFailed():
                    self._reply_hold.drop_pieces()
                    if self._pieces is not None:
                        self._pieces.start_attempt()
                case CallFinished(call_id) if self._pieces is not None:
                    rest = self._pieces.end_progress(call_id)
                    if rest is not None and self.watchers and not self.is_closed:
                        self._publish(self.place_delta(rest))
                case _:
                    pass

    def _publish(self, event: Event) -> None:
        """Tell an event, or keep it back until the reply before it is judged."""
        for visible in (
            self._reply_hold.release_events(event) if self.withholds_replies else (event,)
        ):
            self._call_watchers(visible)

    def _call_watchers(self, event: Event) -> None:
        for watcher in tuple(self.watchers):
            try:
                watcher(event)
            except Exception:  # noqa: BLE001 - a watcher cannot stop a run, however it fails
                _log.exception("a watcher failed and is told no more")
                self.watchers.remove(watcher)
