"""Budgets that many runs share: never overdrawn, whatever happens in whatever order."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processes import start_child
from windlass.core.errors import JournalFailed
from windlass.core.limits import Amount, Budget
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.budgets import is_within_budget
from windlass.testing.journals import append_facts, error_of
from windlass.testing.samples import note_facts

pytestmark = pytest.mark.slow

CENTS = st.integers(0, 300).map(lambda cents: Decimal(cents) / 100)
AMOUNTS = st.builds(Amount, st.none() | CENTS, st.none() | st.integers(0, 300))
BUDGETS = st.builds(
    Budget,
    st.just("team"),
    CENTS.filter(bool),
    st.integers(1, 300),
    st.sampled_from((None, "hour")),
)
MOVES = st.lists(
    st.tuples(
        st.sampled_from(("draw", "settle", "wait", "again")), st.integers(0, 4), AMOUNTS, CENTS
    ),
    max_size=30,
)
Move = tuple[str, int, Amount, Decimal]
Store = MemoryJournal | SqliteJournal


class Play:
    """Runs that spend within what they may, and what must hold after each move."""

    def __init__(self, store: Store, budget: Budget, clock: list[float]) -> None:
        self.store, self.budget, self.clock = store, budget, clock
        self.shares: dict[int, tuple[int, Amount]] = {}

    async def move(self, what: str, run: int, amount: Amount, part: Decimal) -> None:
        _, share = self.shares.get(run, (0, Amount(Decimal(0), 0)))
        if what == "wait":
            self.clock[0] += 3600
            return
        if what == "settle":
            within_share = Amount(min(part, share.usd or Decimal(0)), (share.tokens or 0) // 2)
            await self.store.settle_budget(self.budget, str(run % 2), run, within_share)
            self.note(run, within_share)
            return
        got = await self.store.draw_budget(self.budget, str(run % 2), run, amount)
        assert is_enough_for(got, share), "never less than it may already"
        if what == "again":
            assert await self.store.draw_budget(self.budget, str(run % 2), run, amount) == got
        self.note(run, got)

    def note(self, run: int, share: Amount) -> None:
        if run in self.shares or share != Amount(Decimal(0), 0):
            hour = int(self.clock[0] // 3600) if self.budget.per else 0
            self.shares[run] = (self.shares.get(run, (hour, share))[0], share)

    async def check(self) -> None:
        hour = int(self.clock[0] // 3600) if self.budget.per else 0
        for each in {hour} | {one for one, _ in self.shares.values()}:
            mine = [share for one, share in self.shares.values() if one == each]
            whole = Amount(
                sum((share.usd or Decimal(0) for share in mine), Decimal(0)),
                sum(share.tokens or 0 for share in mine),
            )
            assert is_within_budget(self.budget, whole)
            if each == hour:
                assert await self.store.read_spending(self.budget) == whole


def is_enough_for(amount: Amount, other: Amount) -> bool:
    enough = (amount.usd or Decimal(0)) >= (other.usd or Decimal(0))
    return enough and (amount.tokens or 0) >= (other.tokens or 0)


async def play(store: Store, budget: Budget, moves: list[Move], clock: list[float]) -> None:
    scene = Play(store, budget, clock)
    for move in moves:
        await scene.move(*move)
        await scene.check()


@given(BUDGETS, MOVES)
async def test_shares_never_exceed_the_budget(budget: Budget, moves: list[Move]) -> None:
    """B2: what is promised or spent in a window fits, and asking again changes nothing."""
    clock = [1_800_000_000.0]
    await play(MemoryJournal(now=lambda: clock[0]), budget, moves, clock)


@settings(max_examples=25)
@given(BUDGETS, MOVES)
def test_a_file_keeps_the_same_books(budget: Budget, moves: list[Move]) -> None:
    """B2: the same, through a file."""
    clock = [1_800_000_000.0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with SqliteJournal(path, now=lambda: clock[0], durability="relaxed") as journal:
            asyncio.run(play(journal, budget, moves, clock))


@pytest.mark.slow
def test_processes_that_draw_at_once_never_overdraw(tmp_path: Path) -> None:
    """B2: what both may spend adds up to what the file says, and fits."""
    path = tmp_path / "journal.db"
    with start_child("draw", path, "ann", 60) as ann, start_child("draw", path, "bob", 60) as bob:
        assert {ann.read_line(), bob.read_line()} == {"ready"}
        ann.write_line("go")
        bob.write_line("go")
        shares = Decimal(ann.read_line()) + Decimal(bob.read_line())
    budget = Budget("team", Decimal(1))
    with SqliteJournal(path) as journal:
        assert asyncio.run(journal.read_spending(budget)) == Amount(shares)
    assert Decimal("0.98") < shares <= 1


@asynccontextmanager
async def open_store(folder: Path, kind: str) -> AsyncIterator[Store]:
    if kind == "memory":
        yield MemoryJournal()
        return
    with SqliteJournal(folder / "journal.db") as journal:
        yield journal


@pytest.mark.realtime
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_deleted_session_has_spent_what_it_spent(tmp_path: Path, kind: str) -> None:
    """And a new one of its name starts with nothing."""
    budget = Budget("team", Decimal(1))
    async with open_store(tmp_path, kind) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        await journal.draw_budget(budget, "s", 1, Amount(Decimal("0.6")))
        await journal.delete("s")
        assert await journal.read_spending(budget) == Amount(Decimal("0.6"))
        assert await journal.draw_budget(budget, "s", 1, Amount(Decimal("0.6"))) == Amount(
            Decimal("0.4")
        )


@pytest.mark.realtime
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_run_that_got_nothing_counts_for_no_window_yet(tmp_path: Path, kind: str) -> None:
    clock = [1_800_000_000.0]
    budget = Budget("daily", tokens=10, per="day")
    async with open_store(tmp_path, kind) as journal:
        journal._now = lambda: clock[0]
        await journal.draw_budget(budget, "a", 1, Amount(tokens=10))
        assert await journal.draw_budget(budget, "b", 1, Amount(tokens=5)) == Amount(tokens=0)
        clock[0] += 24 * 3600
        assert await journal.draw_budget(budget, "b", 1, Amount(tokens=5)) == Amount(tokens=5)


@pytest.mark.realtime
async def test_draws_that_wait_together_share_a_commit_and_fail_alone(tmp_path: Path) -> None:
    """One that cannot be done takes nobody with it."""
    path, budget = tmp_path / "journal.db", Budget("team", tokens=2**70)
    with SqliteJournal(path) as journal:
        commits = list[int]()
        connection: apsw.Connection = journal._writer._connection  # pyright: ignore[reportAssignmentType]
        connection.set_commit_hook(lambda: bool(commits.append(1)))
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        draws = [
            asyncio.ensure_future(journal.draw_budget(budget, "s", run, Amount(tokens=wanted)))
            for run, wanted in enumerate([5, 2**69, 7] * 20)
        ]
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        other.close()
        ends = await asyncio.gather(*draws, return_exceptions=True)
        assert ends[0::3] == [Amount(tokens=5)] * 20
        assert {type(end) for end in ends[1::3]} == {JournalFailed}
        assert ends[2::3] == [Amount(tokens=7)] * 20
        # The writer may have taken the first few before the rest were there.
        assert len(commits) <= 2
        assert await journal.read_spending(budget) == Amount(tokens=240)


@pytest.mark.realtime
async def test_a_draw_that_fails_midway_leaves_nothing_behind(tmp_path: Path) -> None:
    """J1: the share was written and the sum was not: neither is."""
    budget = Budget("team", tokens=2**70)
    with SqliteJournal(tmp_path / "journal.db") as journal:
        much = Amount(tokens=2**62)
        assert await journal.draw_budget(budget, "s", 1, much) == much
        assert isinstance(await error_of(journal.draw_budget(budget, "s", 2, much)), JournalFailed)
        assert await journal.draw_budget(budget, "s", 2, Amount(tokens=5)) == Amount(tokens=5)
        assert await journal.read_spending(budget) == Amount(tokens=2**62 + 5)
