"""A signal that ends the process is never lost: as a run ends, and as a prompt begins or ends."""

import signal
import subprocess
import sys

import pytest

from terminal import Terminal
from windlass.testing.chat_wire import text_answer
from windlass_shell import WindlassShell as Shell

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
MARK = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
"""Before the text of the prompt."""
ENDED_RUN = """
import asyncio, os, signal, sys
from windlass import Agent
from windlass.cli.terminal_run import open_terminal
from windlass.testing import ScriptedModel

async def main():
    signal.signal(int(sys.argv[1]), signal.SIG_DFL)
    agent = Agent(ScriptedModel(["Done."]))

    async def work(watch):
        result = await agent.run("go", session="s", on_event=watch)
        os.kill(os.getpid(), int(sys.argv[1]))
        return result

    await open_terminal().drive_run(agent, "s", work, is_chat=True)
    print("the chat goes on")

asyncio.run(main())
"""
AT_A_PROMPT = """
import os, sys
from prompt_toolkit.application import Application
from windlass.cli import main

_, number, moment, *args = sys.argv
run_async = Application.run_async

async def run_with_signal(self, *args, **options):
    if moment == "before":
        os.kill(os.getpid(), int(number))
    typed = await run_async(self, *args, **options)
    if moment == "after":
        os.kill(os.getpid(), int(number))
    return typed

Application.run_async = run_with_signal
main(args)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_as_a_run_ends_ends_the_chat(number: signal.Signals) -> None:
    """C5: after the run, and before its handlers are replaced."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED_RUN, str(int(number))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (128 + number, "")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_as_a_prompt_begins_or_ends_ends_the_chat(
    shell: Shell, number: signal.Signals, moment: str
) -> None:
    """C5: nothing that was typed begins any more."""
    shell.server.add_answers(text_answer("Hello."))
    how = [sys.executable, "-c", AT_A_PROMPT, str(int(number)), moment]
    chat = [*how, "chat", "-m", "openai-chat:m"]
    with Terminal(chat, env=shell.env, cwd=shell.project) as terminal:
        if moment == "after":
            terminal.wait_until(lambda lines: lines[-1] == MARK)
            terminal.type("hello\r")
        assert terminal.wait_for_exit() == 128 + number
    assert shell.server.requests == []
