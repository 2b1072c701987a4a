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
    Piece,
    ReplyEnd,
    RunEnded,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.fold.run import apply
from windlass.core.reply_hold import Curtain
from windlass.core.secrets.mask import Mask
from windlass.core.secrets.mask_pieces import MaskedPieces
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.logs import logger
from windlass.ports import Clock, Journal, Watcher
from windlass.runtime.waiting import see_through

DeltaT = TypeVar("DeltaT", bound=Delta)
_log = logger(__name__)
PATIENCE_S = 0.04
"""How long somebody who was cancelled still waits for the journal."""


class Recorder:
    """Writes the facts of one session and tells its watchers."""

    def __init__(
        self, journal: Journal, clock: Clock, state: State, mask: Mask | None = None
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._mask = mask
        self._pieces = MaskedPieces(mask) if mask else None
        self._curtain = Curtain()
        self._nth = 0
        self._failure: WindlassError | None = None
        self._under_way: tuple[asyncio.Future[None], State, list[Fact]] | None = None
        self._inbox: list[CallLate] = []
        self._ahead: list[Fact] = []
        """Facts that are folded in already and go to the disk with the next ones."""
        self.state = state
        """With what is being carried, if anything is."""
        self._kept = state
        """As it is on the disk: what is shown is placed after its last fact."""
        self.last: Fact | None = None
        """The last fact of the session, once one was written here."""
        self.heard: Callable[[], None] | None = None
        """Is told whenever anything happens."""
        self.watchers: list[Watcher] = []
        self.on_late: Callable[[CallLate], None] = self._inbox.append
        self.closed = False

    @property
    def mask(self) -> Mask | None:
        return self._mask

    def begin_at(self, state: State) -> None:
        """Go on from a session as it was found."""
        self.state = self._kept = state

    @property
    def session(self) -> str:
        return self.state.session

    @property
    def expected(self) -> State:
        """The state once what is on its way to the disk has arrived there."""
        return self.state if self._under_way is None else self._under_way[1]

    @property
    def setup(self) -> Setup:
        if self.state.setup is None:
            raise RuntimeError("no run has started")
        return self.state.setup

    async def record(self, *facts: Fact) -> None:
        """Return once the facts are durable. After a failure nothing more is written."""
        if self.closed:
            raise JournalFailed("the run has ended")
        await self._finish()
        inbox, self._inbox = self._inbox, []
        state, stamped = self._stamp((*inbox, *facts))
        batch, self._ahead = [*self._ahead, *stamped], []
        write = self._append(batch)
        mine = self._under_way = (write, state, batch)
        try:
            if not write.done():
                await asyncio.shield(write)
        except asyncio.CancelledError:
            await see_through(write, PATIENCE_S)
            if write.done():
                self._complete(mine)
            raise
        except Exception:  # noqa: BLE001, S110 - whatever it was, `_advance` classifies it
            pass
        self._complete(mine)

    async def carry(self, *facts: Fact) -> None:
        """Take facts in that the next record writes along with its own, in one append.

        Only for whoever goes straight on to that record: nothing may be done or waited for in
        between, or `flush` comes first.
        """
        if self.closed:
            raise JournalFailed("the run has ended")
        await self._finish()
        self.state, stamped = self._stamp(facts)
        self._ahead += stamped

    async def flush(self) -> None:
        """Write what is still being carried."""
        if self._ahead:
            await self.record()

    def _complete(self, mine: "tuple[asyncio.Future[None], State, list[Fact]]") -> None:
        """Advance by an append that is over, unless whoever waits behind it was faster."""
        if self._under_way is mine:
            self._advance(*mine)
        elif self._failure is not None:
            raise self._failure

    def _append(self, batch: list[Fact]) -> "asyncio.Future[None]":
        try:
            return asyncio.ensure_future(self._journal.append(self.session, batch))
        except Exception as error:  # noqa: BLE001 - a journal may fail before it has begun
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def _finish(self) -> None:
        """An append that somebody was too impatient for comes first."""
        while (under_way := self._under_way) is not None:
            await asyncio.wait({under_way[0]})
            self._complete(under_way)
        if self._failure is not None:
            raise self._failure

    def late(self, fact: CallLate) -> None:
        """Take in a late result: it is written with the next facts, or by whoever comes after."""
        if self.closed:
            self.on_late(fact)
        else:
            self._inbox.append(fact)

    def _stamp(self, facts: Sequence[Fact]) -> tuple[State, list[Fact]]:
        state, batch, now = self.state, list[Fact](), self._clock.now()
        for fact in facts:
            # Time never runs backwards in a journal, whatever the wall clock does.
            kept = self._mask.fact(fact) if self._mask else fact
            placed = replace(kept, seq=state.seq + 1, at=max(now, state.at))
            state = apply(state, placed)
            batch.append(placed)
        return state, batch

    def _advance(self, write: "asyncio.Future[None]", state: State, batch: list[Fact]) -> None:
        self._under_way = None
        if write.cancelled():
            self._failure = JournalFailed("the journal gave up an append")
        elif (error := write.exception()) is not None:
            told = self.hide(f"the journal failed: {error}")
            self._failure = error if isinstance(error, WindlassError) else JournalFailed(told)
        else:
            self._make_ready(batch)
            self.state = self._kept = state
            self._nth, self.last = 0, batch[-1]
            if self.heard is not None:
                self.heard()
            for fact in () if self.closed else batch:
                self._tell(fact)
            if isinstance(batch[-1], RunEnded):
                self.close()
            return
        # What was carried along was not kept either.
        self.state, self._ahead = self._kept, []
        raise self._failure

    def hide(self, text: str) -> str:
        """A text without its secrets, for whoever must cut or keep it before it is recorded."""
        return self._mask.text(text) if self._mask else text

    def declare(self, *facts: Fact) -> State:
        """Tell the watchers of an end that the journal did not take; the state as if it had."""
        if self._under_way is not None:
            _, self.state, batch = self._under_way
            facts = () if isinstance(batch[-1], RunEnded) else facts
        else:
            batch = list[Fact]()
        state, told = self._stamp(facts)
        self._tell((*batch, *told)[-1])
        self.close()
        return state

    def close(self) -> None:
        """Tell nobody anything any more; what came too late goes to whoever comes after."""
        self.closed = True
        inbox, self._inbox = self._inbox, []
        for fact in inbox:
            self.on_late(fact)

    @property
    def withholds(self) -> bool:
        """Whether a reply is shown only when it has been judged."""
        return self.state.setup is not None and self.state.setup.withhold_replies

    def show(self, delta: Delta) -> None:
        """Tell the watchers something that is not kept."""
        if self.heard is not None:
            self.heard()
        if not self.watchers or self.closed:
            return
        shown = self._pieces.shown(delta) if self._pieces is not None else delta
        if shown is not None:
            self._tell(self.placed(shown))

    def placed(self, delta: DeltaT) -> DeltaT:
        """A delta at the next place after the last fact."""
        self._nth += 1
        return replace(delta, seq=self._kept.seq, nth=self._nth)

    def pass_on(self, piece: Piece) -> bool:
        """Show a piece of a reply; whether it was text that a watcher now has seen."""
        if self.heard is not None:
            self.heard()
        withholds = self.withholds
        if self.closed or not (self.watchers or withholds):
            return False
        seen = False
        for told in (piece,) if self._pieces is None else self._pieces.take(piece):
            match told:
                case TextDelta(text="") | ThinkingDelta(text="") | ReplyEnd():
                    pass
                case TextDelta() | ThinkingDelta() | CallDelta() if withholds:
                    self._curtain.keep(told)
                case _:
                    self._tell(self.placed(told))
                    seen = seen or type(told) is TextDelta
        return seen

    def caught_up(self, heard: TextDelta) -> TextDelta | None:
        """What a watcher may see of the text so far that comes in the middle of it."""
        if self._pieces is None:
            return heard
        text = self._pieces.so_far(heard.text)
        return replace(heard, text=text) if text else None

    def _make_ready(self, batch: list[Fact]) -> None:
        """Before facts are told, what came before them has its place, or is dropped."""
        for fact in batch:
            match fact:
                case StepProposed():
                    self._curtain.place(self.placed)
                case AttemptStarted() | AttemptFailed():
                    self._curtain.drop()
                    if self._pieces is not None:
                        self._pieces.reset()
                case CallFinished(call_id) if self._pieces is not None:
                    rest = self._pieces.over(call_id)
                    if rest is not None and self.watchers and not self.closed:
                        self._tell(self.placed(rest))
                case _:
                    pass

    def _tell(self, event: Event) -> None:
        """Tell an event, or keep it back until the reply before it is judged."""
        for told in self._curtain.told(event) if self.withholds else (event,):
            self._tell_all(told)

    def _tell_all(self, event: Event) -> None:
        for watcher in tuple(self.watchers):
            try:
                watcher(event)
            except Exception:  # noqa: BLE001 - a watcher cannot stop a run, however it fails
                _log.exception("a watcher failed and is told no more")
                self.watchers.remove(watcher)
