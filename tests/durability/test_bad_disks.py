"""A run on a disk that fails: it stops before the effect, says why, and can go on later."""

import asyncio
import shutil
from pathlib import Path

import pytest

from disk import FaultyDisk
from windlass import Agent, FailedByJournal, JournalCorrupt, JournalFailed, tool
from windlass.core.events import CallStarted, Event, Fact, StepProposed
from windlass.core.result import RunFailed
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import PowerCutJournal, ScriptedModel, ScriptedReply, call

TROUBLES = ["full", "read_only", "broken_sync"]
KINDS = ["RunStarted", "AttemptStarted", "StepProposed", "CallStarted"]
SCRIPT: list[ScriptedReply] = [call("send"), "Done."]


class Post:
    """A tool with an effect that is counted."""

    def __init__(self) -> None:
        self.sent = 0
        self.tool = tool(self.send, effect="write")

    async def send(self) -> str:
        """Send the report."""
        self.sent += 1
        return "sent"


def agent_of(
    journal: SqliteJournal | PowerCutJournal, post: Post, script: list[ScriptedReply]
) -> Agent[str]:
    return Agent(ScriptedModel(script), tools=[post.tool], journal=journal)


@pytest.mark.realtime
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_stops_where_its_disk_does(tmp_path: Path, trouble: str, kind: str) -> None:
    """J1: whatever comes after the last record that was kept did not happen; the rest is there."""
    post, seen = Post(), list[Fact]()
    with FaultyDisk() as disk:
        with SqliteJournal(tmp_path / "s.db") as journal:

            def watch(event: Event) -> None:
                if isinstance(event, Fact):
                    seen.append(event)
                    if type(event).__name__ == kind:
                        setattr(disk, trouble, True)

            with pytest.raises(FailedByJournal) as failed:
                await agent_of(journal, post, SCRIPT).run("Go.", session="s", on_event=watch)
            assert not failed.value.result.recorded
            assert str(tmp_path) in str(failed.value)
            setattr(disk, trouble, False)
        with SqliteJournal(tmp_path / "s.db") as journal:
            kept = list(await journal.read("s"))
            assert kept == seen[: len(kept)]
            assert type(kept[-1]).__name__ == kind
            started = any(isinstance(fact, CallStarted) for fact in kept)
            assert post.sent == (1 if started else 0)
            proposed = any(isinstance(fact, StepProposed) for fact in kept)
            rest = SCRIPT[1:] if proposed else SCRIPT
            result = await agent_of(journal, post, rest).resume("s")
    assert (result.text, post.sent) == ("Done.", 1)


CUT = 6
"""The append after which the process died: the reply with the second call."""


async def left_open(folder: Path) -> Path:
    """A file in which a run was about to send, and did not begin to."""
    path = folder / "s.db"

    @tool(effect="read")
    async def look() -> str:
        """Look at a long text."""
        return "text " * 200

    with SqliteJournal(path) as journal:
        cut = PowerCutJournal(journal, CUT, "after")
        model = ScriptedModel([call("look"), call("send")])
        with pytest.raises(RunFailed):
            await Agent(model, tools=[look, Post().tool], journal=cut).run("Go.", session="s")
        assert type((await journal.read("s"))[-1]).__name__ == "StepProposed"
    return path


@pytest.mark.realtime
async def test_a_damaged_file_runs_nothing(tmp_path: Path) -> None:
    """J10, J7: each page in turn is overwritten: an error, or a file that reads as it did."""
    path = await left_open(tmp_path)
    with SqliteJournal(path) as journal:
        before = list(await journal.read("s"))
    whole, page = path.read_bytes(), 4096
    refused = 0
    for at in range(0, len(whole), page):
        other = tmp_path / f"{at}.db"
        other.write_bytes(whole[: at + 100] + b"\xff" * (page - 200) + whole[at + page - 100 :])
        refused += await _refused(other, before)
    assert refused >= 2


@pytest.mark.realtime
async def test_a_file_that_was_cut_runs_nothing(tmp_path: Path) -> None:
    """J10: a file without its end is an error, never a shorter session."""
    path = await left_open(tmp_path)
    with SqliteJournal(path) as journal:
        before = list(await journal.read("s"))
    whole, refused = path.read_bytes(), 0
    for kept in range(4096, len(whole), 4096):
        other = tmp_path / f"{kept}.db"
        other.write_bytes(whole[:kept])
        refused += await _refused(other, before)
    assert refused == len(range(4096, len(whole), 4096))


async def _refused(path: Path, before: list[Fact]) -> bool:
    """Whether a resume raised; if not, the session is as it was. In neither case a new letter."""
    post = Post()
    try:
        with SqliteJournal(path) as journal:
            facts = list(await journal.read("s"))
            assert facts == before
            return False
    except (JournalCorrupt, JournalFailed):
        pass
    try:
        with SqliteJournal(path) as journal:
            await agent_of(journal, post, []).resume("s")
    except (JournalCorrupt, JournalFailed, RunFailed):
        assert post.sent == 0
        return True
    raise AssertionError("a file that cannot be read was gone on with")


@pytest.mark.realtime
async def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    """J1, J10: a copy on a disk that is mounted for reading is told as that."""
    path = await left_open(tmp_path)
    copy, post = tmp_path / "copy.db", Post()
    await asyncio.to_thread(shutil.copy, path, copy)
    with FaultyDisk() as disk:
        disk.read_only = True
        with pytest.raises((JournalFailed, RunFailed)), SqliteJournal(copy) as journal:
            await agent_of(journal, post, ["Done."]).resume("s", consent=True)
    assert post.sent == 0
