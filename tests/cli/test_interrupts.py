"""Ctrl-C at the edges of a run: before it has begun, and when it has just ended."""

import asyncio
import signal
from collections.abc import Generator
from typing import Any

import pytest

from windlass import Agent, RunResult
from windlass.cli.terminal_run import open_terminal
from windlass.ports import Watcher
from windlass.testing import ScriptedModel

SESSION = "s"
TURNS = 5
"""Of the event loop: it reads the signal in the first one, and calls the handler in the next."""


@pytest.fixture(autouse=True)
def _restored_signals() -> Generator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


async def press_ctrl_c() -> None:
    """Press it, and wait until the event loop has called what handles it."""
    signal.raise_signal(signal.SIGINT)
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.contract("U2")
def test_ctrl_c_after_the_end_of_a_run_neither_loses_its_result_nor_ends_a_chat() -> None:
    agent = Agent(ScriptedModel(["Done."]))

    async def work(watch: Watcher) -> RunResult[Any]:
        result = await agent.run("go", session=SESSION, on_event=watch)
        await press_ctrl_c()
        return result

    async def drive() -> RunResult[Any]:
        terminal = open_terminal(quiet=True)
        result = await terminal.drive_run(agent, SESSION, work, is_kept=False, is_chat=True)
        await press_ctrl_c()
        return result

    try:
        result = asyncio.run(drive())
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C ended the chat")
    assert result.text == "Done."


def test_ctrl_c_before_a_run_has_begun_interrupts_the_command() -> None:
    agent = Agent(ScriptedModel([]))

    async def work(_watch: Watcher) -> RunResult[Any]:
        await press_ctrl_c()
        raise AssertionError("it was not interrupted")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(open_terminal(quiet=True).drive_run(agent, SESSION, work, is_kept=False))
