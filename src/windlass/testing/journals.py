"""The conformance suite for journals. Subclass it in the test module of a journal.

    class TestMyJournal(JournalConformance):
        def open(self, folder: Path) -> Journal:
            return MyJournal(folder / "sessions")

The tests are plain functions for pytest. Each runs in its own event loop in real time, because a
journal may use real threads and real disks.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    suppress,
)
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from windlass.core.errors import ConfigError, IllegalFact, JournalFailed, SessionBusy
from windlass.core.events import CallJudged, Fact
from windlass.core.fold.run import apply_fact
from windlass.core.session_summary import SessionSummary, row_of
from windlass.core.state import State
from windlass.core.verdicts import Ask
from windlass.journals.completing import complete_journal
from windlass.ports import Journal
from windlass.testing.samples import facts_of_every_kind, note_facts

SESSION = "a session"


ScenarioRun = Coroutine[None, None, None]
PlainTest = Callable[[Any, Path], None]


def on_a_journal(scenario: Callable[[Any, Any], ScenarioRun]) -> PlainTest:
    """Make a plain test of an async one that takes a new journal."""

    def test(self: "JournalSuite", tmp_path: Path) -> None:
        self.run_scenario(tmp_path, lambda journal: scenario(self, journal))

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


def on_two_journals(scenario: Callable[[Any, Any, Any], ScenarioRun]) -> PlainTest:
    """Make a plain test of an async one that takes two journals on one store.

    Two processes would open the store like this.
    """

    def test(self: "JournalSuite", tmp_path: Path) -> None:
        self.run_scenario_on_two(tmp_path, lambda one, two: scenario(self, one, two))

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


class JournalSuite(ABC):
    """The base of the suites for journals: subclass a suite as `Test…` and define `open`.

    A journal that is a context manager, plain or async, is closed when its test ends.
    """

    durable = True
    """Whether sessions outlive the journal object, and two journals can share one store."""
    lists = True
    """Whether sessions are listed, leased and deleted: not by a store that was completed."""
    moment = 1_800_000_000.0
    """What `now` returns. The tests of budget windows change it."""

    @abstractmethod
    def open(self, folder: Path) -> Journal:
        """Open the journal in this folder, with what earlier journals wrote there."""

    def now(self) -> float:
        """Return the time in seconds. A journal with shared budgets must use this clock."""
        return self.moment

    def run_scenario(self, folder: Path, scenario: Callable[[Any], ScenarioRun]) -> None:
        """Open a journal, run the scenario, and close the journal if it can be closed."""
        with ExitStack() as stack:
            journal = self.open(folder)
            if isinstance(journal, AbstractContextManager):
                stack.enter_context(journal)
            asyncio.run(_run_with_open([journal], lambda: scenario(journal)))

    def run_scenario_on_two(
        self, folder: Path, scenario: Callable[[Any, Any], ScenarioRun]
    ) -> None:
        """As `play`, on two journals; a journal that cannot be shared is used as both."""
        with ExitStack() as stack:
            one = self.open(folder)
            # A store in memory cannot be opened twice: both names refer to the same journal.
            two = self.open(folder) if self.durable else one
            for journal in (one, two):
                if isinstance(journal, AbstractContextManager):
                    stack.enter_context(journal)
            both = [one, two] if two is not one else [one]
            asyncio.run(_run_with_open(both, lambda: scenario(one, two)))


async def _run_with_open(journals: Sequence[Any], scenario: Callable[[], ScenarioRun]) -> None:
    async with AsyncExitStack() as stack:
        for journal in journals:
            if isinstance(journal, AbstractAsyncContextManager):
                await stack.enter_async_context(
                    cast("AbstractAsyncContextManager[object]", journal)
                )
        await scenario()


class JournalConformance(JournalSuite):
    """What every journal must do."""

    @on_a_journal
    async def test_it_is_a_whole_journal(self, journal: Journal) -> None:
        """J5: nothing has to be completed, and a service takes it if it lists its sessions."""
        assert complete_journal(journal) is journal
        refusal: ConfigError | None = None
        try:
            journal.check_shareable()
        except ConfigError as error:
            refusal = error
        assert (refusal is None) == self.lists

    @on_a_journal
    async def test_what_was_appended_is_read_back(self, journal: Journal) -> None:
        """Facts of every kind come back equal, in order."""
        facts = facts_of_every_kind()
        await append_facts(journal, SESSION, facts)
        assert list(await journal.read(SESSION)) == facts

    @on_a_journal
    async def test_each_append_goes_on_where_the_last_one_ended(self, journal: Journal) -> None:
        for fact in note_facts(1, 20):
            await append_facts(journal, SESSION, [fact])
        assert list(await journal.read(SESSION)) == note_facts(1, 20)

    @on_a_journal
    async def test_reading_can_start_after_any_record(self, journal: Journal) -> None:
        """A late watcher reads on from the last record that it saw."""
        facts = facts_of_every_kind()
        await append_facts(journal, SESSION, facts)
        for after in range(len(facts) + 2):
            assert list(await journal.read(SESSION, after)) == facts[after:]

    @on_a_journal
    async def test_an_unknown_session_is_empty(self, journal: Journal) -> None:
        await append_facts(journal, "another", note_facts(1, 2))
        assert list(await journal.read(SESSION)) == []
        assert list(await journal.read(SESSION, 7)) == []

    @on_a_journal
    async def test_no_facts_are_no_change(self, journal: Journal) -> None:
        await append_facts(journal, SESSION, [])
        assert list(await journal.read(SESSION)) == []

    @on_a_journal
    async def test_a_taken_number_is_refused_and_nothing_is_written(self, journal: Journal) -> None:
        """A second writer of the same session is refused, never merged."""
        await append_facts(journal, SESSION, note_facts(1, 3))
        for first in (1, 2, 3):
            error = await append_error(journal, SESSION, note_facts(first, 5, "mine"))
            assert isinstance(error, SessionBusy)
            assert SESSION in str(error)
        assert list(await journal.read(SESSION)) == note_facts(1, 3)
        await append_facts(journal, SESSION, note_facts(4, 4))

    @on_a_journal
    async def test_a_gap_is_refused_and_nothing_is_written(self, journal: Journal) -> None:
        gaps = [
            note_facts(2, 2),
            note_facts(0, 1),
            [*note_facts(1, 1), *note_facts(3, 3)],
            note_facts(1, 2)[::-1],
        ]
        for facts in gaps:
            assert isinstance(await append_error(journal, SESSION, facts), JournalFailed)
        assert list(await journal.read(SESSION)) == []
        await append_facts(journal, SESSION, note_facts(1, 1))
        assert isinstance(await append_error(journal, SESSION, note_facts(3, 3)), JournalFailed)
        assert list(await journal.read(SESSION)) == note_facts(1, 1)

    @on_a_journal
    async def test_of_two_drivers_one_wins(self, journal: Journal) -> None:
        """Both write the same number at the same moment."""
        await append_facts(journal, SESSION, note_facts(1, 1))
        both = (start_append(journal, SESSION, note_facts(2, 2, name)) for name in ("one", "two"))
        ends = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["NoneType", "SessionBusy"]
        winner = "one" if ends[0] is None else "two"
        assert list(await journal.read(SESSION)) == [*note_facts(1, 1), *note_facts(2, 2, winner)]

    @on_a_journal
    async def test_one_refusal_does_not_touch_the_others(self, journal: Journal) -> None:
        names = [f"session {at}" for at in range(20)]
        facts = [note_facts(2, 2) if at % 3 == 0 else note_facts(1, 2) for at in range(20)]
        appends = [start_append(journal, *each) for each in zip(names, facts, strict=True)]
        ends = await asyncio.gather(*appends, return_exceptions=True)
        assert [end is None for end in ends] == [at % 3 != 0 for at in range(20)]
        for at, name in enumerate(names):
            assert list(await journal.read(name)) == (note_facts(1, 2) if at % 3 else [])

    @on_a_journal
    async def test_many_sessions_write_at_once(self, journal: Journal) -> None:
        async def drive(name: str) -> None:
            for fact in note_facts(1, 20, name):
                await append_facts(journal, name, [fact])

        names = [f"session {at}" for at in range(30)]
        await asyncio.gather(*map(drive, names))
        for name in names:
            assert list(await journal.read(name)) == note_facts(1, 20, name)

    @on_a_journal
    async def test_appends_that_nobody_awaits_in_between_keep_their_order(
        self, journal: Journal
    ) -> None:
        await asyncio.gather(
            *(start_append(journal, SESSION, [fact]) for fact in note_facts(1, 50))
        )
        assert list(await journal.read(SESSION)) == note_facts(1, 50)

    @on_a_journal
    async def test_a_cancelled_append_is_whole_or_absent(self, journal: Journal) -> None:
        for turn in range(10):
            name = f"session {turn}"
            writing = asyncio.ensure_future(start_append(journal, name, note_facts(1, 3)))
            for _ in range(turn % 3):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait({writing})
            # Appends are written in order, so when this one is done, the cancelled one is decided.
            await append_facts(journal, f"{name}, next", note_facts(1, 1))
            assert list(await journal.read(name)) in ([], note_facts(1, 3))

    def test_a_session_outlives_its_journal(self, tmp_path: Path) -> None:
        """The next process reads and continues what one process wrote."""
        if not self.durable:
            return
        facts = facts_of_every_kind()

        async def write(journal: Journal) -> None:
            await append_facts(journal, SESSION, facts[:5])

        async def go_on(journal: Journal) -> None:
            assert list(await journal.read(SESSION)) == facts[:5]
            assert isinstance(await append_error(journal, SESSION, facts[4:]), SessionBusy)
            await append_facts(journal, SESSION, facts[5:])
            assert list(await journal.read(SESSION)) == facts

        self.run_scenario(tmp_path, write)
        self.run_scenario(tmp_path, go_on)


def row_for(session: str, facts: Sequence[Fact]) -> SessionSummary:
    """Return the row of a session with these facts, even if not all of them can follow."""
    state = State(session)
    with suppress(IllegalFact):
        for fact in facts:
            state = apply_fact(state, fact)
    row = row_of(state)
    if not facts or facts[-1].seq == state.seq:
        return row
    last = facts[-1]
    judged = [fact.verdict for fact in facts if isinstance(fact, CallJudged)]
    return replace(
        row,
        changed=last.at,
        created=facts[0].at,
        updated=last.at,
        facts=last.seq,
        asked=sum(isinstance(verdict, Ask) for verdict in judged),
    )


def start_append(journal: Journal, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
    """Begin an append at once, with the row that these facts add up to by themselves."""
    return journal.append(session, facts, row_for(session, facts))


async def append_facts(journal: Journal, session: str, facts: Sequence[Fact]) -> None:
    """Append facts as a writer does: with the row that all facts of the session add up to."""
    known = await journal.read(session)
    await journal.append(session, facts, row_for(session, [*known, *facts]))


async def append_error(journal: Journal, session: str, facts: Sequence[Fact]) -> Exception | None:
    """Return the error of an append that should fail, or None if it did not fail."""
    return await error_of(start_append(journal, session, facts))


async def error_of(awaitable: Awaitable[object]) -> Exception | None:
    """Return the error that an awaitable raises, or None if it raises none."""
    try:
        await awaitable
    except Exception as error:  # noqa: BLE001 - the test says which one it must be
        return error
    return None
