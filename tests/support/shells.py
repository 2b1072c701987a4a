"""What the tests of commands share: both tiers, and a way to see who is still alive."""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from windlass.tools.processes import ProcessInfo, list_processes
from windlass.tools.shell.sandbox import SandboxTier, probe_bubblewrap

TIERS: tuple[SandboxTier, ...] = ("process", "bubblewrap")


def require_tier(tier: SandboxTier) -> None:
    """Skip where there is no bubblewrap; in CI that is a failure."""
    fault = probe_bubblewrap().fault if tier == "bubblewrap" else ""
    if fault and os.environ.get("CI"):
        pytest.fail(f"CI must have bubblewrap: {fault}")
    if fault:
        pytest.skip(fault)


def unique_sleep() -> str:
    """A number of seconds that no other sleeper on this machine has."""
    return f"{3000 + int.from_bytes(os.urandom(3), 'big')}.{os.getpid()}"


def unique_sleep_for_test() -> Iterator[str]:
    """The same; processes that still sleep after a failed test are killed."""
    nap = unique_sleep()
    yield nap
    for one in sleeping_pids(nap):
        one.send_signal(signal.SIGKILL)


def sleeping_pids(nap: str) -> list[ProcessInfo]:
    """The living processes whose last argument is this nap."""
    word = nap.encode()
    return [
        one
        for one in list_processes()
        if one.is_alive and one.read_proc_file("cmdline").rstrip(b"\0").split(b"\0")[-1] == word
    ]


def comes_true(holds: Callable[[], object], within_s: float = 10.0) -> bool:
    """Whether something comes to hold."""
    until = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def zombie_children() -> list[ProcessInfo]:
    """Return our child processes that ended and were not waited for."""
    return [one for one in list_processes() if one.parent == os.getpid() and one.state == "Z"]


def escape_command(nap: str) -> str:
    """A command whose processes try to get away.

    In the background, in sessions of their own, twice forked, deaf to signals, without the marker.
    """
    return f"""
        sleep {nap} &
        nohup sleep {nap} >/dev/null 2>&1 &
        setsid sleep {nap} >/dev/null 2>&1 &
        (setsid sh -c 'trap "" TERM HUP INT; (sleep {nap}; :) & wait' >/dev/null 2>&1 &)
        (env -i setsid sh -c '(sleep {nap} &)' >/dev/null 2>&1 &)
    """


ESCAPED = 5
"""How many sleepers `escapes` makes."""
