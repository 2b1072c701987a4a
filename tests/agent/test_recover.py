"""What a killed runtime left running is ended by the next one, and that is on record."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windlass import Agent
from windlass.core.events import RunResumed
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel
from windlass.tools.core_toolset import core_tools
from windlass.tools.shell.sandbox import Sandbox

DYING = """
import asyncio, sys
from pathlib import Path
from windlass import Agent
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, call
from windlass.tools.core_toolset import core_tools
from windlass.tools.shell.sandbox import Sandbox

folder = Path(sys.argv[1])
command = "echo started > marker; sleep 600"
model = ScriptedModel([call("bash", {"command": command})])
tools = core_tools(folder, sandbox=Sandbox(require="process"))
agent = Agent(model, tools=tools, journal=SqliteJournal(folder / "s.db"))
asyncio.run(agent.run("Go.", session="s"))
"""


def sleepers(folder: Path) -> list[int]:
    """The processes that still work in the folder."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (entry / "cwd").readlink() == folder and b"sleep" in (
                    entry / "cmdline"
                ).read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.realtime
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
@pytest.mark.slow
async def test_a_shell_that_outlived_its_runtime_is_ended_and_the_run_finishes(
    tmp_path: Path,
) -> None:
    """T14, J2: nothing survives a SIGKILL for long, and the model is told what is not known."""
    command = [sys.executable, "-c", DYING, str(tmp_path)]
    runtime = subprocess.Popen(command)  # noqa: ASYNC220 - nothing else runs here
    while not (tmp_path / "marker").exists():
        assert runtime.poll() is None
        time.sleep(0.02)  # noqa: ASYNC251 - another process is at work, and nothing else here
    os.kill(runtime.pid, signal.SIGKILL)
    runtime.wait()
    tools = core_tools(tmp_path, sandbox=Sandbox(require="process"))
    with SqliteJournal(tmp_path / "s.db") as journal, ScriptedModel(["I see."]) as model:
        result = await Agent(model, tools=tools, journal=journal).resume("s")
        facts = await journal.read("s")
    assert result.text == "I see."
    assert any(isinstance(fact, RunResumed) for fact in facts)
    assert sleepers(tmp_path) == []
