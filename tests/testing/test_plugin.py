"""The pytest plugin, in a pytest of its own: what passes must pass, and what leaks must fail."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SUITE = """
import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.testing import VirtualClock, VirtualLoop

clocks = set()


async def test_passes(clock):
    await asyncio.sleep(3600)
    assert clock.elapsed_s == 3600.0


@pytest.fixture
def agent(clock):
    return clock


async def test_a_fixture_shares_the_clock(agent, clock):
    await asyncio.sleep(1)
    assert agent is clock and agent.elapsed_s == 1.0


async def test_needs_no_clock():
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)


@pytest.mark.realtime
async def test_in_real_time():
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)


@pytest.mark.leaves_tasks
async def test_may_leave_a_task():
    asyncio.create_task(asyncio.sleep(60))


@settings(max_examples=5, database=None)
@given(st.integers())
async def test_each_example_has_its_own_clock(number):
    clock = asyncio.get_running_loop().clock
    assert clock not in clocks
    clocks.add(clock)
    await asyncio.sleep(1)
    assert clock.elapsed_s == 1.0


class TestMethods:
    @pytest.mark.parametrize("seconds", [1, 2])
    async def test_method(self, clock, seconds):
        await asyncio.sleep(seconds)
        assert clock.elapsed_s == seconds


def test_plain():
    pass


async def test_BAD_assertion():
    assert 1 == 2


async def test_BAD_leak():
    asyncio.create_task(asyncio.sleep(60), name="the orphan")


@pytest.mark.realtime
async def test_BAD_leak_in_real_time():
    asyncio.create_task(asyncio.sleep(60), name="the real orphan")


async def test_BAD_deadlock():
    await asyncio.get_running_loop().create_future()


@pytest.mark.realtime
async def test_BAD_virtual_clock_in_real_time(clock):
    pass


@settings(max_examples=5, database=None)
@given(st.integers())
async def test_BAD_example(number):
    await asyncio.sleep(1)
    assert number < 0
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(SUITE)
    # Without the plugin of schemathesis, which leaves values out of failing examples.
    others = ["-p", "no:asyncio", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    options = [*others, "-p", "windlass.testing.plugin"]
    strict = ["-W", "error", "--strict-markers", "-rA", "--tb=short", "-n", "0"]
    command = [sys.executable, "-m", "pytest", *options, *strict]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_what_is_right_passes_and_what_is_wrong_fails(report: str) -> None:
    assert "6 failed, 9 passed" in report, report
    failed = [line for line in report.splitlines() if line.startswith("FAILED")]
    assert all("BAD" in line for line in failed), report


@pytest.mark.parametrize(
    "told",
    [
        "TaskLeaked: left behind: the orphan (",
        "TaskLeaked: left behind: the real orphan (",
        "Deadlock: nothing is ready",
        "A realtime test has no virtual clock",
        "assert 1 == 2",
        "test_BAD_example(\nE       number=0,",
    ],
)
def test_a_failure_says_what_it_is(report: str, told: str) -> None:
    assert told in report
