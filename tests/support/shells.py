"""What the tests of commands share: both tiers, and a way to see who is still alive."""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from windlass.tools.shell.processes import Process, processes
from windlass.tools.shell.sandbox import Tier, bubblewrap

TIERS: tuple[Tier, ...] = ("process", "bubblewrap")


def needs(tier: Tier) -> None:
    """Skip where there is no bubblewrap; in CI that is a failure."""
    fault = bubblewrap().fault if tier == "bubblewrap" else ""
    if fault and os.environ.get("CI"):
        pytest.fail(f"CI must have bubblewrap: {fault}")
    if fault:
        pytest.skip(fault)


def a_nap() -> str:
    """A number of seconds that no other sleeper on this machine has."""
    return f"{3000 + int.from_bytes(os.urandom(3), 'big')}.{os.getpid()}"


def a_nap_for_one_test() -> Iterator[str]:
    """The same, and whoever still sleeps when the test has failed is woken for good."""
    nap = a_nap()
    yield nap
    for one in sleepers(nap):
        one.send(signal.SIGKILL)


def sleepers(nap: str) -> list[Process]:
    """The living processes whose last argument is this nap."""
    word = nap.encode()
    return [
        one
        for one in processes()
        if one.alive and one.read("cmdline").rstrip(b"\0").split(b"\0")[-1] == word
    ]


def eventually(holds: Callable[[], object], within_s: float = 10.0) -> bool:
    """Whether something comes to hold."""
    until = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def zombies() -> list[Process]:
    """Our children that nobody waited for."""
    return [one for one in processes() if one.parent == os.getpid() and one.state == "Z"]


def escapes(nap: str) -> str:
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
