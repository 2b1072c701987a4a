"""Code in the real interpreter that calls tools, in the sandbox that the shell has by default."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shells import require_tier
from windlass import Agent, RunEnded, RunResult, ToolResults, tool
from windlass.core.messages import ToolResult
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, call
from windlass.tools import PythonLimits, Sandbox, Tool, python_tool

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
PYTHON = getattr(sys, "_base_executable", sys.executable)
DEFAULT = Sandbox(readable=(Path(PYTHON).parent.parent,))


@tool(effect="read", untrusted=True)
def price(item: str, currency: str = "EUR") -> dict[str, Any]:
    """Look up the price of an item."""
    return {"item": item, "price": len(item), "currency": currency}


@tool(name="list-items", effect="read")
def list_items() -> list[str]:
    """List all items."""
    return ["tea", "coffee"]


@tool(effect="read")
async def sleep_long() -> None:
    """Sleep for long."""
    await asyncio.sleep(600)


@tool(name="open", effect="read")
def open_door() -> str:
    """Open the door."""
    return "open"


TOOLS = (price, list_items, sleep_long, open_door)


def code(*lines: str, **more: object) -> Any:
    return call("python", {"code": "\n".join(lines), **more})


async def play(root: Path, *steps: Any, tools: tuple[Any, ...] = TOOLS, **limits: Any) -> Any:
    """Run pieces of code, and return their results and the journal."""
    journal = MemoryJournal()
    python = python_tool(
        root,
        sandbox=DEFAULT,
        limits=PythonLimits(**limits),
        program=PYTHON,
        call_tools=True,
    )
    with ScriptedModel([*steps, "Done."]) as model:
        agent = Agent(model, tools=[python, *tools], journal=journal)
        result = await agent.run("Go.", session="s")
        await agent.aclose()
    return results(result), journal


def results(result: RunResult[Any]) -> list[ToolResult]:
    messages = (one for one in result.messages if isinstance(one, ToolResults))
    return [item.result for message in messages for item in message.items]


@pytest.mark.contract("T1")
async def test_tools_are_functions_with_their_names_parameters_and_descriptions(
    tmp_path: Path,
) -> None:
    first, second = (
        await play(
            tmp_path,
            code(
                "import inspect, json",
                "print(inspect.signature(price), '|', price.__doc__)",
                "items = json.loads(list_items())",
                "prices = {item: json.loads(price(item))['price'] for item in items}",
                "print(prices, json.loads(price('tea', currency='USD'))['currency'])",
                "for wrong in ({'item': []}, {'item': 'tea', 'size': 2}):",
                "    try: price(**wrong)",
                "    except (ToolError, TypeError) as error:",
                "        print(type(error).__name__, getattr(error, 'kind', ''))",
                "print(tools.open(), callable(open), open is not tools.open)",
            ),
            code("prices['coffee']"),
        )
    )[0]
    assert first.kind == "value"
    assert first.text.splitlines()[:5] == [
        "(item: str, currency: str = 'EUR') -> str | Look up the price of an item.",
        "{'tea': 3, 'coffee': 6} USD",
        "ToolError invalid",
        "TypeError ",
        "open True True",
    ]
    assert first.labels == ("untrusted",)
    assert second.text == "6"
    assert second.labels == ()


@pytest.mark.contract("T5", "C6")
async def test_a_time_out_ends_the_call_that_code_waits_for_and_says_what_was_called(
    tmp_path: Path,
) -> None:
    (slow,), journal = await play(
        tmp_path, code("price('tea')", "sleep_long()", timeout_s=3.0), tools=(price, sleep_long)
    )
    assert slow.kind == "timed_out"
    assert '- price({"item": "tea"}): done' in slow.text
    assert "- sleep_long({}): unknown whether it took effect" in slow.text
    last = (await journal.read("s/c1_0"))[-1]
    assert isinstance(last, RunEnded)
    assert last.outcome == "cancelled"


async def test_the_number_of_calls_is_limited_and_calls_from_threads_come_one_by_one(
    tmp_path: Path,
) -> None:
    (result,), journal = await play(
        tmp_path,
        code(
            "from concurrent.futures import ThreadPoolExecutor",
            "with ThreadPoolExecutor(4) as pool:",
            "    print(len(list(pool.map(price, 'abcdefgh'))))",
            "try: price('i')",
            "except ToolError as error: print(error)",
        ),
        calls_max=8,
    )
    assert result.text.startswith("8\nThis code has made 8 calls, and no more are allowed.\n")
    facts = await journal.read("s/c1_0")
    assert sum(type(fact).__name__ == "CallStarted" for fact in facts) == 8


FORGE = """
import json, os, glob
folder = os.path.dirname(glob.glob('.windlass/python/*/requests')[0])
results = open(folder + '/results')
calls = 0

def send(text):
    global calls
    calls += 1
    with open(folder + '/x', 'w') as file: file.write(text)
    os.rename(folder + '/x', f'{folder}/call-{calls}.json')

def forge(text):
    send(text)
    print(results.readline().strip())
"""


@pytest.mark.contract("T13", "G1")
async def test_a_call_that_code_forges_is_judged_like_any_other(tmp_path: Path) -> None:
    """Code can write whatever it likes to the runtime: it gains nothing by that."""
    (result,), _ = await play(
        tmp_path,
        code(
            FORGE,
            "forge(json.dumps({'name': 'python', 'arguments': {'code': '1'}}))",
            "forge(json.dumps({'name': 'rm', 'arguments': {}}))",
            "forge(json.dumps({'name': 'price', 'arguments': [1]}))",
            "forge('not JSON')",
            "forge(json.dumps({'name': 'price', 'arguments': {'item': 'a' * 5_000_000}}))",
            "forge(json.dumps({'name': 'price', 'arguments': {'item': 'tea'}}))",
        ),
    )
    itself, unknown, no_object, no_json, too_long, sound = result.text.splitlines()[:6]
    assert "There is no tool 'python'" in itself
    assert "There is no tool 'rm'" in unknown
    assert '"kind":"invalid"' in no_object
    assert "cannot be read" in no_json
    assert "too long" in too_long
    assert '"kind":"value"' in sound


@pytest.mark.contract("T13", "C2")
async def test_code_that_does_not_read_its_result_keeps_nobody_else_waiting(
    tmp_path: Path,
) -> None:
    """A result that is longer than the pipe holds is written as far as it is read."""

    @tool(effect="read")
    def book() -> str:
        """Read a book."""
        return "word " * 30_000

    stuck = ("""send('{"name": "book", "arguments": {}}')""", "import time; time.sleep(600)")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    ticking = asyncio.create_task(tick())
    (result,), _ = await play(tmp_path, code(FORGE, *stuck, timeout_s=1.0), tools=(book,))
    ticking.cancel()
    assert result.kind == "timed_out"
    assert ticks > 10


@pytest.mark.contract("T13")
async def test_the_sandbox_holds_for_code_that_calls_tools(tmp_path: Path) -> None:
    """What the code may not do itself, it can only ask a tool for."""
    require_tier("bubblewrap")
    outside = Path.home() / ".bashrc"
    (result,), _ = await play(
        tmp_path,
        code(
            "import os, socket",
            f"print(os.path.exists({str(outside)!r}))",
            "try: open('/etc/forbidden', 'w')",
            "except OSError as error: print('not written')",
            "try: socket.create_connection(('127.0.0.1', 9), 1)",
            "except OSError as error: print('no network')",
            "print(price('tea'))",
        ),
    )
    assert result.text.splitlines()[:3] == ["False", "not written", "no network"]
    assert '"item":"tea"' in result.text


DYING = """
import asyncio, sys
from pathlib import Path
sys.path[:] = sys.argv[2:]
from test_interpreter_tools import killed_agent
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel

folder = Path(sys.argv[1])
asyncio.run(killed_agent(folder, SqliteJournal(folder / "s.db")).run("Go.", session="s"))
"""


def killed_agent(folder: Path, journal: Any) -> Agent[str]:
    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        with (folder / "paid").open("a") as file:
            file.write(f"{amount}\n")
        if amount == 2:
            (folder / "marker").touch()
            await asyncio.sleep(600)
        return "paid"

    def say(prompt: Any) -> Any:
        given = any(isinstance(one, ToolResults) for one in prompt.messages)
        return "Done." if given else code("for amount in (1, 2, 3): pay(amount)")

    work = folder / "work"
    work.mkdir(exist_ok=True)
    python: Tool[..., Any] = python_tool(work, sandbox=DEFAULT, program=PYTHON, call_tools=True)
    return Agent(ScriptedModel([say] * 3), tools=[python, pay], journal=journal)


@pytest.mark.contract("J2", "T14")
async def test_after_a_kill_the_model_is_told_what_code_had_done_and_it_is_not_done_again(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", DYING, str(tmp_path), str(Path(__file__).parent), *sys.path]
    runtime = subprocess.Popen(command)  # noqa: ASYNC220 - nothing else runs here
    _wait_until((tmp_path / "marker").exists, runtime)
    os.kill(runtime.pid, signal.SIGKILL)
    runtime.wait()
    with SqliteJournal(tmp_path / "s.db") as journal:
        result = await killed_agent(tmp_path, journal).resume("s")
        (outcome,) = results(result)
        last = (await journal.read("s/c1_0"))[-1]
        abandoned = await journal.list_abandoned()
    assert result.text == "Done."
    assert (tmp_path / "paid").read_text() == "1\n2\n"
    assert outcome.kind == "unknown"
    assert '- pay({"amount": 1}): done' in outcome.text
    assert '- pay({"amount": 2}): unknown whether it took effect' in outcome.text
    assert isinstance(last, RunEnded)
    assert abandoned == []


def _wait_until(is_there: Callable[[], bool], runtime: subprocess.Popen[bytes]) -> None:
    while not is_there():
        assert runtime.poll() is None
        time.sleep(0.02)
