"""Virtual time does not pass while the thread of a journal writes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windlass import Agent, Limits, tool
from windlass.journals import SqliteJournal
from windlass.journals.sqlite.writer import SqliteWriter
from windlass.testing import ScriptedModel, VirtualClock, call

WRITE_S = 0.002
RUNS = 40


@tool(effect="read")
def look(place: str) -> str:
    """Say what is at a place."""
    return place


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each write take a moment of real time, as on a busy machine."""
    write: Callable[..., Any] = SqliteWriter._write_group

    def write_slowly(*arguments: object) -> object:
        time.sleep(WRITE_S)
        return write(*arguments)

    monkeypatch.setattr(SqliteWriter, "_write_group", write_slowly)


@pytest.mark.usefixtures("slow_disk")
async def test_a_limit_of_time_is_not_reached_by_writing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """U6: a test with limits and a file takes the same course every time."""
    journal = SqliteJournal(tmp_path / "sessions.db")
    outcomes: list[str] = []
    for _ in range(RUNS):
        model = ScriptedModel([call("look", {"place": "a"}), call("look", {"place": "b"}), "Done."])
        limits = Limits(seconds=300)
        agent = Agent(model, tools=[look], journal=journal, limits=limits, clock=clock)
        outcomes.append((await agent.run("Look.")).outcome)
        await agent.aclose()
    await journal.aclose()
    assert outcomes == ["completed"] * RUNS
    assert clock.elapsed_s == 0
