"""The one writer of a session: check, write, advance, then show.

A fact is folded in before it is written, so that an illegal one is never written; it is shown once
it is durable. An append that has begun cannot be recalled: whoever is cancelled meanwhile waits for
it for a bounded time, and nothing else is written before it, so that the state in memory and the
one on disk are never two.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from windlass.core.errors import JournalFailed, WindlassError
from windlass.core.events import (
    CallLate,
    Delta,
    Fact,
    Piece,
    ReplyEnd,
    RunEnded,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.fold import apply
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.ports import Clock, Journal, Watcher

DeltaT = TypeVar("DeltaT", bound=Delta)
_log = logging.getLogger(__name__)
PATIENCE_S = 0.04
"""How long somebody who was cancelled still waits for the journal."""


class Recorder:
    """Writes the facts of one session and tells its watchers."""

    def __init__(self, journal: Journal, clock: Clock, state: State) -> None:
        self._journal = journal
        self._clock = clock
        self._nth = 0
        self._failure: WindlassError | None = None
        self._under_way: tuple[asyncio.Future[None], State, list[Fact]] | None = None
        self._inbox: list[CallLate] = []
        self.state = state
        self.watchers: list[Watcher] = []
        self.on_late: Callable[[CallLate], None] = self._inbox.append
        self.closed = False

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
            msg = "no run has started"
            raise RuntimeError(msg)
        return self.state.setup

    async def record(self, *facts: Fact) -> None:
        """Return once the facts are durable. After a failure nothing more is written."""
        if self.closed:
            raise JournalFailed("the run has ended")
        await self._finish()
        inbox, self._inbox = self._inbox, []
        state, batch = self._stamp((*inbox, *facts))
        write = self._append(batch)
        self._under_way = (write, state, batch)
        try:
            if not write.done():
                await asyncio.shield(write)
        except asyncio.CancelledError:
            await _see_through(write)
            if write.done():
                self._advance(write, state, batch)
            raise
        except Exception:  # noqa: BLE001, S110 - whatever it was, `_advance` classifies it
            pass
        self._advance(write, state, batch)

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
            # Whoever began it may have seen it through in the meantime.
            if self._under_way is under_way:
                self._advance(*under_way)
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
            placed = replace(fact, seq=state.seq + 1, at=max(now, state.at))
            state = apply(state, placed)
            batch.append(placed)
        return state, batch

    def _advance(self, write: "asyncio.Future[None]", state: State, batch: list[Fact]) -> None:
        self._under_way = None
        if write.cancelled():
            self._failure = JournalFailed("the journal gave up an append")
        elif (error := write.exception()) is not None:
            known = isinstance(error, WindlassError)
            self._failure = error if known else JournalFailed(f"the journal failed: {error}")
        else:
            self.state, self._nth = state, 0
            for fact in () if self.closed else batch:
                self._tell(fact)
            if isinstance(batch[-1], RunEnded):
                self.close()
            return
        raise self._failure

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

    def show(self, delta: Delta) -> None:
        """Tell the watchers something that is not kept."""
        if self.watchers and not self.closed:
            self._tell(self.placed(delta))

    def placed(self, delta: DeltaT) -> DeltaT:
        """A delta at the next place after the last fact."""
        self._nth += 1
        return replace(delta, seq=self.state.seq, nth=self._nth)

    def pass_on(self, piece: Piece) -> bool:
        """Show a piece of a reply; whether it was text that a watcher now has seen."""
        if not self.watchers or self.closed:
            return False
        match piece:
            case TextDelta():  # First, and by its class alone: nearly every piece is one.
                if piece.text:
                    self.show(piece)
                return bool(piece.text)
            case ThinkingDelta(text="") | ReplyEnd():
                return False
            case _:
                self.show(piece)
                return False

    def _tell(self, event: Fact | Delta) -> None:
        for watcher in tuple(self.watchers):
            try:
                watcher(event)
            except Exception:  # noqa: BLE001 - a watcher cannot stop a run, however it fails
                _log.exception("a watcher failed and is told no more")
                self.watchers.remove(watcher)


async def _see_through(write: "asyncio.Future[None]") -> None:
    """Wait for an append although one is cancelled, for a bounded time."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + PATIENCE_S
    while not write.done():
        try:
            await asyncio.wait({write}, timeout=max(0.0, ends - loop.time()))
        except asyncio.CancelledError:
            continue
        return
