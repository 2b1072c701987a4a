"""Retention acts by itself: what is due is deleted, by agent and by state, and nothing else."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windlass import Agent
from windlass.cli import main
from windlass.core.retention import Retention, RetentionRules
from windlass.journals import MemoryJournal, SqliteJournal
from windlass.project.settings import InvalidSetting, parse_retention, show_retention
from windlass.server import Service
from windlass.server.retention import RETENTION_S, list_due, prune_due
from windlass.testing import ScriptedModel
from windlass.testing.catalog import run_facts
from windlass.testing.journals import append_facts

pytestmark = [pytest.mark.contract("A9"), pytest.mark.contract("D9")]
DAY_S = 86_400.0
RULES = RetentionRules(
    Retention(30 * DAY_S, {"failed": 90 * DAY_S}),
    {"clerk": Retention(DAY_S), "archive": Retention(None)},
)
KEPT = ["archive-400", "clerk-open-5", "helper-20", "helper-new"]


async def fill(journal: Any) -> None:
    """Add sessions of three agents, each as many days old as its name says."""
    now = time.time()
    for name in ("helper-20", "helper-40", "clerk-5", "clerk-open-5", "archive-400"):
        agent, _, rest = name.partition("-")
        at = now - float(rest.rpartition("-")[2]) * DAY_S
        facts = run_facts(agent=agent, at=at, ended="open" not in name)
        await append_facts(journal, name, facts)
    await append_facts(journal, "helper-new", run_facts(agent="helper", at=now))
    below = run_facts(agent="helper", at=now - 40 * DAY_S, parent="helper-40/c1_0")
    await append_facts(journal, "helper-40/c1_0", below)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_is_due_is_deleted_and_a_dry_run_says_so(kind: str, tmp_path: Path) -> None:
    """D9: by agent, with sub-sessions, and never what is open."""
    journal: Any = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "j.db")
    await fill(journal)
    due = [session.session async for session in list_due(journal, RULES)]
    assert sorted(due) == ["clerk-5", "helper-40"]
    assert await prune_due(journal, RULES) == 3
    assert sorted(each.session for each in await journal.sessions()) == KEPT
    assert await prune_due(journal, RULES) == 0
    assert await prune_due(journal, RetentionRules()) == 0
    journal.close()


async def test_a_session_that_ended_in_another_state_has_a_time_of_its_own() -> None:
    journal = MemoryJournal()
    await fill(journal)
    (failed, *_) = [each for each in await journal.sessions() if each.session == "helper-40"]
    rules = RetentionRules(Retention(30 * DAY_S, {failed.state: 60 * DAY_S}))
    assert [one.session async for one in list_due(journal, rules)] == ["archive-400"]


async def test_a_service_deletes_what_is_due_by_itself() -> None:
    """A9: without anyone who asks for it, and again later."""
    journal = MemoryJournal()
    await fill(journal)
    agent = Agent(ScriptedModel([]), name="helper")
    async with Service(agent, journal=journal, retention=RULES):
        await asyncio.sleep(1)
        assert sorted(each.session for each in await journal.sessions()) == KEPT
        old = run_facts(agent="clerk", at=time.time() - 9 * DAY_S)
        await append_facts(journal, "clerk-late", old)
        await asyncio.sleep(RETENTION_S + 1)
        assert sorted(each.session for each in await journal.sessions()) == KEPT


def test_a_command_lists_what_would_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j.db"

    async def prepare() -> None:
        with SqliteJournal(path) as journal:
            await fill(journal)

    asyncio.run(prepare())
    monkeypatch.setenv("WINDLASS_RETENTION", "30d")
    command = ["sessions", "prune", "--journal", str(path)]
    shown = CliRunner().invoke(main, [*command, "--dry-run"])
    assert "helper-40" in shown.output
    assert "2 sessions would be deleted" in shown.output
    done = CliRunner().invoke(main, [*command, "--yes"])
    assert "3 sessions deleted" in done.output


def test_a_retention_is_written_as_it_is_read() -> None:
    for text in ("30d", "30d failed=13w cancelled=1d", "none failed=12h"):
        assert show_retention(parse_retention(text)) == text
    for wrong in ("", "soon", "30d open=1d", "30d failed"):
        with pytest.raises(InvalidSetting):
            parse_retention(wrong)
