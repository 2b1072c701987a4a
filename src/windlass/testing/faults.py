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
from windlass.ports import Blobs, Following, Journal, Lease, Leasing, Pools
from windlass.testing.clock import VirtualLoop

T = TypeVar("T")
Asking = Callable[..., Awaitable[Any]]

_OPTIONAL: dict[type, tuple[str, ...]] = {
    Leasing: ("lease", "leased"),
    Following: ("news",),
    Blobs: ("keep", "fetch"),
    Pools: ("draw", "settle", "spent"),
}
_AT_ONCE = ("lease", "leased", "news")
"""What does not wait for a disk."""


class _Wrapper:
    """Has the optional ports that its journal has, and no others."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        for port, names in _OPTIONAL.items():
            for name in names if isinstance(journal, port) else ():
                # On the instance: that is where `isinstance(…, Leasing)` looks for them.
                setattr(self, name, partial(self._ask, name, getattr(journal, name)))

    async def _ask(self, name: str, asking: Asking, *given: object) -> object:
        """Ask the journal behind it for one of these."""
        del name
        return await asking(*given)


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


class CutJournal(_Wrapper):
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
        self._live()
        facts = await self._journal.read(session, after)
        self._live()
        return facts

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        self._live()
        self.appends += 1
        if self.appends != self._at:
            return self._passed(self._journal.append(session, facts))
        self.dead = True
        if self._when == "before":
            self._let_go()
            raise PowerCut(f"before append {self._at}")
        return self._last(self._journal.append(session, facts))

    async def _passed(self, written: Awaitable[None]) -> None:
        await written
        self._live()  # Durable, but nobody is left to hear of it.

    async def _last(self, written: Awaitable[None]) -> None:
        try:
            await written
        finally:
            self._let_go()
        raise PowerCut(f"after append {self._at}")

    @override
    async def _ask(self, name: str, asking: Asking, *given: object) -> object:
        self._live()
        answer = await asking(*given)
        if name == "lease":
            self._leases.append(answer)
            if self.dead:
                self._let_go()
        self._live()
        return answer

    def _let_go(self) -> None:
        while self._leases:
            self._leases.pop().release()

    def _live(self) -> None:
        if self.dead:
            raise PowerCut(f"dead since append {self._at}")


class WaitingJournal(_Wrapper):
    """Waits at each append and read, as a disk does; appends are written in the order of the calls.

    What was handed over is written even if whoever waits for it is cancelled.
    """

    def __init__(self, journal: Journal, delay_s: float = 0.001) -> None:
        super().__init__(journal)
        self._delay_s = delay_s
        self._last: asyncio.Task[None] | None = None

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        await asyncio.sleep(self._delay_s)
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        write = self._write(self._last, session, tuple(facts))
        self._last = asyncio.create_task(write, name="journal write")
        return asyncio.shield(self._last)

    async def _write(
        self, before: asyncio.Task[None] | None, session: str, facts: Sequence[Fact]
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.sleep(self._delay_s)
        await self._journal.append(session, facts)

    @override
    async def _ask(self, name: str, asking: Asking, *given: object) -> object:
        if name not in _AT_ONCE:
            await asyncio.sleep(self._delay_s)
        return await asking(*given)


class FailingJournal(_Wrapper):
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
        return _refuse(self.appends)


async def _refuse(append: int) -> None:
    await asyncio.sleep(0)
    raise JournalFailed(f"scripted: append {append} was not kept")


class HungJournal(_Wrapper):
    """Never answers from the nth append on; with `at=0` it does not answer a read either."""

    def __init__(self, journal: Journal, at: int = 0) -> None:
        super().__init__(journal)
        self.appends = 0
        self._at = at

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        if self.appends >= self._at:
            await _for_ever()
        return await self._journal.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        self.appends += 1
        return _for_ever() if self.appends >= self._at else self._journal.append(session, facts)

    @override
    async def _ask(self, name: str, asking: Asking, *given: object) -> object:
        if name not in _AT_ONCE and self.appends >= self._at:
            await _for_ever()
        return await asking(*given)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class OutsideJournal(_Wrapper):
    """For a store that works in a thread of its own: virtual time stands still until it answers."""

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await _held(self._journal.read(session, after))

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        return _held(self._journal.append(session, facts))

    @override
    async def _ask(self, name: str, asking: Asking, *given: object) -> object:
        # Whoever waits for news waits for somebody else, who needs the time to go on.
        return await (asking(*given) if name == "news" else _held(asking(*given)))


async def _held(answer: Awaitable[T]) -> T:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        return await answer
    with loop.clock.outside():
        return await answer
