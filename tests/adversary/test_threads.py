"""`run_sync`, `cancel` and `aclose` over threads and loops: each in a process of its own."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.slow

START = """
import asyncio, sys, threading, time
from windlass import Agent, RunEnded, RunStarted, tool
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call, pause, say

threading.excepthook = lambda _: None

def in_thread(work):
    told = []
    def body():
        try:
            told.append(work())
        except BaseException as error:
            told.append(repr(error))
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread, told
"""


def child(body: str, folder: Path, *options: str) -> str:
    """What a program prints; a hang is a failure."""
    code = START + dedent(body)
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def test_a_run_can_be_cancelled_from_another_thread(tmp_path: Path) -> None:
    """C1: who calls `run_sync` has no event loop; `cancel` is all that they have to stop it."""
    child(
        """
        agent = Agent(ScriptedModel([[say("x"), pause(5)]]))
        thread, told = in_thread(lambda: agent.run_sync("Go.", session="s").outcome)
        time.sleep(0.5)
        began = time.monotonic()
        assert agent.cancel("s")
        thread.join(10)
        assert told == ["cancelled"], told
        assert time.monotonic() - began < 1
        """,
        tmp_path,
    )


def test_closing_lets_go_of_who_waits_in_run_sync(tmp_path: Path) -> None:
    """C1, L3: "stop what is running and wait until nothing is left of it"."""
    child(
        """
        agent = Agent(ScriptedModel([[say("x"), pause(5)]]))
        thread, told = in_thread(lambda: agent.run_sync("Go.", session="s").outcome)
        time.sleep(0.5)
        asyncio.run(agent.aclose())
        thread.join(8)
        assert told == ["cancelled"], told
        """,
        tmp_path,
    )


def test_closing_waits_for_the_end_of_the_runs(tmp_path: Path) -> None:
    """L3: the program ends after aclose, and the journal has no end of the run."""
    child(
        """
        journal = MemoryJournal()
        agent = Agent(ScriptedModel([[say("x"), pause(5)]]), journal=journal)
        async def main():
            run = asyncio.create_task(agent.run("Go.", session="s"))
            await asyncio.sleep(0.3)
            await agent.aclose()
        asyncio.run(main())
        facts = asyncio.run(journal.read("s"))
        assert isinstance(facts[-1], RunEnded), facts
        """,
        tmp_path,
    )


SLOW = """
    class Slow(MemoryJournal):
        async def read(self, session, after=0):
            await asyncio.sleep(0.5)
            return await super().read(session, after)
"""


def test_closing_stops_a_run_that_is_just_beginning(tmp_path: Path) -> None:
    """C1: aclose is over, and the run begins; `cancel` says that there is none."""
    body = """
        agent = Agent(ScriptedModel([[say("x"), pause(2)]]), journal=Slow())
        async def main():
            run = asyncio.create_task(agent.run("Go.", session="s"))
            await asyncio.sleep(0.2)
            await agent.aclose()
            ended = (await asyncio.gather(run, return_exceptions=True))[0]
            assert getattr(ended, "outcome", "refused") != "completed", ended
        asyncio.run(main())
        """
    child(dedent(SLOW) + dedent(body), tmp_path)


def test_a_ctrl_c_counts_from_the_start(tmp_path: Path) -> None:
    """C5: Ctrl-C once cancels. Here the run goes on to its end first."""
    body = """
        import os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored above us
        agent = Agent(ScriptedModel([[say("x"), pause(5)]]), journal=Slow())
        threading.Timer(0.25, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            agent.run_sync("Go.")
        except KeyboardInterrupt:
            pass
        assert time.monotonic() - began < 3
        """
    child(dedent(SLOW) + dedent(body), tmp_path)


@pytest.mark.parametrize("where", ["tool", "watcher"])
def test_who_quits_inside_a_run_is_not_left_hanging(where: str, tmp_path: Path) -> None:
    """T7: an async tool that raises KeyboardInterrupt, an on_event that calls sys.exit.

    Both leave the loop by its front door; the thread dies, and every later run_sync waits too.
    """
    body = f"""
        @tool
        async def quits() -> str:
            "Quit."
            raise KeyboardInterrupt

        def watcher(event):
            if {where!r} == "watcher" and isinstance(event, RunStarted):
                sys.exit(3)

        agent = Agent(ScriptedModel([call("quits"), "Done.", "Done."]), tools=[quits])
        thread, told = in_thread(lambda: agent.run_sync("Go.", on_event=watcher).outcome)
        thread.join(4)
        assert told, "run_sync hangs"
        """
    child(body, tmp_path)


def test_run_sync_in_an_async_tool_of_run_sync(tmp_path: Path) -> None:
    """It "works inside a running event loop too", but not inside the one that it runs on."""
    child(
        """
        @tool(timeout=2)
        async def ask() -> str:
            "Ask."
            return agent.run_sync("Sub.").text

        agent = Agent(ScriptedModel([call("ask"), "Inner.", "Done."]), tools=[ask])
        thread, told = in_thread(lambda: agent.run_sync("Go.").text)
        thread.join(8)
        assert told, "run_sync hangs"
        """,
        tmp_path,
    )


def test_agents_that_are_forgotten_leave_no_threads(tmp_path: Path) -> None:
    """A server that makes an agent for each request runs out of threads and files."""
    child(
        """
        import gc
        for _ in range(20):
            Agent(ScriptedModel(["Done."])).run_sync("Go.")
        gc.collect()
        time.sleep(0.5)
        assert threading.active_count() < 5, threading.active_count()
        """,
        tmp_path,
    )


def test_closing_closes_the_loop_too(tmp_path: Path) -> None:
    """No warning about an event loop that nobody closed."""
    said = child(
        """
        import gc
        agent = Agent(ScriptedModel(["Done."]))
        agent.run_sync("Go.")
        asyncio.run(agent.aclose())
        time.sleep(0.3)
        del agent
        gc.collect()
        """,
        tmp_path,
        "-X",
        "dev",
    )
    assert "unclosed event loop" not in said
