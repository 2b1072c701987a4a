"""After a SIGKILL of the runtime: what it left is ended, and nothing else."""

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shells import (
    ESCAPED,
    TIERS,
    comes_true,
    escape_command,
    require_tier,
    sleeping_pids,
    unique_sleep,
    unique_sleep_for_test,
    zombie_children,
)
from windlass.tools.processes import ProcessInfo, find_descendants, find_process
from windlass.tools.shell import reaper as module
from windlass.tools.shell.reaper import MARKER, ProcessReaper, ReapedProcess, kill_marked
from windlass.tools.shell.sandbox import Sandbox, SandboxTier
from windlass.tools.shell.shell_tools import shell_tools
from windlass.tools.toolbox import Toolbox

pytestmark = [pytest.mark.realtime, pytest.mark.slow]  # Starts real shells.
nap = pytest.fixture(unique_sleep_for_test, name="nap")

RUNTIME = """
import asyncio, sys
from pathlib import Path
from windlass.tools.run_context import RunContext
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import open_shell

async def main():
    root, tier, command = sys.argv[1:]
    bash = open_shell(Path(root), sandbox=Sandbox(require=tier)).tools[0]
    await bash(RunContext(deps=None, report=lambda text: print(text, flush=True)), command)

asyncio.run(main())
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / ".windlass" / "processes"


@contextmanager
def sleeper(nap: str, marker: str = "") -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.defpath, **({MARKER: marker} if marker else {})}
    with subprocess.Popen(["sleep", nap], env=env) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of ours."""
    with sleeper(unique_sleep()) as started:
        yield started
        assert started.poll() is None, "a stranger was killed"


@contextmanager
def runtime(root: Path, tier: SandboxTier, nap: str) -> Iterator[subprocess.Popen[bytes]]:
    """A runtime of its own, once all of its command is under way; killed at the end."""
    command = f"{escape_command(nap)} echo ready; sleep {nap}"
    argv = [sys.executable, "-c", RUNTIME, str(root), tier, command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"ready\n"
            assert comes_true(lambda: len(sleeping_pids(nap)) == ESCAPED + 1)
            yield started
        finally:
            started.kill()


def kill_with_supervisor(dead: subprocess.Popen[bytes]) -> None:
    """So that nobody is left who would see to its command."""
    supervisors = [one for one in find_descendants(dead.pid) if one.parent == dead.pid]
    dead.send_signal(signal.SIGSTOP)  # It must not notice, or it would see to it itself.
    assert [one.send_signal(signal.SIGKILL) for one in supervisors] == [True]
    dead.kill()


@pytest.mark.contract("T14")
@pytest.mark.parametrize("tier", TIERS)
def test_when_the_runtime_is_killed_its_supervisor_ends_all(
    tier: SandboxTier, tmp_path: Path, nap: str
) -> None:
    require_tier(tier)
    with runtime(tmp_path, tier, nap) as killed:
        family = find_descendants(killed.pid)
        assert len(family) > ESCAPED
        killed.kill()
    assert comes_true(lambda: not any(one.is_same_process() for one in family))
    assert sleeping_pids(nap) == []
    assert ProcessReaper(tmp_path / ".windlass" / "processes").reap_leftovers() == []


@pytest.mark.contract("T14")
def test_in_bubblewrap_all_end_even_with_the_supervisor(tmp_path: Path, nap: str) -> None:
    require_tier("bubblewrap")
    with runtime(tmp_path, "bubblewrap", nap) as dead:
        kill_with_supervisor(dead)
    assert comes_true(lambda: not sleeping_pids(nap))


@pytest.mark.contract("T14")
def test_the_tools_of_the_next_start_end_what_was_left(tmp_path: Path, nap: str) -> None:
    """The driver that takes a run over asks its tools to recover, and records what they ended."""
    with runtime(tmp_path, "process", nap) as dead:
        kill_with_supervisor(dead)
    assert comes_true(lambda: len(sleeping_pids(nap)) == ESCAPED)
    tools = Toolbox(shell_tools(tmp_path, sandbox=Sandbox(require="process")))
    assert any(line.startswith(f"sleep {nap} (of: ") for line in tools.recover())
    # What threw its environment away is known to the supervisor alone.
    assert {one.pid for one in sleeping_pids(nap)} == _unmarked(nap)


@pytest.mark.contract("T14")
def test_the_next_start_ends_what_was_left(
    tmp_path: Path, state: Path, nap: str, stranger: subprocess.Popen[bytes]
) -> None:
    with runtime(tmp_path, "process", nap) as dead:
        kill_with_supervisor(dead)
    # The shell itself dies with its parent; the rest does not.
    assert comes_true(lambda: len(sleeping_pids(nap)) == ESCAPED)
    there, unmarked = {one.pid for one in sleeping_pids(nap)}, _unmarked(nap)
    reaped = ProcessReaper(state).reap_leftovers()
    assert {one.pid for one in reaped} >= there - unmarked
    assert {one.pid for one in sleeping_pids(nap)} == unmarked
    assert len(unmarked) == 1, "what threw its environment away is known to the supervisor alone"
    first = next(one for one in reaped if one.program == f"sleep {nap}")
    assert f"sleep {nap}" in first.command
    assert first.started is not None
    assert datetime.now(UTC) - first.started < timedelta(minutes=1)
    assert list(state.glob("*.json")) == []
    assert ProcessReaper(state).reap_leftovers() == []


def _unmarked(nap: str) -> set[int]:
    """A process that threw its environment away is known only to the supervisor."""
    return {
        one.pid
        for one in sleeping_pids(nap)
        if MARKER.encode() not in one.read_proc_file("environ")
    }


@pytest.mark.contract("T14")
def test_what_descends_from_ours_is_ours(state: Path, nap: str) -> None:
    """Even if it carries no marker itself."""
    dead = _dead(state)
    argv = ["sh", "-c", f"env -i sh -c 'sleep {nap}; :'; :"]
    with subprocess.Popen(argv, env={MARKER: f"{dead.stem}/1", "PATH": os.defpath}) as head:
        there = comes_true(lambda: sleeping_pids(nap))
        reaped = ProcessReaper(state).reap_leftovers()
        head.kill()
    assert there
    assert {one.call for one in reaped} == {f"{dead.stem}/1", f"{dead.stem}/?"}
    assert sleeping_pids(nap) == []


def _dead(state: Path, **record: object) -> Path:
    """The file of a runtime that is gone."""
    state.mkdir(parents=True, exist_ok=True)
    path = state / f"{secrets.token_hex(16)}.json"
    path.write_text(json.dumps({"pid": 2**22 + 1, "start": 1, "calls": {}, **record}))
    return path


@pytest.mark.contract("T14")
def test_a_number_that_was_used_again_is_not_ours(
    state: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Neither by a start that differs, nor by a record that names it: only the marker counts."""
    found = find_process(stranger.pid)
    assert found is not None
    assert not ProcessInfo(stranger.pid, found.parent, found.start - 1).send_signal(signal.SIGKILL)
    call = {"command": "sleep", "started": 1.0, "pid": stranger.pid, "start": found.start}
    _dead(state, calls={"any/1": call})
    assert ProcessReaper(state).reap_leftovers() == []


@pytest.mark.contract("T14")
def test_a_marker_of_another_runtime_is_left_alone(state: Path, nap: str) -> None:
    dead = _dead(state)
    with sleeper(nap, f"{dead.stem}0/1") as other:
        assert ProcessReaper(state).reap_leftovers() == []
        assert other.poll() is None


@pytest.mark.contract("T14")
def test_a_runtime_that_lives_keeps_its_processes(state: Path, nap: str) -> None:
    """By its lock; and where a lock says nothing, by its process."""
    alive = ProcessReaper(state)
    marker = alive.register_command("sleep")
    with sleeper(nap, marker) as ours:
        assert ProcessReaper(state).reap_leftovers() == []
        me = find_process(os.getpid())
        assert me is not None
        path = _dead(state, pid=me.pid, start=me.start)
        assert ProcessReaper(state).reap_leftovers() == []
        assert path.exists()
        assert ours.poll() is None
        assert [one.process.pid for one in kill_marked(marker)] == [ours.pid]
    alive.forget_command(marker)
    alive.close()


@pytest.mark.contract("T14")
def test_a_process_that_is_just_starting_is_seen(state: Path, nap: str) -> None:
    """In the middle of an `exec` there is no environment to read: it has to be waited for."""
    for _ in range(20):
        with sleeper(nap, f"{_dead(state).stem}/1") as young:
            assert [one.pid for one in ProcessReaper(state).reap_leftovers()] == [young.pid]


def test_two_reapers_do_not_meet(state: Path) -> None:
    path = _dead(state)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert ProcessReaper(state).reap_leftovers() == []
        assert path.exists()


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"pid": "x"}', '{"calls": {}}'])
def test_a_torn_record_does_no_harm(state: Path, nap: str, torn: str) -> None:
    path = _dead(state)
    path.write_text(torn)
    with sleeper(nap, f"{path.stem}/1") as left:
        reaped = ProcessReaper(state).reap_leftovers()
    program, call = f"sleep {nap}", f"{path.stem}/1"
    assert reaped == [
        ReapedProcess(pid=left.pid, program=program, command="", call=call, started=None)
    ]
    assert not path.exists()
    assert zombie_children() == []


def test_who_reaps_is_spared(state: Path) -> None:
    """A runtime that a command of a dead one had started does not end itself."""
    dead = _dead(state)
    code = "import sys, pathlib; from windlass.tools.shell.reaper import ProcessReaper\n"
    code += "print(ProcessReaper(pathlib.Path(sys.argv[1])).reap_leftovers())"
    argv = ["sh", "-c", 'python="$1"; shift; "$python" "$@"; :', "sh", sys.executable]
    seen = subprocess.run(
        [*argv, "-c", code, str(state)],
        env={MARKER: f"{dead.stem}/1", "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, "[]\n", "")


def test_no_folder_is_nothing_to_reap(tmp_path: Path) -> None:
    assert ProcessReaper(tmp_path / "none").reap_leftovers() == []
    assert not (tmp_path / "none").exists()


def test_the_registry_is_not_for_others(state: Path) -> None:
    reaper = ProcessReaper(state)
    marker = reaper.register_command("x" * 9_999)
    (file,) = state.glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    assert state.stat().st_mode & 0o077 == 0
    assert (state / ".gitignore").read_text() == "*\n"
    command = json.loads(file.read_text())["calls"][marker]["command"]
    assert len(command) == module.COMMAND_CHARS_MAX
    reaper.forget_command(marker)
    reaper.close()
