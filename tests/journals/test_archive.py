"""Sessions that leave their journal: forked at any record, exported, taken in again."""

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from proof.simulate import draw_plan, play_plan
from windlass import Agent
from windlass.core.audit.replay import replay
from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed
from windlass.core.events import CallFinished, CallStarted, Fact, RunStarted, SessionImported
from windlass.core.fold.run import fold
from windlass.core.messages import Effect, ImagePart, TextPart, ToolResult
from windlass.core.moves import ClearedCall
from windlass.core.result import open_questions
from windlass.core.session_summary import SessionSummary
from windlass.core.setup import LoopPolicy
from windlass.core.verdicts import Allow
from windlass.journals.archive import export_session, import_session
from windlass.journals.codec import chain_hash, chain_root, encode_fact
from windlass.journals.forking import fork
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import CallContext, Journal, ReconcileOutcome
from windlass.testing import RecordingTools, ScriptedModel, call
from windlass.testing.journals import append_facts
from windlass.testing.samples import facts_of_every_kind, note_facts

SESSION = "a session"


async def filled_journal(facts: Sequence[Fact] | None = None) -> MemoryJournal:
    journal = MemoryJournal()
    await append_facts(journal, SESSION, facts_of_every_kind() if facts is None else facts)
    return journal


async def export_bytes(journal: Journal, session: str = SESSION) -> bytes:
    page = io.BytesIO()
    await export_session(journal, session, page.write)
    return page.getvalue()


async def read_imported(journal: Journal, session: str = SESSION) -> list[Fact]:
    """The facts of an imported session, without the last one, which says that it was imported."""
    *facts, mark = await journal.read(session)
    assert isinstance(mark, SessionImported)
    assert mark.source == SESSION
    return facts


# ── export and import ────────────────────────────────────────────────────────


@pytest.mark.contract("J8")
async def test_what_was_exported_is_taken_in_as_it_was() -> None:
    """Facts of every kind, with every kind of content."""
    page = await export_bytes(await filled_journal())
    other = MemoryJournal()
    assert await import_session(other, io.BytesIO(page)) == SESSION
    assert await read_imported(other) == facts_of_every_kind()
    assert (await export_bytes(other)).startswith(page.rpartition(b"\n{")[0])


@pytest.mark.realtime
async def test_a_file_has_the_hashes_of_the_store(tmp_path: Path) -> None:
    """J7: what SQLite holds and what a file holds are proved by the same chain."""
    with SqliteJournal(tmp_path / "one.db") as one, SqliteJournal(tmp_path / "two.db") as two:
        await append_facts(one, SESSION, facts_of_every_kind())
        page = await export_bytes(one)
        await import_session(two, io.BytesIO(page))
        assert await read_imported(two) == facts_of_every_kind()
        assert await two.verify(SESSION) == []
        assert (await export_bytes(two)).startswith(page.rpartition(b"\n{")[0])
    last = chain_root(SESSION).hash
    for fact in facts_of_every_kind():
        last = chain_hash(last, encode_fact(fact).body)
    assert msgspec.json.decode(page.splitlines()[-1]) == {
        "hash": last.hex(),
        "end": len(facts_of_every_kind()),
    }


async def test_the_first_line_says_what_the_file_is() -> None:
    head = msgspec.json.decode((await export_bytes(await filled_journal())).splitlines()[0])
    assert (head["format"], head["version"], head["session"]) == ("windlass-session", 1, SESSION)
    assert "windlass" in head


async def test_an_attachment_is_in_the_file_once() -> None:
    """J10: stored once, by hash; also if it is empty."""
    parts = (ImagePart("image/png", b"\x00picture" * 1_000), ImagePart("image/png", b""))
    setup = next(fact.setup for fact in facts_of_every_kind() if isinstance(fact, RunStarted))
    facts: list[Fact] = [RunStarted(1, (*parts, *parts, TextPart("?")), setup, seq=1)]
    journal = await filled_journal(facts)
    page = await export_bytes(journal)
    assert page.count(b'"blob"') == 2
    other = MemoryJournal()
    await import_session(other, io.BytesIO(page))
    assert await read_imported(other) == facts


async def test_export_and_import_say_how_far_they_are() -> None:
    facts, out, into = facts_of_every_kind(), list[int](), list[int]()
    page = io.BytesIO()
    journal = await filled_journal(facts)
    assert await export_session(journal, SESSION, page.write, out.append) == len(facts)
    other = MemoryJournal()
    await import_session(other, page, progress=into.append)
    assert (out[-1], into) == (len(facts), [len(facts) + 1])
    assert await read_imported(other) == facts


@pytest.mark.contract("J7")
async def test_no_line_can_be_changed_moved_or_taken_out() -> None:
    page = await export_bytes(await filled_journal())
    lines = page.splitlines(keepends=True)
    for at, line in enumerate(lines):
        for wrong in (
            [*lines[:at], *lines[at + 1 :]],
            [*lines[:at], *lines[at + 1 : at + 2], line, *lines[at + 2 :]],
            lines[:at],
            [*lines[: at + 1], *lines[at:]],
            [*lines[:at], line[: len(line) // 2] + b"\n", *lines[at + 1 :]],
            [*lines[:at], line[: len(line) // 2] + b"!" + line[len(line) // 2 :]],
        ):
            # Attachments that come twice or early are the same attachments.
            if record_lines(wrong) == record_lines(lines) and set(wrong) == set(lines):
                continue
            changed = b"".join(wrong)
            other = MemoryJournal()
            with pytest.raises(JournalCorrupt, match=r"^line \d+: "):
                await import_session(other, io.BytesIO(changed))
            assert await other.sessions() == []


def record_lines(lines: Sequence[bytes]) -> list[bytes]:
    return [line for line in lines if b'"blob"' not in line]


async def test_a_broken_line_is_named_by_its_number() -> None:
    lines = (await export_bytes(await filled_journal(note_facts(1, 5)))).splitlines(keepends=True)
    lines[3] = lines[3].replace(b"note 3", b"note 4")
    with pytest.raises(JournalCorrupt, match="line 4: record 3 was changed, moved or removed"):
        await import_session(MemoryJournal(), io.BytesIO(b"".join(lines)))
    for page in (b"", b"{}\n", b"\xff\xfe", b'{"format":"x","version":1,"session":"s"}\n'):
        with pytest.raises(JournalCorrupt, match="line 1: "):
            await import_session(MemoryJournal(), io.BytesIO(page))


async def test_right_hashes_do_not_make_a_forged_record_true() -> None:
    """A record that is none, and one with another's number, each in a chain that holds."""
    first, last = encode_fact(note_facts(7, 7)[0]).body, b'{"v":1,"type":"Nothing","seq":1}'
    for body, told in ((first, "record 1 says that it is record 7"), (last, "cannot be read")):
        proof = chain_hash(chain_root("s").hash, body).hex().encode()
        head = b'{"format":"windlass-session","version":1,"session":"s"}\n'
        line = b'{"hash":"%b","record":%b}\n{"hash":"%b","end":1}\n' % (proof, body, proof)
        with pytest.raises(JournalCorrupt, match=f"line 2: .*{told}"):
            await import_session(MemoryJournal(), io.BytesIO(head + line))


async def test_a_file_of_a_newer_version_is_refused() -> None:
    """J11: never guessed at."""
    head = b'{"format":"windlass-session","version":2,"session":"s"}\n'
    with pytest.raises(JournalFailed, match="upgrade"):
        await import_session(MemoryJournal(), io.BytesIO(head))


async def test_a_session_that_is_there_is_never_written_over() -> None:
    journal = await filled_journal()
    page = await export_bytes(journal)
    with pytest.raises(ConfigError, match="exists already; choose another name"):
        await import_session(journal, io.BytesIO(page))
    assert await import_session(journal, io.BytesIO(page), into="copy") == "copy"
    assert await read_imported(journal, "copy") == facts_of_every_kind()
    with pytest.raises(ConfigError, match="there is no session 'none'"):
        await export_bytes(journal, "none")


class CountingJournal(MemoryJournal):
    """Counts the appends."""

    appends = 0

    @override
    def append(
        self, session: str, facts: Sequence[Fact], row: SessionSummary
    ) -> "asyncio.Future[None]":
        self.appends += 1
        return super().append(session, facts, row)


async def test_a_session_is_never_imported_in_part() -> None:
    """A part would be a session without the mark that makes its permissions void."""
    journal = CountingJournal()
    await import_session(journal, io.BytesIO(await export_bytes(await filled_journal())))
    assert journal.appends == 1


# ── fork ─────────────────────────────────────────────────────────────────────


@pytest.mark.contract("J8")
@pytest.mark.slow
def test_a_fork_can_begin_at_any_record_of_any_session() -> None:
    """It begins with the records of the old one, replays, and can be gone on with."""
    for seed in range(40):
        asyncio.run(fork_at_every_record(play_plan(draw_plan(seed)).facts))


async def fork_at_every_record(facts: Sequence[Fact]) -> None:
    journal = MemoryJournal()
    await append_facts(journal, "sim", facts)
    for at in range(1, len(facts) + 1):
        name = await fork(journal, "sim", at)
        told = await journal.read(name)
        assert (name, list(told[:at])) == (f"sim~{at}", facts[:at])
        assert replay(name, told).is_same
        step = fold(name, told).step
        calls = step.calls if step else ()
        begun = {one.call.name for one in calls if one.phase in ("started", "interrupted")}
        assert begun <= {"look", "peek"}
    assert list(await journal.read("sim")) == facts


async def test_a_fork_is_named_after_where_it_comes_from() -> None:
    journal = await filled_journal()
    assert await fork(journal, SESSION, 2) == "a session~2"
    assert await fork(journal, SESSION, 2) == "a session~2.2"
    assert await fork(journal, SESSION, 2) == "a session~2.3"
    assert await fork(journal, SESSION, 1, "mine") == "mine"
    with pytest.raises(ConfigError, match="session 'mine' exists already"):
        await fork(journal, SESSION, 1, "mine")
    last = len(facts_of_every_kind())
    for at in (0, -1, last + 1):
        with pytest.raises(ConfigError, match=f"has records 1 to {last}, but no record {at}"):
            await fork(journal, SESSION, at)
    with pytest.raises(ConfigError, match="there is no session 'none'"):
        await fork(journal, "none", 1)


class Ledger:
    """A service that does each thing once for each key, and can say what it did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __call__(self, cleared: ClearedCall, _context: CallContext) -> str:
        if cleared.spec.effect == "write" or cleared.key not in self.done:
            self.done.append(cleared.key)
        return "done"


class Asking(RecordingTools):
    """Whether a write was done, its service knows by the key."""

    def __init__(self, ledger: Ledger) -> None:
        effects: dict[str, Effect] = {"look": "read", "put": "idempotent", "send": "write"}
        super().__init__(dict.fromkeys(effects, ledger), effects=effects)
        self._ledger = ledger

    @override
    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        done = cleared.key in self._ledger.done
        return ToolResult.from_text("value", "done") if done else "not_done"


async def run_tool_once(tool: str, **settings: Any) -> tuple[MemoryJournal, Ledger]:
    """A session in which a tool was called once, and answered for."""
    ledger, journal = Ledger(), MemoryJournal()
    model = ScriptedModel([call(tool, {}), "Done."])
    agent = Agent(model, tools=Asking(ledger), journal=journal, **settings)
    assert (await agent.run("Go.", session="old")).text == "Done."
    return journal, ledger


async def find_call_start(journal: Journal) -> int:
    """The record at which the call had started and not ended."""
    facts = await journal.read("old")
    return next(fact.seq for fact in facts if isinstance(fact, CallStarted))


@pytest.mark.contract("J2")
@pytest.mark.contract("J8")
@pytest.mark.parametrize("tool", ["put", "send"])
async def test_what_had_begun_is_not_done_again_under_another_key(tool: str) -> None:
    """The tool's own `reconcile` would say that the fork's key is not done, and run it anew."""
    journal, ledger = await run_tool_once(tool)
    name = await fork(journal, "old", await find_call_start(journal))
    with ScriptedModel(["I cannot tell."]) as model:
        result = await Agent(model, tools=Asking(ledger), journal=journal).resume(name)
    assert (result.text, ledger.done) == ("I cannot tell.", ["old/c1_0"])
    facts = await journal.read(name)
    told = [fact.result.kind for fact in facts if isinstance(fact, CallFinished)]
    assert told == ["unknown"]
    assert replay(name, facts).is_same


@pytest.mark.contract("J8")
async def test_a_person_may_be_asked_whether_to_do_it_again() -> None:
    journal, ledger = await run_tool_once("send", rules=LoopPolicy(on_unknown="ask"))
    name = await fork(journal, "old", await find_call_start(journal))
    (question,) = open_questions(fold(name, await journal.read(name)))
    assert question.question == "send had started in session old. Run it again here?"
    with ScriptedModel(["Sent twice."]) as model:
        tools, rules = Asking(ledger), LoopPolicy(on_unknown="ask")
        agent = Agent(model, tools=tools, journal=journal, rules=rules)
        result = await agent.answer(name, question.call_id, Allow(), by="ann")
    assert (result.text, ledger.done) == ("Sent twice.", ["old/c1_0", f"{name}/c1_0"])
    assert replay(name, await journal.read(name)).is_same


@pytest.mark.contract("J8")
async def test_a_fork_goes_its_own_way() -> None:
    """From the end of a run with another prompt, or from the middle with another reply."""
    journal, ledger = await run_tool_once("look")
    facts = await journal.read("old")
    whole = await fork(journal, "old", len(facts))
    with ScriptedModel(["And more."]) as model:
        agent = Agent(model, tools=Asking(ledger), journal=journal)
        assert (await agent.run("More!", session=whole)).run == 2
    for at in range(1, len(facts)):
        name = await fork(journal, "old", at)
        script = [call("look", {}), "Otherwise."] if at <= 2 else ["Otherwise."]
        agent = Agent(ScriptedModel(script), tools=Asking(ledger), journal=journal)
        result = await agent.resume(name)
        assert result.text == ("Done." if at == len(facts) - 1 else "Otherwise.")
        assert replay(name, await journal.read(name)).is_same
    assert await journal.read("old") == facts
