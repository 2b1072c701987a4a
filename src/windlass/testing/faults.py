"""Journals that die, wait, fail and hang: wrappers for any journal.

As with a real store, a write begins when `append` is called, and the awaitable that it returns only
tells when it is over. What else a journal can do (leases, news, budgets, blobs), its wrapper can.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from typing_extensions import override

from windlass.core.errors import JournalFailed
from windlass.core.events import Fact
from windlass.ports import AppendSignals, BlobStore, Journal, Lease, SessionLeases, SharedBudgets
from windlass.testing.clock import VirtualLoop

T = TypeVar("T")
JournalMethod = Callable[..., Awaitable[Any]]

_OPTIONAL_PORTS: dict[type, tuple[str, ...]] = {
    SessionLeases: ("lease", "is_leased"),
    AppendSignals: ("wait_for_append",),
    BlobStore: ("put_blob", "get_blob"),
    SharedBudgets: ("draw_budget", "settle_budget", "read_spending"),
}
"""The methods of each optional port: a wrapper has those that its journal has."""
_METHODS_WITHOUT_DISK = ("lease", "is_leased", "wait_for_append")
"""Methods that answer without waiting for a disk."""


class _JournalWrapper:
    """Has the optional ports that its journal has, and no others."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        for port, names in _OPTIONAL_PORTS.items():
            for name in names if isinstance(journal, port) else ():
                # On the instance: that is where `isinstance(…, SessionLeases)` looks for them.
                setattr(self, name, partial(self._call_journal, name, getattr(journal, name)))

    async def _call_journal(self, name: str, method: JournalMethod, *arguments: object) -> object:
        """Ask the journal behind it for one of these."""
        del name
        return await method(*arguments)


class PowerCut(BaseException):
    """The process is gone. Not an Exception: nothing may handle it and go on."""


class BareJournal:
    """Reads and appends, and no more: only the numbers of the records keep drivers apart."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        return self._journal.append(session, facts)


class PowerCutJournal(_JournalWrapper):
    """Dies at the nth append, before or after the write, and is dead from then on.

    The sessions that it drove are free again at that moment, as those of a dead process are.
    """

    def __init__(
        self, journal: Journal, at: int, when: Literal["before", "after"] = "before"
    ) -> None:
        super().__init__(journal)
        self.dead = False
        self.appends = 0
        self._at = at
        self._when = when
        self._leases: list[Lease] = []

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        self._check_alive()
        facts = await self._journal.read(session, after)
        self._check_alive()
        return facts

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        self._check_alive()
        self.appends += 1
        if self.appends != self._at:
            return self._finish_append(self._journal.append(session, facts))
        self.dead = True
        if self._when == "before":
            self._release_leases()
            raise PowerCut(f"before append {self._at}")
        return self._finish_last_append(self._journal.append(session, facts))

    async def _finish_append(self, written: Awaitable[None]) -> None:
        await written
        self._check_alive()  # Durable, but nobody is left to hear of it.

    async def _finish_last_append(self, written: Awaitable[None]) -> None:
        try:
            await written
        finally:
            self._release_leases()
        raise PowerCut(f"after append {self._at}")

    @override
    async def _call_journal(self, name: str, method: JournalMethod, *arguments: object) -> object:
        self._check_alive()
        answer = await method(*arguments)
        if name == "lease":
            self._leases.append(answer)
            if self.dead:
                self._release_leases()
        self._check_alive()
        return answer

    def _release_leases(self) -> None:
        while self._leases:
            self._leases.pop().release()

    def _check_alive(self) -> None:
        if self.dead:
            raise PowerCut(f"dead since append {self._at}")


class WaitingJournal(_JournalWrapper):
    """Waits at each append and read, as a disk does; appends are written in the order of the calls.

    What was handed over is written even if whoever waits for it is cancelled.
    """

    def __init__(self, journal: Journal, delay_s: float = 0.001) -> None:
        super().__init__(journal)
        self._delay_s = delay_s
        self._last_write: asyncio.Task[None] | None = None

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        await asyncio.sleep(self._delay_s)
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        write = self._write_after(self._last_write, session, tuple(facts))
        self._last_write = asyncio.create_task(write, name="journal write")
        return asyncio.shield(self._last_write)

    async def _write_after(
        self, before: asyncio.Task[None] | None, session: str, facts: Sequence[Fact]
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.sleep(self._delay_s)
        await self._journal.append(session, facts)

    @override
    async def _call_journal(self, name: str, method: JournalMethod, *arguments: object) -> object:
        if name not in _METHODS_WITHOUT_DISK:
            await asyncio.sleep(self._delay_s)
        return await method(*arguments)


class FailingJournal(_JournalWrapper):
    """Does not keep the nth append and, unless told how many, any after it."""

    def __init__(self, journal: Journal, at: int, times: int | None = None) -> None:
        super().__init__(journal)
        self.appends = 0
        self._at = at
        self._times = times

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        self.appends += 1
        late = self.appends - self._at
        if late < 0 or (self._times is not None and late >= self._times):
            return self._journal.append(session, facts)
        return _fail_append(self.appends)


async def _fail_append(append: int) -> None:
    await asyncio.sleep(0)
    raise JournalFailed(f"scripted: append {append} was not kept")


class HungJournal(_JournalWrapper):
    """Never answers from the nth append on; with `at=0` it does not answer a read either."""

    def __init__(self, journal: Journal, at: int = 0) -> None:
        super().__init__(journal)
        self.appends = 0
        self._at = at

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        if self.appends >= self._at:
            await _wait_forever()
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        self.appends += 1
        return _wait_forever() if self.appends >= self._at else self._journal.append(session, facts)

    @override
    async def _call_journal(self, name: str, method: JournalMethod, *arguments: object) -> object:
        if name not in _METHODS_WITHOUT_DISK and self.appends >= self._at:
            await _wait_forever()
        return await method(*arguments)


async def _wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


class RealTimeJournal(_JournalWrapper):
    """For a store that works in a thread of its own: virtual time stands still until it answers."""

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await _await_holding_time(self._journal.read(session, after))

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        return _await_holding_time(self._journal.append(session, facts))

    @override
    async def _call_journal(self, name: str, method: JournalMethod, *arguments: object) -> object:
        # Whoever waits for news waits for somebody else, who needs the time to go on.
        return await (
            method(*arguments)
            if name == "wait_for_append"
            else _await_holding_time(method(*arguments))
        )


async def _await_holding_time(answer: Awaitable[T]) -> T:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        return await answer
    with loop.clock.hold_time():
        return await answer
