"""Each caller of a service works in a folder of its own, with every tool that sees files."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service import RunningService, run_service
from windlass import Agent, FolderStore
from windlass.core.events import CallFinished, RunStarted
from windlass.core.messages import TextPart
from windlass.gates import ask
from windlass.journals.memory import MemoryJournal
from windlass.server.access import Caller
from windlass.server.run_controls import StartRequest
from windlass.testing import ScriptedModel, call, say
from windlass.tools import Sandbox, core_tools

SECRET = "the plans of ann"

# Real shells and sandboxes.
pytestmark = [pytest.mark.realtime, pytest.mark.slow]


def make_agent(project: Path, store: FolderStore, journal: Any, *script: Any) -> Agent[str]:
    python = getattr(sys, "_base_executable", sys.executable)
    # As on a machine whose folders are not in /tmp, which no command sees anyway.
    seen = (Path(python).parent.parent, project.parent)
    sandbox = Sandbox(require="bubblewrap", readable=seen)
    tools = core_tools(project, sandbox=sandbox, interpreter="tools")
    return Agent(
        ScriptedModel(list(script)), tools=tools, journal=journal, folders=store, name="clerk"
    )


async def finish_run(running: RunningService, caller: str) -> None:
    """Run a prompt on behalf of a caller until it ends, or waits for an answer."""
    who = Caller(caller, frozenset({"start"}) if caller else frozenset({"admin"}))
    handle = await running.service.start_run(who, StartRequest(prompt="Go.", session="work"))
    await handle.result()


async def results_of(journal: Any, session: str) -> list[str]:
    """The texts of the results of a session, in order."""
    found: list[str] = []
    for fact in await journal.read(session):
        if isinstance(fact, CallFinished):
            parts: Sequence[Any] = fact.result.content
            found.append("".join(part.text for part in parts if isinstance(part, TextPart)))
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "own.txt").write_text("the project itself")
    return folder


@pytest.mark.contract("A4")
async def test_a_caller_sees_nothing_of_what_the_run_of_another_wrote(
    project: Path, tmp_path: Path
) -> None:
    """A4: not by read, bash, glob, grep or python; nor does it see the agent's own folder."""
    store = FolderStore(tmp_path / "callers")
    journal = MemoryJournal()
    ann_folder = tmp_path / "callers" / store.create("ann").name
    looks = [
        call("read", {"path": "plans.txt"}),
        call("read", {"path": str(ann_folder / "plans.txt")}),
        call("glob", {"pattern": "**/*"}),
        call("grep", {"pattern": "plans"}),
        call("bash", {"command": f"cat plans.txt {ann_folder}/plans.txt {project}/own.txt"}),
        call("bash", {"command": f"ls -la {tmp_path}/callers; ls {project}"}),
        call("python", {"code": f"print(open({str(ann_folder / 'plans.txt')!r}).read())"}),
        call("python", {"code": "print(read(path='plans.txt'))"}),
    ]
    agent = make_agent(
        project,
        store,
        journal,
        call("write", {"path": "plans.txt", "content": SECRET}),
        call("bash", {"command": "cat plans.txt && cp plans.txt copy.txt && pwd"}),
        call("python", {"code": "print(open('plans.txt').read())"}),
        call("python", {"code": "print(read(path='plans.txt'))"}),
        say("Done."),
        *looks,
        say("Nothing."),
    )
    async with run_service(agent, journal=journal) as running:
        await finish_run(running, "ann")
        await finish_run(running, "bob")
    written = await results_of(journal, "ann.work")
    assert all(SECRET in text for text in written[1:]), written
    assert str(ann_folder) in written[1]
    seen = await results_of(journal, "bob.work")
    assert len(seen) >= len(looks)
    assert not any(SECRET in text or "the project itself" in text for text in seen), seen
    assert not any("copy.txt" in text or "own.txt\n" in text for text in seen), seen
    # The files are where the operator can find them, for their owner only.
    assert (ann_folder / "copy.txt").read_text() == SECRET
    assert ann_folder.stat().st_mode & 0o777 == 0o700
    assert ann_folder.parent.stat().st_mode & 0o777 == 0o700
    assert not (project / "plans.txt").exists()


@pytest.mark.contract("A4")
async def test_the_person_at_the_machine_works_in_the_folder_of_the_agent(
    project: Path, tmp_path: Path
) -> None:
    """A4: the local owner has no folder apart."""
    store = FolderStore(tmp_path / "callers")
    journal = MemoryJournal()
    agent = make_agent(project, store, journal, call("read", {"path": "own.txt"}), say("Done."))
    async with run_service(agent, journal=journal) as running:
        await finish_run(running, "")
    assert "the project itself" in (await results_of(journal, "work"))[0]
    assert not (tmp_path / "callers").exists()


@pytest.mark.contract("A4")
async def test_callers_share_the_folder_of_the_agent_only_if_they_are_told_to(
    project: Path, tmp_path: Path
) -> None:
    """A4: sharing is a choice of the operator."""
    store = FolderStore(tmp_path / "callers")
    journal = MemoryJournal()
    agent = make_agent(project, store, journal, call("read", {"path": "own.txt"}), say("Done."))
    async with run_service(agent, journal=journal, workspace="shared") as running:
        await finish_run(running, "bob")
    assert "the project itself" in (await results_of(journal, "bob.work"))[0]


@pytest.mark.contract("A4")
async def test_a_sub_agent_and_an_undo_work_in_the_folder_of_the_caller(
    project: Path, tmp_path: Path
) -> None:
    """A4: whatever a run starts inherits its folder."""
    store = FolderStore(tmp_path / "callers")
    journal = MemoryJournal()
    helper = Agent(
        ScriptedModel([call("write", {"path": "note.txt", "content": "by a helper"}), say("Ok.")]),
        tools=core_tools(project),
        name="helper",
    )
    agent: Agent[str] = Agent(
        ScriptedModel(
            [
                call("helper", {"task": "Write a note."}),
                call("read", {"path": "note.txt"}),
                call("write", {"path": "own.txt", "content": "a new file"}),
                say("Done."),
            ]
        ),
        tools=[*core_tools(project), helper.as_tool()],
        journal=journal,
        folders=store,
        name="clerk",
    )
    async with run_service(agent, journal=journal) as running:
        await finish_run(running, "ann")
        folder = tmp_path / "callers" / store.create("ann").name
        assert "by a helper" in (await results_of(journal, "ann.work"))[1]
        assert sorted(path.name for path in folder.glob("*.txt")) == ["note.txt", "own.txt"]
        await agent.undo("ann.work")
    assert not (folder / "own.txt").exists()
    assert (project / "own.txt").read_text() == "the project itself"
    assert not (project / "note.txt").exists()
    starts = [f for f in await journal.read("ann.work") if isinstance(f, RunStarted)]
    assert [start.folder for start in starts] == [store.create("ann")] * 2


@pytest.mark.contract("A4")
async def test_a_question_shows_the_file_of_the_caller_and_not_of_the_agent(
    project: Path, tmp_path: Path
) -> None:
    """A4: what a call would change is looked up in the caller's folder."""
    store = FolderStore(tmp_path / "callers")
    folder = tmp_path / "callers" / store.create("bob").name
    (folder / "own.txt").write_text("a file of bob")
    journal = MemoryJournal()
    agent: Agent[str] = Agent(
        ScriptedModel([call("write", {"path": "own.txt", "content": "new"}), say("Done.")]),
        tools=core_tools(project),
        gate=ask(),
        journal=journal,
        folders=store,
    )
    async with run_service(agent, journal=journal) as running:
        bob = await running.make_client("bob")
        await finish_run(running, "bob")
        asked = (await bob.get("/questions")).data["questions"]
    assert "a file of bob" in str(asked)
    assert "the project itself" not in str(asked)
