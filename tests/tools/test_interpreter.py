"""The tool `python`: state between calls, limits, pictures, and an end with its run."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shells import require_tier
from windlass import Agent
from windlass.core.messages import ImagePart, TextPart, ToolResult, ToolResults
from windlass.journals.memory import MemoryJournal
from windlass.ports import CallContext
from windlass.testing import ScriptedModel, call
from windlass.testing.tools import call_context, cleared_call
from windlass.tools import PythonLimits, Sandbox, Tool, Toolbox, python_tool

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
PYTHON = getattr(sys, "_base_executable", sys.executable)
NEW = "[a new interpreter: nothing from earlier calls is defined in it]"


# The tier that the shell has by default, with our Python visible in it.
DEFAULT = Sandbox(readable=(Path(PYTHON).parent.parent,))


def make_tool(root: Path, sandbox: Sandbox = DEFAULT, **limits: Any) -> Tool[..., Any]:
    return python_tool(
        root,
        sandbox=sandbox,
        limits=PythonLimits(**limits),
        program=PYTHON,
    )


async def use(box: Toolbox, code: str, context: CallContext, **more: object) -> ToolResult:
    arguments = {"code": code, **more}
    return await box.run(cleared_call(box.specs[0], arguments), context)


async def end(driving: list[bool], root: Path) -> None:
    """Let the run end, and wait until the interpreter is gone."""
    driving[:] = [False]
    async with asyncio.timeout(20):
        while any((root / ".windlass" / "python").iterdir()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def make_context(driving: list[bool]) -> CallContext:
    async def still_driving() -> bool:
        return driving[0]

    return replace(call_context(), still_driving=still_driving)


async def test_state_stays_and_values_errors_and_pictures_come_back(tmp_path: Path) -> None:
    """T14: what a call defined is there in the next one, also after an error in between."""
    driving = [True]
    context = make_context(driving)
    box = Toolbox([make_tool(tmp_path)])
    first = await use(box, "x = 20\ndef double(n):\n    return 2 * n\nprint('set')", context)
    assert first.text == f"set\n{NEW}"
    assert (await use(box, "double(x) + 2", context)).text == "42"
    failed = await use(box, "1 / 0", context)
    assert failed.kind == "error"
    assert failed.text.rstrip().endswith("ZeroDivisionError: division by zero")
    assert (await use(box, "raise SystemExit(3)", context)).kind == "error"
    assert (await use(box, "x", context)).text == "20"
    assert (await use(box, "pass", context)).text == "(no output)"
    plots = (
        "import sys, types\n"
        "class Figure:\n"
        "    def savefig(self, file, format): file.write(b'\\x89PNG plot')\n"
        "plots = types.ModuleType('matplotlib.pyplot')\n"
        "plots.get_fignums = lambda: [1]\n"
        "plots.figure = lambda number: Figure()\n"
        "plots.close = lambda which: None\n"
        "sys.modules['matplotlib.pyplot'] = plots\n"
    )
    shown = await use(box, plots, context)
    assert shown.content == (TextPart("(no output)"), ImagePart("image/png", b"\x89PNG plot"))
    await end(driving, tmp_path)


@pytest.mark.contract("T5")
async def test_code_that_takes_too_long_is_killed_and_the_model_is_told_what_was_lost(
    tmp_path: Path,
) -> None:
    driving = [True]
    context = make_context(driving)
    box = Toolbox([make_tool(tmp_path)])
    await use(box, "x = 1", context)
    slow = await use(box, "while True: pass", context, timeout_s=0.5)
    assert slow.kind == "timed_out"
    assert "All that it had defined is lost" in slow.text
    again = await use(box, "'x' in globals()", context)
    assert again.text == f"False\n{NEW}"
    died = await use(box, "import os; os._exit(7)", context)
    assert died.kind == "error"
    assert "The interpreter died: exit code 7." in died.text
    await end(driving, tmp_path)


@pytest.mark.contract("T14")
async def test_memory_is_bounded(tmp_path: Path) -> None:
    driving = [True]
    context = make_context(driving)
    box = Toolbox([make_tool(tmp_path, memory_bytes=400 * 2**20)])
    result = await use(box, "x = bytearray(10**9)", context)
    assert result.kind == "error"
    assert "MemoryError" in result.text
    await end(driving, tmp_path)


@pytest.mark.contract("T14", "C4")
async def test_it_ends_with_its_run_and_runs_do_not_share_it(tmp_path: Path) -> None:
    pid = "import os; os.getpid()"
    script = [call("python", {"code": pid}), call("python", {"code": pid}), "Done."]
    # With a process space of its own, it would not know its number out here.
    tools = [make_tool(tmp_path, Sandbox(require="process"))]
    pids: list[list[str]] = []
    agent = Agent(ScriptedModel([*script, *script]), tools=tools, journal=MemoryJournal())
    for _ in range(2):
        result = await agent.run("Go.", session="s")
        items = [m.items[0].result for m in result.new_messages() if isinstance(m, ToolResults)]
        pids.append([item.text.split("\n")[0] for item in items])
    assert pids[0][0] == pids[0][1]
    assert pids[0][0] != pids[1][0]
    async with asyncio.timeout(20):
        while any(_is_alive(int(run[0])) for run in pids):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.contract("T13")
@pytest.mark.parametrize(
    "swap",
    [
        lambda pipe, target: pipe.symlink_to(target),
        lambda pipe, target: pipe.hardlink_to(target),
    ],
)
async def test_code_cannot_make_us_write_elsewhere(
    tmp_path: Path, swap: Callable[[Path, Path], object]
) -> None:
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    root = tmp_path / "work"
    root.mkdir()
    driving = [True]
    context = make_context(driving)
    box = Toolbox([make_tool(root)])
    await use(box, "1", context)
    (folder,) = (root / ".windlass" / "python").iterdir()
    (folder / "requests").unlink()
    swap(folder / "requests", target)
    # The pipe that was opened before any code ran is still used.
    assert (await use(box, "2", context, timeout_s=10)).text == "2"
    assert target.read_text() == "precious"
    await end(driving, root)


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a system Python")
@pytest.mark.contract("T13")
async def test_a_python_that_the_sandbox_hides_is_passed_over(tmp_path: Path) -> None:
    """As that of pyenv or uv in a home folder, which often comes first."""
    require_tier("bubblewrap")
    root = tmp_path / "work"
    home = tmp_path / "home"
    root.mkdir()
    home.mkdir()
    (home / "python3").symlink_to(PYTHON)
    environ = {"PATH": f"{home}:/usr/bin:/bin", "HOME": str(home)}
    tool = python_tool(root, environ=environ)
    driving = [True]
    result = await use(Toolbox([tool]), "import sys; sys.executable", make_context(driving))
    assert result.kind == "value"
    assert str(home) not in result.text
    await end(driving, root)
