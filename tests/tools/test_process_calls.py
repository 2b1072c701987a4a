"""Sync tools in processes of their own: what they return, how they fail, how they are killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import killable_tools
from windlass import Agent, ConfigError, RunContext, Tool, tool
from windlass.core.messages import ToolResults
from windlass.testing import ScriptedModel, call

pytestmark = [pytest.mark.slow, pytest.mark.contract("T5", "C4"), pytest.mark.realtime]


async def result_of(given: Tool[..., Any], arguments: dict[str, Any]) -> str:
    """What the model reads after one call."""
    with ScriptedModel([call(given.name, arguments), "Done."]) as model:
        result = await Agent(model, tools=[given]).run("Go.")
    results = [one for one in result.messages if isinstance(one, ToolResults)]
    return "".join(outcome.result.text for one in results for outcome in one.items)


async def test_arguments_and_results_are_plain_data() -> None:
    """They have their types inside of the function, and prints do not get into the result."""
    points = {"left": {"x": 1, "y": 2}, "right": {"x": 10, "y": 20}}
    assert await result_of(killable_tools.add, points) == '{"x":11,"y":22}'
    assert await result_of(killable_tools.whoami, {}) != str(os.getpid())
    assert killable_tools.whoami() == os.getpid(), "called like a function, it is one"


async def test_a_function_can_be_made_a_tool_elsewhere() -> None:
    product = tool(killable_tools.multiply, executor="process")
    assert await result_of(product, {"left": 6, "right": 7}) == "42"
    numbers = {"type": "object", "properties": {"left": {}, "right": {}}}
    plain = Tool.from_schema(
        "times", "Multiply.", numbers, killable_tools.multiply, executor="process"
    )
    assert await result_of(plain, {"left": 6, "right": 7}) == "42"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("retry", "Say it otherwise."),
        ("network", "ConnectionRefusedError: nobody listens"),
        ("own", "SubprocessError: broken"),
        ("exit", "ended without a result (exit code 3)"),
    ],
)
async def test_its_errors_are_results(kind: str, expected: str) -> None:
    assert expected in await result_of(killable_tools.fail, {"kind": kind})


def has_stopped(folder: Path) -> bool:
    """Whether neither the process nor its child goes on; they must have run before."""
    sizes = [folder.joinpath(name).stat().st_size for name in ("child", "grandchild")]
    time.sleep(0.3)
    return sizes == [folder.joinpath(name).stat().st_size for name in ("child", "grandchild")]


async def test_a_time_out_kills_the_whole_group(tmp_path: Path) -> None:
    text = await result_of(killable_tools.run_away, {"folder": str(tmp_path)})
    assert "timed out after 1.5 s" in text
    assert "may still be running" not in text
    assert has_stopped(tmp_path)


async def test_a_cancel_kills_the_whole_group(tmp_path: Path) -> None:
    model = ScriptedModel([call("run_away", {"folder": str(tmp_path)})])
    agent = Agent(model, tools=[killable_tools.run_away])
    running = asyncio.create_task(agent.run("Go.", session="s"))
    while not tmp_path.joinpath("grandchild").exists():  # noqa: ASYNC110 - it waits for a file
        await asyncio.sleep(0.01)
    agent.cancel("s")
    assert (await running).outcome == "cancelled"
    await agent.aclose()
    assert has_stopped(tmp_path)


KILLED_RUNTIME = """
import sys
sys.path.insert(0, sys.argv[1])
import killable_tools
from windlass import Agent
from windlass.testing import ScriptedModel, call
model = ScriptedModel([call("run_away", {"folder": sys.argv[2]}), "Done."])
Agent(model, tools=[killable_tools.run_away]).run_sync("Go.")
"""


def test_the_death_of_the_runtime_kills_it_too(tmp_path: Path) -> None:
    """T14: also by SIGKILL."""
    support = str(Path(killable_tools.__file__).parent)
    command = [sys.executable, "-c", KILLED_RUNTIME, support, str(tmp_path)]
    with subprocess.Popen(command) as runtime:
        ends_at = time.monotonic() + 20
        while not tmp_path.joinpath("grandchild").exists():
            assert time.monotonic() < ends_at
            time.sleep(0.01)
        runtime.send_signal(signal.SIGKILL)
    time.sleep(0.2)
    assert has_stopped(tmp_path)


SCRIPT = """
from windlass import Agent, tool
from windlass.testing import ScriptedModel, call

@tool(executor="process")
def shout(text: str) -> str:
    '''Shout.'''
    return text.upper() + __name__

if __name__ == "__main__":
    model = ScriptedModel([call("shout", {"text": "hi"}), "Done."])
    print(Agent(model, tools=[shout]).run_sync("Go.").messages[2].items[0].result.text)
"""


def test_it_may_be_in_the_program_itself(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("HI__windlass_worker__", "")


def test_what_another_process_cannot_run_is_refused() -> None:
    """When the tool is made, with the fix."""

    def inner(text: str) -> str:
        return text

    async def later(text: str) -> str:
        return text

    def with_context(context: RunContext, text: str) -> str:
        return text + context.call_id

    with_context.__qualname__ = "with_context"
    for function, expected in (
        (inner, "inside another one"),
        (lambda: "", "not a plain function"),
        ("".join, "not a plain function"),
        (later, "async"),
        (with_context, "RunContext"),
    ):
        schema = {"type": "object", "properties": {}}
        with pytest.raises(ConfigError, match=expected):
            Tool.from_schema("t", "d", schema, function, executor="process")
    with pytest.raises(ConfigError, match="no executor 'proces'"):
        tool(killable_tools.multiply, executor="proces")  # pyright: ignore[reportArgumentType, reportCallIssue]


@tool(timeout=0.2)
def deaf() -> str:
    """Do not hear that it should stop."""
    time.sleep(1.0)
    return "done"


async def test_a_thread_that_does_not_stop_is_told() -> None:
    """C4: a thread cannot be killed; the model is told that it may go on."""
    from windlass.tools import Toolbox  # noqa: PLC0415 - only here

    with ScriptedModel([call("deaf"), "Done."]) as model:
        result = await Agent(model, tools=Toolbox([deaf], grace=0.1)).run("Go.")
    assert "did not stop when it was asked to and may still be running" in str(result.messages)
    await asyncio.sleep(1.0)  # The thread ends by itself.


async def test_a_cancelled_call_may_still_be_running() -> None:
    """C3, C4: the end of the run does not wait for a thread, and its result says so."""
    agent = Agent(ScriptedModel([call("deaf")]), tools=[deaf])
    running = asyncio.create_task(agent.run("Go.", session="s"))
    await asyncio.sleep(0.1)
    agent.cancel("s")
    assert "may still be running" in str((await running).messages)
    await agent.aclose()
