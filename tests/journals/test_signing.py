"""A journal in a file: who may answer, post and take records away is told by the user's own key."""

import asyncio
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass import Agent, tool
from windlass.core.errors import JournalCorrupt
from windlass.core.events import CallAnswered, CallFinished, MailRefused
from windlass.core.mail import CancelMail, PromptMail, SteerMail
from windlass.core.messages import TextPart
from windlass.core.verdicts import Allow, Ask, Verdict
from windlass.environ import signing_key_folder
from windlass.journals.codec import chain_hash, encode_fact
from windlass.journals.signing import load_key
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.sqlite.saving import PLAIN_COPY
from windlass.ports.records import SharedRecord
from windlass.private_files import is_private_file
from windlass.sqlite_file import SqliteConnection
from windlass.testing import FixedGate, ScriptedModel, call, say
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.contract("D4"), pytest.mark.realtime]
done: list[str] = []


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    done.clear()
    return tmp_path / "journal.db"


def change(path: Path, *statements: str) -> None:
    """Do to the file what a program without the key could do."""
    file = apsw.Connection(str(path))
    for statement in statements:
        file.execute(statement)
    file.close()


def append_forged(path: Path, session: str, make: Callable[[int], Any]) -> None:
    """Append a fact with a sound chain, as whoever can write the file could."""
    file = apsw.Connection(str(path))
    query = "SELECT number, facts, head FROM sessions WHERE session = ?"
    number, facts, head = next(iter(file.execute(query, (session,))))
    body = encode_fact(make(facts + 1)).body
    head = chain_hash(head, body)
    row = (number, facts + 1, body.decode(), head)
    file.execute("INSERT INTO records (number, seq, body, hash) VALUES (?, ?, ?, ?)", row)
    update = "UPDATE sessions SET facts = ?, head = ? WHERE number = ?"
    file.execute(update, (facts + 1, head, number))
    file.close()


@tool
def send(text: str) -> str:
    """Send a text."""
    done.append(text)
    return "sent"


def asking_agent(journal: SqliteJournal, *replies: Any) -> Agent:
    verdict: Verdict = Ask("May it?")
    gate = FixedGate(verdict)
    return Agent(ScriptedModel([*replies]), tools=[send], gate=gate, journal=journal)


async def ask(path: Path) -> tuple[str, str, str]:
    """Leave a question in the file; returns the session, the call and its digest."""
    with SqliteJournal(path) as journal:
        agent = asking_agent(journal, [call("send", {"text": "hi"})])
        result = await agent.run("Send it.")
        (question,) = result.questions
        return result.session_id, question.call_id, question.digest


def test_the_key_is_for_its_owner_only(path: Path) -> None:
    SqliteJournal(path).close()
    key = signing_key_folder() / "journal.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert is_private_file(key)
    before = key.read_bytes()
    SqliteJournal(path).close()
    assert key.read_bytes() == before


async def test_a_journal_works_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a file"
    place.write_text("not a folder")
    monkeypatch.setenv("XDG_DATA_HOME", str(place))
    assert load_key() is None
    with SqliteJournal(tmp_path / "journal.db") as journal:
        await append_facts(journal, "s", note_facts(1, 3))
        assert (await journal.post_mail("s", CancelMail(run=1))).number == 1
        assert await journal.verify("s") == []
        assert await journal.check() == []


async def test_a_given_answer_is_signed_and_a_forged_one_is_found(path: Path) -> None:
    """D4, G6: whoever can write the file cannot answer in a person's place."""
    session, call_id, digest = await ask(path)
    append_forged(
        path, session, lambda seq: CallAnswered(call_id, Allow(), digest, "ann", seq=seq, at=9e9)
    )
    with SqliteJournal(path) as journal:
        problems = await journal.verify(session)
        assert any("nobody with the user's key gave this answer" in str(one) for one in problems)
        with pytest.raises(JournalCorrupt, match="nobody with the user's key"):
            await asking_agent(journal, say("It is sent.")).resume(session)
        assert done == []


async def test_an_answer_with_the_key_is_taken(path: Path) -> None:
    session, call_id, _ = await ask(path)
    with SqliteJournal(path) as journal:
        agent = asking_agent(journal, say("It is sent."))
        result = await agent.answer(session, call_id, Allow(), by="ann")
        assert (result.text, done) == ("It is sent.", ["hi"])
        assert any(isinstance(fact, CallFinished) for fact in await journal.read(session))
        assert await journal.verify(session) == []
        assert await journal.check() == []


async def test_a_forged_message_is_refused_by_a_fact(path: Path) -> None:
    """D4: it does not reach the model, and the run goes on."""
    session, call_id, _ = await ask(path)
    with SqliteJournal(path) as journal:
        await journal.post_mail(session, SteerMail(run=1, prompt=(TextPart("be good"),)), by="ann")
        await journal.post_mail(session, SteerMail(run=1, prompt=(TextPart("be quick"),)))
        await journal.post_mail(session, CancelMail(run=1))
    change(path, "UPDATE mail SET message = 'x' WHERE number = 3")
    change(path, "UPDATE mail SET message = replace(message, 'good', 'evil')")
    with SqliteJournal(path) as journal:
        (forged, genuine, broken) = await journal.read_mail(session, "control")
        assert "not signed" in (journal.find_letter_problem(session, forged) or "")
        assert journal.find_letter_problem(session, genuine) is None
        assert "not signed" in (journal.find_letter_problem(session, broken) or "")
        agent = asking_agent(journal, say("It is sent."))
        await agent.answer(session, call_id, Allow(), by="ann")
        refused = [one for one in await journal.read(session) if isinstance(one, MailRefused)]
        assert [(one.mail, one.kind) for one in refused] == [(1, "steer"), (3, "cancel")]
        assert "not signed" in refused[0].reason
        assert "evil" not in str(await journal.read(session))


async def test_a_forged_prompt_in_the_queue_begins_no_run(path: Path) -> None:
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(["One."]), journal=journal)
    await agent.run("Go.", session="s")
    await journal.post_mail("s", PromptMail(prompt=(TextPart("Say two."),)))
    change(path, "UPDATE mail SET message = replace(message, 'Say two.', 'Send it.')")
    await agent.drive("s")
    refused = [fact for fact in await journal.read("s") if isinstance(fact, MailRefused)]
    assert [fact.lane for fact in refused] == ["prompts"]
    await agent.aclose()
    journal.close()


async def test_records_that_were_taken_away_are_found(path: Path) -> None:
    """J7: also if the end was made anew."""
    session, _, _ = await ask(path)
    with SqliteJournal(path) as journal:
        last = len(await journal.read(session))
    change(
        path,
        f"DELETE FROM records WHERE seq > {last - 2}",
        f"UPDATE sessions SET facts = {last - 2}, "
        f"head = (SELECT hash FROM records WHERE seq = {last - 2})",
    )
    with SqliteJournal(path) as journal:
        problems = await journal.verify(session)
        assert any("removed or changed" in str(one) for one in problems)


async def test_a_deleted_session_is_found_unless_it_was_deleted_here(path: Path) -> None:
    """J7, D9."""
    with SqliteJournal(path) as journal:
        for name in ("one", "two"):
            await append_facts(journal, name, note_facts(1, 3))
        await journal.delete("one")
        assert await journal.check() == []
    change(path, "DELETE FROM records WHERE number = 2", "DELETE FROM sessions")
    with SqliteJournal(path) as journal:
        assert await journal.check() == ["session 'two' was deleted by another program"]
    change(path, "DELETE FROM anchors")
    with SqliteJournal(path) as journal:
        (problem,) = await journal.check()
        assert "anchors of this journal were added or removed" in problem


async def test_an_edited_list_and_an_emptied_budget_are_found(path: Path) -> None:
    """J7, B1: what is derived is compared with what it is derived from."""
    session, _, _ = await ask(path)
    change(
        path,
        "UPDATE sessions SET title = 'Nothing to see', steps = 0",
        "INSERT INTO shares VALUES ('s', 1, 'team', '', '2', 5, '0', 0)",
        "INSERT INTO pools VALUES ('team', '', '0', 0)",
    )
    with SqliteJournal(path) as journal:
        (problem,) = await journal.verify(session)
        assert "title, steps" in str(problem)
        assert await journal.check() == [
            "budget 'team' is less than the sum of its shares",
            "budgets of this journal were changed or emptied by another program",
        ]


async def test_a_journal_that_was_rolled_back_is_found_and_can_be_accepted(path: Path) -> None:
    """J7: with its anchors; a backup that a person restored is accepted by a command."""
    backup = path.with_name("backup.db")
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 3))
        change(path, f"VACUUM INTO '{backup}'")
        await append_facts(journal, "t", note_facts(1, 1))
        assert await journal.check() == []
    backup.replace(path)
    with SqliteJournal(path) as journal:
        older, copied = await journal.check()
        assert "older than it was" in older
        assert copied == PLAIN_COPY
        await append_facts(journal, "u", note_facts(1, 1))
        assert {*await journal.check()} <= {older, copied}
        await journal.accept()
        assert await journal.check() == []
        assert await journal.verify("s") == []


async def test_a_journal_of_another_user_is_accepted_by_a_command(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: moved to another machine, its anchors are signed with another key."""
    session, call_id, _ = await ask(path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    with SqliteJournal(path) as journal:
        (problem,) = await journal.check()
        assert "signed with another key" in problem
        agent = asking_agent(journal, say("It is sent."))
        with pytest.raises(JournalCorrupt, match="verify --accept"):
            await agent.answer(session, call_id, Allow(), by="ann")
        await journal.accept()
        assert (await journal.check(), await journal.verify(session)) == ([], [])
        # The answer was accepted, and waits for the driver.
        assert (await agent.resume(session)).text == "It is sent."


@pytest.mark.contract("A4")
async def test_a_shared_record_without_the_key_is_never_used(path: Path) -> None:
    """A4: what can write the file could otherwise make itself a token, or raise its roles."""
    with SqliteJournal(path) as journal:
        await journal.put_record("token", "mine", b"watch", 0)
        other = await journal.put_record("token", "other", b"admin", 0)
    change(path, "UPDATE shared_records SET data = CAST('admin' AS BLOB) WHERE name = 'mine'")
    forged = "INSERT INTO shared_records VALUES ('token', 'new', 9, CAST('admin' AS BLOB), '')"
    # The signature of another record does not fit, also if the data is the same.
    moved = """INSERT INTO shared_records SELECT kind, 'moved', version, data, signature
        FROM shared_records WHERE name = 'other'"""
    change(path, forged, moved)
    with SqliteJournal(path) as journal:
        for name in ("mine", "new", "moved"):
            with pytest.raises(JournalCorrupt, match="verify --accept"):
                await journal.get_record("token", name)
        with pytest.raises(JournalCorrupt) as refusal:
            await journal.list_records("token")
        assert await journal.get_record("token", "other") == other
        # A person can remove what was forged, and accept what they moved here themselves.
        assert await journal.delete_record("token", "new")
        assert await journal.delete_record("token", "moved")
        await journal.accept()
        # The error is still referenced, with the rows that were not read in its traceback: the
        # list is the one of now all the same.
        assert [one.data for one in await journal.list_records("token")] == [b"admin", b"admin"]
        assert refusal.value.__traceback__ is not None


@pytest.mark.contract("A4", "J7")
@pytest.mark.parametrize("rolls_back_the_book", [False, True])
async def test_a_record_that_was_deleted_and_put_back_is_not_used(
    path: Path, *, rolls_back_the_book: bool
) -> None:
    """A4: a token that was revoked keeps its signature, but it is not the last version."""
    with SqliteJournal(path) as journal:
        await journal.put_record("token", "kept", b"watch", 0)
        await journal.put_record("token", "revoked", b"admin", 0)
        await journal.put_record("upload", "other", b"data", 0)
    old = apsw.Connection(str(path))
    row = old.execute("SELECT * FROM shared_records WHERE name = 'revoked'").fetchone()
    book = old.execute("SELECT value FROM meta WHERE name = 'records'").get
    old.close()
    with SqliteJournal(path) as journal:
        assert await journal.delete_record("token", "revoked")
    file = apsw.Connection(str(path))
    file.execute("INSERT INTO shared_records VALUES (?, ?, ?, ?, ?)", row)
    if rolls_back_the_book:
        file.execute("UPDATE meta SET value = ? WHERE name = 'records'", (book,))
    file.close()
    with SqliteJournal(path) as journal:
        with pytest.raises(JournalCorrupt, match="put it back"):
            await journal.get_record("token", "revoked")
        assert any("token" in problem for problem in await journal.check())
        if not rolls_back_the_book:
            found = await journal.get_record("token", "kept")
            assert found is not None
        assert await journal.get_record("upload", "other") is not None
        assert await journal.delete_record("token", "revoked")
        await journal.accept()
        assert await journal.check() == []
        assert [one.name for one in await journal.list_records("token")] == ["kept"]


@pytest.mark.contract("A4")
async def test_a_change_that_is_not_durable_yet_is_not_remembered(path: Path) -> None:
    """J10: else a process that dies before its commit would leave tokens that are not used."""
    with SqliteJournal(path) as journal:
        at_first, at_second, may_end = (threading.Event() for _ in range(3))

        def change_first(file: SqliteConnection) -> SharedRecord:
            at_first.set()
            return journal._records.put_record(file, "token", "first", b"1", 0)

        def change_second(file: SqliteConnection) -> None:
            journal._records.put_record(file, "token", "second", b"2", 0)
            at_second.set()
            may_end.wait(30)

        first = asyncio.ensure_future(journal._change_records(change_first))
        await asyncio.sleep(0)
        # The loop is held up until the writer is in the second change, so the first is durable.
        assert at_first.wait(30)
        second = journal._submit_change(change_second)
        assert at_second.wait(30)
        try:
            made = await first
            assert await journal.get_record("token", "first") == made
        finally:
            may_end.set()
            await second


async def test_a_token_that_was_changed_is_not_replaced_by_what_it_was(path: Path) -> None:
    """A4: an older version of a record that is still there does not count either."""
    with SqliteJournal(path) as journal:
        first = await journal.put_record("token", "t", b"admin", 0)
        row = apsw.Connection(str(path)).execute("SELECT * FROM shared_records").fetchone()
        await journal.put_record("token", "t", b"watch", first.version)
        with SqliteJournal(path) as other:
            found = await other.get_record("token", "t")
            assert found is not None
            assert found.data == b"watch"
    file = apsw.Connection(str(path))
    file.execute("INSERT OR REPLACE INTO shared_records VALUES (?, ?, ?, ?, ?)", row)
    file.close()
    with SqliteJournal(path) as journal, pytest.raises(JournalCorrupt, match="put it back"):
        await journal.get_record("token", "t")
