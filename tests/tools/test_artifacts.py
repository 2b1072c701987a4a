"""Long results that are kept with the session, and read on by another process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from windlass import Agent
from windlass.core.messages import ToolResult
from windlass.journals.codec import blob_name
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.ports import BlobStore
from windlass.testing import ScriptedModel, call, say
from windlass.testing.journals import append_facts
from windlass.testing.samples import facts_of_every_kind, note_facts
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.artifacts import MemoryArtifacts
from windlass.tools.toolbox import Toolbox

WHOLE = "".join(f"line {at} ø\n" for at in range(10_000))


def report() -> str:
    return WHOLE


async def use(
    box: Toolbox, name: str, blobs: BlobStore | None, session: str = "s", **arguments: object
) -> ToolResult:
    spec = next(spec for spec in box.specs if spec.name == name)
    context = replace(call_context(session=session), blobs=blobs)
    return await box.run(cleared_call(spec, arguments), context)


def name_in(clipped: str) -> str:
    return clipped.partition('read_artifact(id="')[2].partition('"')[0]


async def read_all(box: Toolbox, blobs: BlobStore | None, name: str) -> str:
    read, offset = "", 0
    while True:
        page = (await use(box, "read_artifact", blobs, id=name, offset=offset)).text
        text, _, told = page.rpartition("\n[characters ")
        read += text
        if "this is the end" in told:
            return read
        offset = int(told.partition("offset=")[2].rstrip("]"))


@pytest.mark.realtime
async def test_a_long_result_outlives_its_toolbox_and_its_journal(tmp_path: Path) -> None:
    """T10, J10: clipped by one agent, read by another on the journal that was opened anew."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        name = name_in((await use(Toolbox([report]), "report", journal)).text)
        assert len(name) == 16
    with SqliteJournal(path) as journal:
        await append_facts(journal, "other", note_facts(1, 1))
        box = Toolbox([report])
        assert await read_all(box, journal, name) == WHOLE
        elsewhere = await use(box, "read_artifact", journal, session="other", id=name)
        assert elsewhere.kind == "error"
        await journal.delete("s")
        gone = await use(box, "read_artifact", journal, id=name)
        assert "no artifact" in gone.text


@pytest.mark.realtime
async def test_an_agent_reads_what_another_was_shown_in_part(tmp_path: Path) -> None:
    """T10: the loop hands the journal to the tools."""
    path, name = tmp_path / "journal.db", blob_name(WHOLE.encode())[:16]
    with SqliteJournal(path) as journal:
        first = ScriptedModel([[call("report")], [say("Long.")]])
        await Agent(first, tools=[report], journal=journal).run("Go.", session="s")
    with SqliteJournal(path) as journal:
        asked = {"id": name, "offset": 20_000, "limit": 1_000}
        second = ScriptedModel([[call("read_artifact", asked)], [say("Read.")]])
        result = await Agent(second, tools=[report], journal=journal).run("On.", session="s")
        assert "line 1800 ø" in str(to_builtins(result.messages))


@pytest.mark.slow
def test_another_process_reads_on(tmp_path: Path) -> None:
    """T10."""
    program = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_artifacts as here
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, call, say
from windlass.testing.journals import start_append
from windlass.testing.samples import note_facts
from windlass.tools.toolbox import Toolbox
async def main():
    with SqliteJournal(sys.argv[2]) as journal:
        box = Toolbox([here.report])
        if len(sys.argv) == 3:
            await start_append(journal, "s", note_facts(1, 1))
            print(here.name_in((await here.use(box, "report", journal)).text))
        else:
            print(await here.read_all(box, journal, sys.argv[3]) == here.WHOLE)
asyncio.run(main())
"""
    command = [sys.executable, "-c", program, str(Path(__file__).parent), str(tmp_path / "j.db")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def said(*more: str) -> str:
        return subprocess.run(
            [*command, *more], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert said(said()) == "True"


async def test_a_journal_in_memory_keeps_them_too() -> None:
    journal = MemoryJournal()
    await append_facts(journal, "s", note_facts(1, 1))
    name = name_in((await use(Toolbox([report]), "report", journal)).text)
    assert await read_all(Toolbox([report]), journal, name) == WHOLE


async def test_without_a_journal_that_keeps_things_they_stay_with_the_toolbox() -> None:
    box = Toolbox([report])
    name = name_in((await use(box, "report", None)).text)
    assert await read_all(box, None, name) == WHOLE
    assert (await use(Toolbox([report]), "read_artifact", None, id=name)).kind == "error"


async def test_a_store_that_the_developer_chose_is_used() -> None:
    journal, store = MemoryJournal(), MemoryArtifacts()
    await append_facts(journal, "s", note_facts(1, 1))
    box = Toolbox([report], artifacts=store)
    name = name_in((await use(box, "report", journal)).text)
    assert await store.read_text("s", name) == WHOLE
    assert await journal.get_blob("s", name) is None


async def test_a_journal_that_cannot_keep_it_costs_only_the_rest() -> None:
    """T10: there is no such session, so nothing is kept; the result is a result all the same."""
    result = await use(Toolbox([report]), "report", MemoryJournal())
    assert result.kind == "value"
    assert "left out …]" in result.text


@pytest.mark.realtime
async def test_a_picture_of_the_session_is_no_artifact(tmp_path: Path) -> None:
    """Whatever the model guesses, it reads long results and nothing else."""
    with SqliteJournal(tmp_path / "journal.db") as journal:
        await append_facts(journal, "s", facts_of_every_kind())
        name = await journal.put_blob("s", b"\x89PNG\xff")
        told = await use(Toolbox([report]), "read_artifact", journal, id=name)
        assert told.kind == "error"
