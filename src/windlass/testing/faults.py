"""Wrappers for any journal that make it die, wait, fail or hang.

As with a real store, a write begins when `append` is called; the awaitable that it returns only
reports its end. A wrapper has the methods of its journal, and may wrap a store of facts too.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from typing_extensions import override

from windlass.core.errors import JournalFailed, WindlassError
from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary
from windlass.journals.memory import MemoryJournal
from windlass.ports import GivenJournal, Journal, Lease
from windlass.testing.clock import VirtualLoop

T = TypeVar("T")
WorldT = TypeVar("WorldT")
EndT = TypeVar("EndT")
Scenario = Callable[[GivenJournal, WorldT], Awaitable[EndT]]
"""What a process does from its start on. It gets a journal, and what outlives the process."""
JournalMethod = Callable[..., Awaitable[Any]]

_METHODS_WITHOUT_DISK = ("lease", "visit", "is_leased", "wait_for_append", "wait_for_mail")
"""Methods that answer without waiting for a disk."""
_METHODS = tuple(
    name
    for name, _ in inspect.getmembers(Journal, inspect.iscoroutinefunction)
    if name != "read" and not name.startswith("_")
)
_PLAIN = (
    *("name", "check_shareable", "close", "open_live", "watch_live", "find_letter_problem"),
    "release_work",
)
"""What is not awaited. What is only shown takes no part in the troubles of a disk."""


class JournalWrapper(Any if TYPE_CHECKING else object):
    """Has the methods that its journal has: that one may be whole, or only read and append.

    A subclass defines `read` and `append`, and others that it wants to change.
    """

    is_kept = True
    """The processes that a wrapper makes die are simulated, so its sessions outlive them."""

    def __init__(self, journal: GivenJournal) -> None:
        self._journal = journal
        for name in (*_METHODS, *_PLAIN):
            if hasattr(type(self), name) or not hasattr(journal, name):
                continue
            member = getattr(journal, name)
            if name in _METHODS:
                member = partial(self._call_journal, name, member)
            setattr(self, name, member)

    async def _call_journal(
        self, name: str, method: JournalMethod, *arguments: object, **options: object
    ) -> object:
        """Call a method of the wrapped journal."""
        del name
        return await method(*arguments, **options)


class PowerCut(BaseException):
    """The process has died. Not an Exception, so that no handler can catch it and continue."""


class BareJournal:
    """Only reads and appends: the minimum. Two drivers collide only on sequence numbers."""

    def __init__(self, journal: GivenJournal) -> None:
        self._journal = journal

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        return self._journal.append(session, facts, row)


class PowerCutJournal(JournalWrapper):
    """Dies at append number `at`, before or after the write. Every later call raises PowerCut.

    Its leases are released at that moment, as those of a dead process are. A run that was cut
    raises RunFailed, as it does for any journal that fails; in a `with` block, leaving the block
    raises PowerCut, wherever the cut was.
    """

    def __init__(
        self, journal: GivenJournal, at: int, when: Literal["before", "after"] = "before"
    ) -> None:
        super().__init__(journal)
        self.dead = False
        self.appends = 0
        self._at = at
        self._when = when
        self._leases: list[Lease] = []
        self._claimed: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self.dead and (error is None or isinstance(error, WindlassError)):
            raise PowerCut(f"{self._when} append {self._at}") from error

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        self._check_alive()
        facts = await self._journal.read(session, after)
        self._check_alive()
        return facts

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        self._check_alive()
        self.appends += 1
        if self.appends != self._at:
            return self._finish_append(self._journal.append(session, facts, row))
        # Dead before the write is done: no other task of this process may act any more.
        self.dead = True
        if self._when == "before":
            self._release_leases()
            raise PowerCut(f"before append {self._at}")
        return self._finish_last_append(self._journal.append(session, facts, row))

    async def _finish_append(self, write: Awaitable[None]) -> None:
        await write
        self._check_alive()  # The write is durable, but the process that made it has died.

    async def _finish_last_append(self, write: Awaitable[None]) -> None:
        try:
            await write
        finally:
            self._release_leases()
        raise PowerCut(f"after append {self._at}")

    @override
    async def _call_journal(
        self, name: str, method: JournalMethod, *arguments: object, **options: object
    ) -> object:
        self._check_alive()
        answer = await method(*arguments, **options)
        if name in ("lease", "visit"):
            self._leases.append(answer)
        if name == "claim_work":
            self._claimed += (work.session for work in answer)
        if self.dead:
            # Granted to a process that died meanwhile: nothing else would release it.
            self._release_leases()
        self._check_alive()
        return answer

    def _release_leases(self) -> None:
        while self._claimed:
            self.release_work(self._claimed.pop())
        while self._leases:
            self._leases.pop().release()

    def _check_alive(self) -> None:
        if self.dead:
            raise PowerCut(f"dead since append {self._at}")


@dataclass(frozen=True, slots=True)
class PowerCutEnd(Generic[EndT]):
    """How a scenario ended after one power cut and a restart."""

    at: int
    """The number of the append, from 1."""
    when: Literal["before", "after"]
    end: EndT


async def cut_power_everywhere(
    scenario: Scenario[WorldT, EndT],
    *,
    world: Callable[[], WorldT],
    journal: Callable[[], GivenJournal] = MemoryJournal,
) -> list[PowerCutEnd[EndT]]:
    """Cut the power before and after every append of a scenario, and restart it each time.

    The scenario must take up what it finds, as a process does: `agent.run(…, session=…, key=…)`
    begins a run or resumes it. `world` makes what outlives the process, such as the effects of
    tools, and `journal` makes a new store; both are called for each cut. Returns how each restart
    ended. Raises AssertionError if one of them ends otherwise than the scenario does uncut.
    """
    whole = PowerCutJournal(journal(), at=0)
    expected = await scenario(whole, world())
    ends: list[PowerCutEnd[EndT]] = []
    for at in range(1, whole.appends + 1):
        for when in ("before", "after"):
            store, outside = journal(), world()
            try:
                with PowerCutJournal(store, at, when) as dying:
                    await scenario(dying, outside)
            except PowerCut:
                pass
            ends.append(PowerCutEnd(at, when, await scenario(store, outside)))
    different = [
        f"cut {cut.when} append {cut.at}: {cut.end!r}" for cut in ends if cut.end != expected
    ]
    if different:
        raise AssertionError(f"uncut, it ends as {expected!r}; " + "; ".join(different))
    return ends


class WaitingJournal(JournalWrapper):
    """Waits `delay_s` at each append and read, as a disk does. Appends keep their order.

    Facts that were passed to `append` are written even if the caller is cancelled.
    """

    def __init__(self, journal: GivenJournal, delay_s: float = 0.001) -> None:
        super().__init__(journal)
        self._delay_s = delay_s
        self._last_write: asyncio.Task[None] | None = None

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        await asyncio.sleep(self._delay_s)
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        write = self._write_after(self._last_write, session, tuple(facts), row)
        self._last_write = asyncio.create_task(write, name="journal write")
        return asyncio.shield(self._last_write)  # Like a disk, it continues without its caller.

    async def _write_after(
        self,
        before: asyncio.Task[None] | None,
        session: str,
        facts: Sequence[Fact],
        row: SessionSummary,
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.sleep(self._delay_s)
        await self._journal.append(session, facts, row)

    @override
    async def _call_journal(
        self, name: str, method: JournalMethod, *arguments: object, **options: object
    ) -> object:
        if name not in _METHODS_WITHOUT_DISK:
            await asyncio.sleep(self._delay_s)
        return await method(*arguments, **options)


class FailingJournal(JournalWrapper):
    """Fails append number `at` and those after it, or only `times` of them, with JournalFailed."""

    def __init__(self, journal: GivenJournal, at: int, times: int | None = None) -> None:
        super().__init__(journal)
        self.appends = 0
        self._at = at
        self._times = times

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        self.appends += 1
        failures_before = self.appends - self._at
        if failures_before < 0 or (self._times is not None and failures_before >= self._times):
            return self._journal.append(session, facts, row)
        return _fail_append(self.appends)


async def _fail_append(append: int) -> None:
    await asyncio.sleep(0)  # A real journal fails a moment later, not inside of the call.
    raise JournalFailed(f"scripted: append {append} was not kept")


class HungJournal(JournalWrapper):
    """Never answers from append number `at` on. With `at=0` it does not answer a read either."""

    def __init__(self, journal: GivenJournal, at: int = 0) -> None:
        super().__init__(journal)
        self.appends = 0
        self._at = at

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        if self.appends >= self._at:
            await _wait_forever()
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        self.appends += 1
        if self.appends >= self._at:
            return _wait_forever()
        return self._journal.append(session, facts, row)

    @override
    async def _call_journal(
        self, name: str, method: JournalMethod, *arguments: object, **options: object
    ) -> object:
        if name not in _METHODS_WITHOUT_DISK and self.appends >= self._at:
            await _wait_forever()
        return await method(*arguments, **options)


async def _wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


class RealTimeJournal(JournalWrapper):
    """For a store that works in its own thread: virtual time is held until it answers."""

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await _await_holding_time(self._journal.read(session, after))

    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        return _await_holding_time(self._journal.append(session, facts, row))

    @override
    async def _call_journal(
        self, name: str, method: JournalMethod, *arguments: object, **options: object
    ) -> object:
        # A follower waits for another writer, which needs time to pass.
        if name in ("wait_for_append", "wait_for_mail"):
            return await method(*arguments, **options)
        return await _await_holding_time(method(*arguments, **options))


async def _await_holding_time(answer: Awaitable[T]) -> T:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        return await answer
    with loop.clock.hold_time():
        return await answer
