"""A program that can write the file of a journal, but has no key, changes nothing unseen.

It knows the format, so that every hash fits.
"""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from windlass import Agent, Budget, tool
from windlass.core.errors import JournalCorrupt
from windlass.core.events import Fact, NoteGiven
from windlass.core.limits import Amount
from windlass.core.verdicts import Allow, Ask, Grant
from windlass.journals.codec import chain_hash, chain_root, encode_fact
from windlass.journals.forking import fork
from windlass.journals.signing import load_key
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import FixedGate, ScriptedModel, call, say
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.contract("J7"), pytest.mark.realtime]
done: list[str] = []


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done.clear()
    return tmp_path / "journal.db"


@tool
def send(text: str) -> str:
    """Send a text."""
    done.append(text)
    return "sent"


def asking_agent(journal: SqliteJournal, *replies: Any) -> Agent:
    gate = FixedGate(Ask("May it?"))
    return Agent(ScriptedModel([*replies]), tools=[send], gate=gate, journal=journal)


def change(path: Path, *statements: str) -> None:
    file = apsw.Connection(str(path))
    for statement in statements:
        file.execute(statement)
    file.close()


def rewrite(path: Path, session: str, edit: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Let `edit` change the records of a session, then make all hashes and the end anew."""
    file = apsw.Connection(str(path))
    query = "SELECT number FROM sessions WHERE session = ?"
    number = file.execute(query, (session,)).get
    rows = file.execute("SELECT body FROM records WHERE number = ? ORDER BY seq", (number,))
    records = [msgspec.json.decode(row[0]) for row in rows]
    edit(records)
    file.execute("DELETE FROM records WHERE number = ?", (number,))
    link = chain_root(session).hash
    for seq, record in enumerate(records, 1):
        body = msgspec.json.encode({**record, "seq": seq})
        link = chain_hash(link, body)
        insert = "INSERT INTO records (number, seq, body, hash) VALUES (?, ?, ?, ?)"
        file.execute(insert, (number, seq, body.decode(), link))
    update = "UPDATE sessions SET facts = ?, head = ? WHERE number = ?"
    file.execute(update, (len(records), link, number))
    file.close()


def forge(fact: Fact) -> dict[str, Any]:
    return msgspec.json.decode(encode_fact(fact).body)


async def problems_of(path: Path, session: str) -> str:
    with SqliteJournal(path) as journal:
        return "\n".join(map(str, await journal.verify(session)))


async def append_notes(path: Path) -> None:
    """Records behind the last anchor: nothing about the state of the session changes with them."""
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 3))
        await append_facts(journal, "s", note_facts(4, 6))
        await append_facts(journal, "s", note_facts(7, 8))
        assert await journal.verify("s") == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda records: records.pop(),
        lambda records: records.__delitem__(slice(4, None)),
        lambda records: records.append(forge(NoteGiven("forged", "same_call", seq=9, at=1e9))),
        lambda records: records[7].update(text="forged"),
        lambda records: records[4].update(text="forged"),
    ],
    ids=["last cut", "many cut", "one added", "last changed", "one before changed"],
)
async def test_a_tail_that_was_made_anew_is_found(
    path: Path, edit: Callable[[list[dict[str, Any]]], Any]
) -> None:
    """J7: also behind the last anchor."""
    await append_notes(path)
    rewrite(path, "s", edit)
    assert "does not end as the user's key says" in await problems_of(path, "s")


async def test_the_next_append_does_not_cover_a_forgery_up(path: Path) -> None:
    await append_notes(path)
    rewrite(path, "s", lambda records: records.pop())
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(8, 9))
        await append_facts(journal, "s", note_facts(10, 11))
    assert "does not end as the user's key says" in await problems_of(path, "s")
    with SqliteJournal(path) as journal:
        await journal.accept()
        assert await journal.verify("s") == []
        await append_facts(journal, "s", note_facts(12, 12))
    assert await problems_of(path, "s") == ""


async def test_a_process_that_is_open_meanwhile_does_not_cover_it_up_either(path: Path) -> None:
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 3))
        await append_facts(journal, "s", note_facts(4, 6))
        rewrite(path, "s", lambda records: records[4].update(text="forged"))
        await append_facts(journal, "s", note_facts(7, 8))
        assert "does not end" in str(await journal.verify("s"))


async def test_a_seal_is_for_one_session_and_one_place(path: Path) -> None:
    await append_notes(path)
    with SqliteJournal(path) as journal:
        await append_facts(journal, "t", note_facts(1, 8))
    change(path, "UPDATE sessions SET seal = (SELECT seal FROM sessions WHERE session = 's')")
    assert "does not end" in await problems_of(path, "t")
    change(path, "UPDATE sessions SET seal = ''")
    assert "does not end" in await problems_of(path, "s")


@pytest.mark.contract("G6")
async def test_a_run_whose_last_records_were_cut_is_not_resumed(path: Path) -> None:
    """Its call had been made: without the records it would be made again."""
    with SqliteJournal(path) as journal:
        agent = asking_agent(journal, [call("send", {"text": "hi"})])
        first = await agent.run("Send it.", session="s")
        call_id = first.questions[0].call_id
        agent = asking_agent(journal, [call("send", {"text": "again"})])
        await agent.answer("s", call_id, Allow(), by="ann")
        assert done == ["hi"]
        kinds = [type(fact).__name__ for fact in await journal.read("s")]
        cut = len(kinds) - kinds[::-1].index("CallAnswered")
    rewrite(path, "s", lambda records: records.__delitem__(slice(cut, None)))
    with SqliteJournal(path) as journal:
        with pytest.raises(JournalCorrupt, match="will not be resumed"):
            await asking_agent(journal, say("It is sent.")).resume("s")
        assert done == ["hi"]


@pytest.mark.contract("G6")
async def test_an_always_in_a_run_that_has_ended_is_not_believed(path: Path) -> None:
    """A grant is used by later runs, so a forged one must not be."""
    with SqliteJournal(path) as journal:
        agent = asking_agent(journal, [call("send", {"text": "hi"})], say("Done."))
        first = await agent.run("Send it.", session="s")
        await agent.answer("s", first.questions[0].call_id, Allow(), by="ann")
        assert done == ["hi"]

    def grant_always(records: list[dict[str, Any]]) -> None:
        (answer,) = (one for one in records if one["type"] == "CallAnswered")
        answer["grant"] = msgspec.to_builtins(Grant("send"))

    rewrite(path, "s", grant_always)
    with SqliteJournal(path) as journal:
        agent = asking_agent(journal, [call("send", {"text": "evil"})], say("Done."))
        with pytest.raises(JournalCorrupt, match="will not be resumed"):
            await agent.run("Once more.", session="s")
        assert done == ["hi"]


@pytest.mark.contract("B1")
async def test_budgets_that_were_emptied_together_are_found(path: Path) -> None:
    """All rows of the shares and of the sums are gone, so that they fit one another."""
    budget = Budget("team", usd=5)
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        await journal.draw_budget(budget, "s", 1, Amount(usd=Decimal(3)))
        await journal.settle_budget(budget, "s", 1, Amount(usd=Decimal(2)))
        await journal.draw_budget(Budget("other", tokens=9), "s", 1, Amount(tokens=3))
        assert await journal.check() == []
    found = ["budgets of this journal were changed or emptied by another program"]
    change(path, "UPDATE shares SET usd = '1'", "UPDATE pools SET usd = '1'")
    with SqliteJournal(path) as journal:
        assert await journal.check() == found
    change(path, "DELETE FROM shares", "DELETE FROM pools")
    with SqliteJournal(path) as journal:
        assert await journal.check() == found
        await journal.draw_budget(budget, "s", 2, Amount(usd=Decimal(1)))
        assert await journal.check() == found
        await journal.accept()
        assert await journal.check() == []
        await journal.draw_budget(budget, "s", 2, Amount(usd=Decimal(2)))
        assert await journal.check() == []


async def test_the_mark_outside_knows_of_an_answer_at_once(path: Path) -> None:
    """J7: a copy of the file from before the answer is older than what is remembered."""
    with SqliteJournal(path) as journal:
        agent = asking_agent(journal, [call("send", {"text": "hi"})], say("Done."))
        first = await agent.run("Send it.", session="s")
        copy = path.with_name("copy.db")
        change(path, f"VACUUM INTO '{copy}'")
        await append_facts(journal, "t", note_facts(1, 1))
        await agent.answer("s", first.questions[0].call_id, Allow(), by="ann")
        with SqliteJournal(copy) as older:
            assert "older than it was" in str(await older.check())


async def test_a_fork_of_a_forged_session_is_as_forged(path: Path) -> None:
    """A copy is signed by whoever makes it, so it must not be made."""
    await append_notes(path)
    rewrite(path, "s", lambda records: records[4].update(text="forged"))
    with SqliteJournal(path) as journal:
        with pytest.raises(JournalCorrupt, match="user's key"):
            await fork(journal, "s", 6)
        assert [one.session for one in await journal.sessions()] == ["s"]


async def test_two_journals_that_were_swapped_are_found(path: Path, tmp_path: Path) -> None:
    """D4: both are signed with the same key, and neither is the one that it claims to be."""
    other = tmp_path / "other.db"
    for place, text in ((path, "mine"), (other, "other")):
        with SqliteJournal(place) as journal:
            await append_facts(journal, "s", note_facts(1, 3, text))
    moved = apsw.Connection(str(path))
    moved.execute("ATTACH ? AS other", (str(other),))
    for table in ("sessions", "records", "anchors"):
        moved.execute(f"DELETE FROM main.{table}")
    moved.execute("INSERT INTO main.records SELECT * FROM other.records")
    moved.execute("INSERT INTO main.anchors SELECT * FROM other.anchors")
    names = [row[1] for row in moved.execute("PRAGMA table_info(sessions)")]
    columns = ", ".join(names)
    moved.execute(f"INSERT INTO main.sessions ({columns}) SELECT {columns} FROM other.sessions")
    moved.close()
    with SqliteJournal(path) as journal:
        assert "does not end" in str(await journal.verify("s"))
        assert "anchors of this journal" in str(await journal.check())


def test_one_signature_is_no_other(path: Path) -> None:
    """What is signed for one purpose is worth nothing for another, nor joined differently."""
    SqliteJournal(path).close()
    key = load_key()
    assert key is not None
    signature = key.sign("end", "journal", "s", 1, b"head")
    assert key.is_valid(signature, "end", "journal", "s", 1, b"head")
    for values in (
        ("anchor", "journal", "s", 1, b"head"),
        ("end", "journals", "", 1, b"head"),
        ("end", "journal", "s", 1, "head"),
        ("end", "journal", "s", 11, b"ead"),
    ):
        assert not key.is_valid(signature, *values)
