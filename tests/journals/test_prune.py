"""Pruning: some sessions at a time, so that nobody waits for all of them."""

import asyncio
from pathlib import Path

import pytest

from windlass.core.events import RunStarted
from windlass.journals.sqlite import journal as sqlite
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts, start_append
from windlass.testing.samples import facts_of_every_kind, note_facts

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "PRUNE_BATCH", 2)


@pytest.mark.realtime
async def test_all_parts_are_pruned_but_what_is_driven_or_open(tmp_path: Path) -> None:
    facts = facts_of_every_kind()
    with SqliteJournal(tmp_path / "journal.db") as journal:
        for name in "abcdefg":
            await append_facts(journal, name, facts)
        await append_facts(journal, "open", facts[:6])
        await journal.lease("c")
        assert await journal.prune(before=facts[-1].at + 1) == 6
        assert {one.session for one in await journal.sessions()} == {"c", "open"}
        assert await journal.verify("c") == []
        assert await journal.check() == []


@pytest.mark.realtime
async def test_who_appends_does_not_wait_for_all_of_it(tmp_path: Path) -> None:
    facts = facts_of_every_kind()
    with SqliteJournal(tmp_path / "journal.db", durability="relaxed") as journal:
        await asyncio.gather(*(start_append(journal, f"s{at}", facts) for at in range(400)))
        pruning = asyncio.create_task(journal.prune(before=facts[-1].at + 1))
        while len(await journal.sessions(limit=500)) == 400:
            assert not pruning.done()
        await append_facts(journal, "meanwhile", note_facts(1, 1))
        assert not pruning.done()
        assert await pruning == 400
        assert [one.session for one in await journal.sessions()] == ["meanwhile"]


@pytest.mark.realtime
async def test_a_session_that_goes_on_meanwhile_is_kept(tmp_path: Path) -> None:
    """What was found is looked at once more in the transaction that deletes it."""
    facts = facts_of_every_kind()
    with SqliteJournal(tmp_path / "journal.db", durability="relaxed") as journal:
        await asyncio.gather(*(start_append(journal, f"s{at:03}", facts) for at in range(200)))
        pruning = asyncio.create_task(journal.prune(before=facts[-1].at + 1))
        while len(await journal.sessions(limit=500)) == 200:
            assert not pruning.done()
        runs = sum(isinstance(fact, RunStarted) for fact in facts)
        again = RunStarted(runs + 1, (), seq=facts[-1].seq + 1, at=facts[-1].at + 5)
        await append_facts(journal, "s199", [again])
        assert await pruning == 199
        assert [one.session for one in await journal.sessions()] == ["s199"]
