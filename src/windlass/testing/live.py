"""The conformance suite for journals with a live channel."""

import asyncio
from collections.abc import Awaitable, Callable

from windlass.core.events import (
    AttemptDiscarded,
    AttemptRetrying,
    CallDelta,
    CallProgress,
    ModelFellBack,
    NestedEvent,
    RunSuspended,
    StepProposed,
    StreamStalled,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.live_batch import FactMark, LiveBatch, LiveItem
from windlass.core.messages import AssistantMessage, TextPart, Usage
from windlass.core.question import Question
from windlass.ports import Journal, LiveSender, LiveSubscription
from windlass.testing.journals import SESSION, JournalSuite, on_two_journals
from windlass.testing.leases import PATIENCE_S

ODD_TEXT = 'é\u2028\0"\\ 🧵 ' + "x" * 3_000
ITEMS: tuple[LiveItem, ...] = (
    FactMark(3),
    TextDelta(ODD_TEXT, seq=3, nth=1),
    ThinkingDelta("Hm.", "signed", seq=3, nth=2),
    CallDelta(0, "c", "look", '{"at": 1}', seq=3, nth=3),
    UsageDelta(Usage(1, 2), seq=3, nth=4),
    AttemptDiscarded(1, 1, "it broke off", seq=3, nth=5),
    AttemptRetrying(1, 2, 0.5, "once more", seq=3, nth=6),
    StreamStalled(1, 2, seq=3, nth=7),
    ModelFellBack(1, "b", "a", seq=3, nth=8),
    CallProgress("c", "half done", seq=3, nth=9),
    NestedEvent("c", "helper", "s/c", TextDelta("Hi", seq=1, nth=1), seq=3, nth=10),
    NestedEvent(
        "c",
        "helper",
        "s/c",
        StepProposed(AssistantMessage((TextPart("Hi"),), "m"), "end", None, seq=2),
        seq=3,
        nth=11,
    ),
    RunSuspended((Question("s", "c", "send", {}, "May I?", "digest"),), seq=3, nth=12),
)
"""A mark, and a delta of every kind."""


class LiveDriver:
    """The driver of a session: it notes who asks for what."""

    def __init__(self, journal: Journal, session: str = SESSION) -> None:
        self.interests: list[bool] = []
        self._changed = asyncio.Event()
        self._sender: LiveSender = journal.open_live(session, self._note_interest)
        self._number = 0

    def _note_interest(self, is_wanted: bool) -> None:  # noqa: FBT001 - it is a callback
        self.interests.append(is_wanted)
        self._changed.set()

    async def wait_for_interest(self, *, is_wanted: bool = True, count: int = 1) -> None:
        """Wait for `count` reports that watchers came, or with `is_wanted=False`, left."""
        async with asyncio.timeout(PATIENCE_S):
            while self.interests.count(is_wanted) < count:
                self._changed.clear()
                await self._changed.wait()

    def send(self, *items: LiveItem) -> LiveBatch:
        """Send the next batch, and return it."""
        self._number += 1
        batch = LiveBatch(driver="d", number=self._number, items=items)
        self._sender.send(batch)
        return batch

    def close(self) -> None:
        self._sender.close()


NO_NEWS = (FactMark(0),)
"""What is sent until a watcher has received it."""


async def join(driver: LiveDriver, journal: Journal, session: str = SESSION) -> LiveSubscription:
    """Watch a session, and return when the driver has been heard."""
    subscription = journal.watch_live(session)
    hearing = asyncio.ensure_future(subscription.receive())
    async with asyncio.timeout(PATIENCE_S):
        while not hearing.done():
            driver.send(*NO_NEWS)
            await asyncio.wait({hearing}, timeout=0.02)
    return subscription


async def receive_from(subscription: LiveSubscription) -> LiveBatch:
    """Return the next batch of a subscription that says something."""
    async with asyncio.timeout(PATIENCE_S):
        batch = await subscription.receive()
        while batch.items == NO_NEWS:
            batch = await subscription.receive()
        return batch


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():  # noqa: ASYNC110 - the other side does not notify
            await asyncio.sleep(0.01)


class LiveChannelConformance(JournalSuite):
    """Deltas reach each watcher in order; slow or absent watchers do not delay the driver."""

    @on_two_journals
    async def test_deltas_of_every_kind_come_as_they_were_sent(
        self, one: Journal, two: Journal
    ) -> None:
        driver = LiveDriver(one)
        watching = await join(driver, two)
        await driver.wait_for_interest()
        sent = [driver.send(item) for item in ITEMS] + [driver.send(*ITEMS)]
        assert [await receive_from(watching) for _ in sent] == sent
        watching.close()
        driver.close()

    @on_two_journals
    async def test_nobody_asks_for_what_nobody_watches(self, one: Journal, two: Journal) -> None:
        """A watcher of another session does not count for this one."""
        driver = LiveDriver(one)
        other = LiveDriver(one, "another")
        watching = await join(other, two, "another")
        sent = other.send(FactMark(1))
        driver.send(FactMark(2))
        assert await receive_from(watching) == sent
        assert driver.interests == []
        watching.close()
        driver.close()
        other.close()

    @on_two_journals
    async def test_who_watches_before_there_is_a_driver_is_not_forgotten(
        self, one: Journal, two: Journal
    ) -> None:
        watching = two.watch_live(SESSION)
        await asyncio.sleep(0.01)
        driver = LiveDriver(one)

        async def was_asked() -> bool:
            watching.ask_snapshot()
            return bool(driver.interests)

        await wait_until(was_asked)
        sent = driver.send(FactMark(1))
        assert await receive_from(watching) == sent
        watching.close()
        driver.close()

    @on_two_journals
    async def test_all_who_watch_get_everything(self, one: Journal, two: Journal) -> None:
        driver = LiveDriver(one)
        watching = [await join(driver, journal) for journal in (one, two, two)]
        sent = [driver.send(TextDelta(str(nth), seq=1, nth=nth)) for nth in range(1, 30)]
        for subscription in watching:
            assert [await receive_from(subscription) for _ in sent] == sent
            subscription.close()
        driver.close()

    @on_two_journals
    async def test_who_missed_something_can_ask(self, one: Journal, two: Journal) -> None:
        driver = LiveDriver(one)
        watching = two.watch_live(SESSION)
        await driver.wait_for_interest()
        before = driver.interests.count(True)

        async def was_asked_again() -> bool:
            watching.ask_snapshot()
            return driver.interests.count(True) > before

        await wait_until(was_asked_again)
        watching.close()
        driver.close()

    @on_two_journals
    async def test_the_driver_hears_when_the_last_one_leaves(
        self, one: Journal, two: Journal
    ) -> None:
        driver = LiveDriver(one)
        first = await join(driver, two)
        second = await join(driver, one)
        first.close()
        sent = driver.send(FactMark(1))
        assert await receive_from(second) == sent
        # A watcher may be heard before the driver knows that it is there.
        await driver.wait_for_interest()
        assert driver.interests[-1]
        second.close()
        await driver.wait_for_interest(is_wanted=False)
        driver.close()

    @on_two_journals
    async def test_who_does_not_read_holds_nobody_up(self, one: Journal, two: Journal) -> None:
        """What did not fit is lost as a whole, and the numbers show it; later batches arrive."""
        driver = LiveDriver(one)
        slow = await join(driver, two)
        for nth in range(1, 3_001):
            driver.send(TextDelta("x" * 2_000, seq=1, nth=nth))
        received: list[LiveBatch] = []

        async def receive_all() -> None:
            while True:
                received.append(await slow.receive())

        receiving = asyncio.create_task(receive_all())

        async def has_caught_up() -> bool:
            driver.send(FactMark(2))
            return bool(received) and received[-1].items == (FactMark(2),)

        await wait_until(has_caught_up)
        receiving.cancel()
        numbers = [batch.number for batch in received]
        assert numbers == sorted(numbers)
        slow.close()
        driver.close()

    @on_two_journals
    async def test_who_has_left_is_told_nothing(self, one: Journal, two: Journal) -> None:
        driver = LiveDriver(one)
        watching = two.watch_live(SESSION)
        await driver.wait_for_interest()
        driver.close()
        driver.send(FactMark(1))
        next_driver = LiveDriver(one)

        async def was_asked() -> bool:
            watching.ask_snapshot()
            return bool(next_driver.interests)

        await wait_until(was_asked)
        next_driver.send(FactMark(2))
        assert (await receive_from(watching)).items == (FactMark(2),)
        watching.close()
        watching.close()
        next_driver.close()
        next_driver.close()
