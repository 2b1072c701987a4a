"""A session keeps its folder, and only a process that has the folder goes on with it."""

import asyncio
import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import windlass
from windlass import Agent, FolderStore, RunContext, WorkspaceMissing, tool
from windlass.agent.folder_watch import RECORD_KIND
from windlass.agent.work_items import WorkItem
from windlass.agent.working import SessionWorker, WorkLimits
from windlass.core.events import RunPaused, RunResumed, RunStarted
from windlass.core.fold.run import fold
from windlass.core.setup import WorkFolder, name_folder
from windlass.gates import parse_policy
from windlass.gates.settings_files import guard_settings_files
from windlass.journals.archive import export_session, import_session
from windlass.journals.memory import MemoryJournal
from windlass.ports import GateRequest
from windlass.testing import ScriptedModel, VirtualClock, call, say

WAIT_S = 60.0


@tool(effect="read")
async def where(context: RunContext) -> str:
    """Say where the run works."""
    await asyncio.sleep(1)
    return str(context.folder)


def make_agent(
    journal: Any, store: FolderStore, *script: Any, clock: VirtualClock | None = None
) -> Agent[str]:
    model = ScriptedModel(list(script))
    options: dict[str, Any] = {"journal": journal, "folders": store, "clock": clock}
    return Agent(model, tools=[where], name="clerk", **options)


async def leave_open(journal: Any, store: FolderStore, session: str = "a") -> None:
    """Begin a run in a folder of the caller's own, and let its process die."""
    agent = make_agent(journal, store, call("where"))
    await agent.start("Go.", session=session, caller="ann", own_folder=True)
    await asyncio.sleep(0.5)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)


def make_worker(agent: Agent[str]) -> SessionWorker:
    return SessionWorker([agent], WorkLimits(workspace_wait_s=WAIT_S, sweep_s=0.5))


async def work_for(seconds: float, *workers: SessionWorker) -> None:
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.contract("A4")
async def test_a_session_keeps_the_folder_that_its_first_run_recorded(tmp_path: Path) -> None:
    """A4: later runs work there too, whatever they ask for; other callers have other folders."""
    journal = MemoryJournal()
    store = FolderStore(tmp_path)
    agent = make_agent(journal, store, call("where"), say("1"), call("where"), say("2"), say("3"))
    await agent.run("Go.", session="a", caller="ann", own_folder=True)
    result = await agent.run("Go on.", session="a", caller="ann")
    await agent.run("Go.", session="b", caller="bob", own_folder=True)
    folder = tmp_path / name_folder("ann")
    shown = [str(message) for message in result.messages]
    assert sum(str(folder) in text for text in shown) == 2
    assert set(os.listdir(tmp_path)) == {  # noqa: PTH208 - only the names
        ".windlass-store",
        name_folder("ann"),
        name_folder("bob"),
    }
    assert name_folder("ann") != name_folder("Ann")


@pytest.mark.contract("F3")
async def test_a_worker_without_the_folder_leaves_the_run_to_one_that_has_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """F3: the run ends where its folder is, and nothing of it began elsewhere."""
    journal = MemoryJournal()
    home, away = FolderStore(tmp_path / "home"), FolderStore(tmp_path / "away")
    await leave_open(journal, home)
    away.create("ann")
    stranger = make_worker(make_agent(journal, away, say("Wrong."), clock=clock))
    await work_for(WAIT_S / 2, stranger)
    assert not any(isinstance(fact, RunResumed) for fact in await journal.read("a"))
    owner = make_worker(make_agent(journal, home, say("Done."), clock=clock))
    await work_for(10, stranger, owner)
    state = fold("a", await journal.read("a"))
    assert state.run is not None
    assert (state.run.outcome, state.run.text) == ("completed", "Done.")


@pytest.mark.contract("F3")
async def test_a_run_whose_folder_no_worker_has_is_paused_with_the_reason(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """F3: after `workspace_wait_s`, and never before; a resume waits again."""
    journal = MemoryJournal()
    await leave_open(journal, FolderStore(tmp_path / "home"))
    stranger = make_worker(
        make_agent(journal, FolderStore(tmp_path / "away"), say("Wrong."), clock=clock)
    )
    await work_for(WAIT_S - 6, stranger)
    assert not fold("a", await journal.read("a")).is_paused
    await work_for(20, stranger)
    facts = await journal.read("a")
    pauses = [fact for fact in facts if isinstance(fact, RunPaused)]
    assert [name_folder("ann") in pause.reason for pause in pauses] == [True]
    assert fold("a", facts).is_paused
    await windlass.resume(journal, "a")
    await work_for(WAIT_S - 6, stranger)
    assert len([f for f in await journal.read("a") if isinstance(f, RunPaused)]) == 1
    assert not (tmp_path / "away").exists()


@pytest.mark.contract("F3")
async def test_a_run_waits_as_long_as_a_worker_with_its_folder_is_alive(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """F3: that worker may be full; it changes a record which the others look at."""
    journal = MemoryJournal()
    home = FolderStore(tmp_path / "home")
    await leave_open(journal, home)
    full = SessionWorker(
        [make_agent(journal, home, say("Done."), clock=clock)],
        WorkLimits(runs=1, workspace_wait_s=WAIT_S),
    )
    busy = asyncio.create_task(asyncio.sleep(3_600))
    full.begin(WorkItem("other", "clerk", ""), wait_for(busy))
    stranger = make_worker(
        make_agent(journal, FolderStore(tmp_path / "away"), say("Wrong."), clock=clock)
    )
    await work_for(5 * WAIT_S, stranger, full)
    busy.cancel()
    assert not fold("a", await journal.read("a")).is_paused
    assert await journal.get_record(RECORD_KIND, home.read_id()) is not None
    # Once it is gone, nobody has the folder.
    await work_for(3 * WAIT_S, stranger)
    assert fold("a", await journal.read("a")).is_paused


async def wait_for(task: "asyncio.Task[None]") -> None:
    await asyncio.wait({task})


@pytest.mark.contract("F3")
async def test_a_prompt_for_a_lost_folder_becomes_a_run_that_is_paused(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """F3: it never begins in an empty folder, and its caller can see why."""
    journal = MemoryJournal()
    home, away = FolderStore(tmp_path / "home"), FolderStore(tmp_path / "away")
    agent = make_agent(journal, home, say("1"))
    await agent.run("Go.", session="a", caller="ann", own_folder=True)
    elsewhere = make_agent(journal, away, say("Wrong."), clock=clock)
    with pytest.raises(WorkspaceMissing, match=name_folder("ann")):
        await elsewhere.run("Go on.", session="a", caller="ann")
    # A service does not refuse it: another process may have the folder.
    await elsewhere.start("Go on.", session="a", caller="ann", on_busy="queue", own_folder=True)
    await work_for(2 * WAIT_S, make_worker(elsewhere))
    state = fold("a", await journal.read("a"))
    assert state.run is not None
    assert (state.run.number, state.is_paused) == (2, True)
    assert state.run.pause is not None
    assert "no worker has had its folder" in state.run.pause.reason
    await make_agent(journal, home, say("2")).resume("a")
    state = fold("a", await journal.read("a"))
    assert state.run is not None
    assert state.run.text == "2"


async def test_a_folder_that_was_deleted_is_missed_also_in_its_own_store(
    tmp_path: Path, clock: VirtualClock
) -> None:
    journal = MemoryJournal()
    store = FolderStore(tmp_path)
    await leave_open(journal, store)
    shutil.rmtree(tmp_path / name_folder("ann"))
    await work_for(2 * WAIT_S, make_worker(make_agent(journal, store, say("Wrong."), clock=clock)))
    assert fold("a", await journal.read("a")).is_paused
    assert not (tmp_path / name_folder("ann")).exists()


async def test_a_store_is_known_by_the_id_inside_it(tmp_path: Path) -> None:
    """A mount can be anywhere; an empty disk at the same place is another store."""
    first = FolderStore(tmp_path / "mount")
    folder = first.create("ann")
    moved = (tmp_path / "mount").rename(tmp_path / "elsewhere")
    assert FolderStore(moved).find(folder) == moved / folder.name
    fresh = FolderStore(tmp_path / "mount")
    assert fresh.find(folder) is None
    assert fresh.create("ann") != folder
    assert fresh.find(folder) is None


@pytest.mark.parametrize("name", ["..", "../ann", "/etc", ".windlass-store", ""])
def test_a_recorded_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    store = FolderStore(tmp_path / "store")
    store.create("ann")
    assert store.find(WorkFolder(store.read_id(), name)) is None


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    folder = store.create("ann")
    (tmp_path / "store" / folder.name).rmdir()
    (tmp_path / "store" / folder.name).symlink_to(tmp_path)
    assert store.find(folder) is None
    with pytest.raises(windlass.ConfigError, match="not a folder"):
        store.create("ann")


def test_folders_are_for_their_owner_only_whatever_the_umask(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        store = FolderStore(tmp_path / "store")
        path = store.find(store.create("ann"))
    finally:
        os.umask(before)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o700
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert (path.parent / ".windlass-store").stat().st_mode & 0o777 == 0o600


async def test_a_file_cannot_say_which_folder_an_imported_session_works_in(
    tmp_path: Path,
) -> None:
    journal, other = MemoryJournal(), MemoryJournal()
    store = FolderStore(tmp_path)
    agent = make_agent(journal, store, say("1"))
    await agent.run("Go.", session="a", caller="ann", own_folder=True)
    file = io.BytesIO()
    await export_session(journal, "a", file.write)
    file.seek(0)
    await import_session(other, file, "a")
    state = fold("a", await other.read("a"))
    assert (state.folder, state.has_folder) == (None, False)
    await make_agent(other, store, say("2")).run("Go.", session="a", caller="bob", own_folder=True)
    starts = [fact for fact in await other.read("a") if isinstance(fact, RunStarted)]
    assert starts[-1].folder == WorkFolder(store.read_id(), name_folder("bob"))


async def test_rules_begin_in_the_folder_of_the_run() -> None:
    gate = parse_policy('allow = ["where"]\ndeny = ["where(secret/**)"]', root="/srv/agent")
    request = GateRequest("s", "c", where.spec, {"path": "/srv/ann/secret/x"})
    inside = replace(request, folder="/srv/ann")
    assert type(await gate.judge(inside)).__name__ == "Deny"
    guard = guard_settings_files(Path("/srv/agent"), ["/srv/ann/rules.txt"])
    spec = replace(where.spec, name="write")
    written = replace(request, tool=spec, arguments={"path": "rules.txt"})
    assert type(await guard.judge(written)).__name__ == "Allow"
    assert type(await guard.judge(replace(written, folder="/srv/ann"))).__name__ == "Ask"
