"""`run_sync` in a forked child, after the parent has used it."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.contract("L3"), pytest.mark.realtime]

FORK_AFTER_USE = """
import gc, os, sys
from windlass import Agent
from windlass.testing import ScriptedModel

agent = Agent(ScriptedModel(["One.", "Two.", "Three."]))
print("parent", agent.run_sync("Go.", session="s").text, flush=True)
child = os.fork()
if child == 0:
    print("child", agent.run_sync("Go on.", session="s").text, flush=True)
    gc.collect()
    sys.exit(7)
print("exit code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print("parent", agent.run_sync("Go on.", session="s").text, flush=True)
"""

FORK_WITHOUT_USE = """
import os, sys, time
from windlass import Agent
from windlass.testing import ScriptedModel

agent = Agent(ScriptedModel(["One."]))
agent.run_sync("Go.")
started = time.monotonic()
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(time.monotonic() - started < 1.5)
"""


def run_script(script: str) -> list[str]:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_run_sync_works_in_a_forked_child() -> None:
    """The child starts an event loop of its own, and that of the parent goes on."""
    expected = ["parent One.", "child Two.", "exit code 7", "parent Two."]
    assert run_script(FORK_AFTER_USE) == expected


def test_a_child_that_does_not_use_it_ends_at_once() -> None:
    """It does not wait for connections of a loop that it does not have."""
    assert run_script(FORK_WITHOUT_USE) == ["True"]
