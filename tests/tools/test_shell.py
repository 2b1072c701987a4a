"""`bash` with real processes, in both tiers: what it tells, and that nothing outlives it."""

import asyncio
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shells import (
    ESCAPED,
    TIERS,
    comes_true,
    escape_command,
    require_tier,
    sleeping_pids,
    unique_sleep_for_test,
    zombie_children,
)
from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.messages import ToolResult
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.run_context import RunContext
from windlass.tools.shell import jobs
from windlass.tools.shell.jobs import OutputBuffer
from windlass.tools.shell.sandbox import ActiveSandbox, Sandbox, SandboxTier
from windlass.tools.shell.shell_tools import (
    COMMAND_BYTES_MAX,
    ShellLimits,
    WorkspaceShell,
    open_shell,
    shell_tools,
)
from windlass.tools.toolbox import Toolbox

pytestmark = [pytest.mark.realtime, pytest.mark.slow]  # Starts real shells.
nap = pytest.fixture(unique_sleep_for_test, name="nap")


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> SandboxTier:
    require_tier(request.param)
    return request.param


@pytest.fixture
def shell(tier: SandboxTier, tmp_path: Path) -> Iterator[WorkspaceShell]:
    limits = ShellLimits(grace_s=0.3, timeout_s=30, background_max=2)
    opened = open_shell(tmp_path, sandbox=Sandbox(require=tier), limits=limits)
    yield opened
    opened.close()
    assert zombie_children() == []


def context(reports: list[str] | None = None, session: str = "s") -> RunContext[None]:
    heard: list[str] = [] if reports is None else reports
    return RunContext(deps=None, session_id=session, report=heard.append)


async def run(shell: WorkspaceShell, command: str, **arguments: Any) -> ToolResult:
    return await shell.tools[0](context(), command, **arguments)


async def read(shell: WorkspaceShell, handle: str, session: str = "s", **arguments: Any) -> str:
    return await shell.tools[1](context(session=session), handle, **arguments)


async def start(shell: WorkspaceShell, command: str, **arguments: Any) -> str:
    result = await run(shell, command, background=True, **arguments)
    return result.text.split('"')[1]


# ── what is told ─────────────────────────────────────────────────────────────


@pytest.mark.contract("T13")
async def test_the_output_and_the_exit_code_are_told(
    shell: WorkspaceShell, tier: SandboxTier
) -> None:
    result = await run(shell, "echo one; echo two >&2; exit 3")
    said = "no sandbox" if tier == "process" else "bubblewrap, network off"
    assert result == ToolResult.from_text("value", f"one\ntwo\n[exit code 3; {said}]")


ENDS = [
    ("true", "(no output)\n[exit code 0;"),
    ("kill -SEGV $$", "SIGSEGV"),
    ("sh -c 'kill -KILL $$'; exit $?", "exit code 137 (SIGKILL)"),
    ("nosuchprogram", "exit code 127"),
    (r"printf 'a\xff\xc3\nb\0'", "a\ufffd\ufffd\nb\ufffd\n[exit code 0"),
    ("cat; echo $?", "0\n[exit code 0"),
    ("echo $HOME $SECRET", "/tmp\n[exit code 0"),
    ("echo 'unended", "exit code 2"),
    ("tty", "not a tty"),
    ("yes | head -1; echo ${PIPESTATUS[0]}", "y\n141\n[exit code 0"),
]


@pytest.mark.contract("T13")
async def test_any_end_is_a_result(shell: WorkspaceShell) -> None:
    results = await asyncio.gather(*[run(shell, command) for command, _ in ENDS])
    assert {result.kind for result in results} == {"value"}
    odd = [r.text for r, (_, told) in zip(results, ENDS, strict=True) if told not in r.text]
    assert odd == []


@pytest.mark.contract("T13")
async def test_a_command_runs_in_its_own_session_and_in_the_workspace(
    shell: WorkspaceShell, tmp_path: Path
) -> None:
    result = await run(shell, "pwd; ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat")
    where, session = result.text.split("\n")[:2]
    assert where == str(tmp_path)
    assert int(session) != os.getsid(0)


@pytest.mark.contract("T10")
async def test_a_hundred_megabytes_cost_little(shell: WorkspaceShell) -> None:
    """Head and tail are kept, the rest is counted."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await run(shell, "echo first; head -c 100000000 /dev/zero; echo; echo last")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.text.startswith("first\n")
    assert "\nlast\n[exit code 0" in result.text
    left_out = 100_000_012 - shell.limits.output_bytes_max
    assert f"[… {left_out} bytes left out;" in result.text
    assert grown_kib < 40 * 1024


@pytest.mark.contract("T13")
async def test_lines_arrive_before_the_end(shell: WorkspaceShell, tmp_path: Path) -> None:
    """The command waits for a file that is made when its first line was heard."""
    go = tmp_path / "go"
    heard: list[str] = []

    def report(text: str) -> None:
        heard.append(text)
        go.touch()

    command = "echo ready; until [ -e go ]; do sleep 0.01; done; echo went"
    result = await shell.tools[0](RunContext(deps=None, report=report), command)
    assert "went\n[exit code 0" in result.text
    assert heard == ["ready", "went"]


@pytest.mark.contract("T13")
async def test_a_torrent_is_reported_at_a_bounded_rate(shell: WorkspaceShell) -> None:
    heard: list[str] = []
    begun = time.monotonic()
    await shell.tools[0](context(heard), "seq 300000; sleep 0.3; printf 'no end'")
    assert len(heard) <= (time.monotonic() - begun) * 10 + 2
    assert all(len(text) < 2_100 for text in heard)
    assert heard[-1].endswith("no end")


async def test_a_watcher_that_fails_does_not_fail_the_command(shell: WorkspaceShell) -> None:
    def broken(_text: str) -> None:
        raise RuntimeError("no")

    result = await shell.tools[0](RunContext(deps=None, report=broken), "echo fine")
    assert result.text.startswith("fine\n[exit code 0")


@pytest.mark.parametrize("command", ["echo \0", "echo \ud83d", "#" * (COMMAND_BYTES_MAX + 1)])
async def test_what_no_shell_takes_is_told_to_the_model(
    shell: WorkspaceShell, command: str
) -> None:
    with pytest.raises(ModelRetry):
        await run(shell, command)


async def test_a_long_command_is_run(shell: WorkspaceShell) -> None:
    result = await run(shell, f"echo {'x' * (COMMAND_BYTES_MAX - 100)} | wc -c")
    assert result.text.startswith(f"{COMMAND_BYTES_MAX - 99}\n")


@pytest.mark.contract("T13")
def test_the_effect_and_the_labels_are_honest(tmp_path: Path) -> None:
    """Without a sandbox nobody can say that nothing is sent out."""
    plain = shell_tools(tmp_path, sandbox=Sandbox(require="process"))
    assert [(one.name, one.spec.effect, one.spec.labels) for one in plain] == [
        ("bash", "write", ("untrusted", "external")),
        ("bash_output", "read", ()),
        ("bash_kill", "idempotent", ()),
    ]
    require_tier("bubblewrap")
    shut, opened = (shell_tools(tmp_path, sandbox=Sandbox(network=on))[0] for on in (False, True))
    assert (shut.spec.labels, opened.spec.labels) == ((), ("untrusted", "external"))
    assert "no network" in shut.spec.description


def test_a_workspace_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        shell_tools(tmp_path / "missing")


# ── nothing outlives it ──────────────────────────────────────────────────────


@pytest.mark.contract("T14", "T5")
async def test_a_timeout_ends_all_and_is_told(shell: WorkspaceShell, nap: str) -> None:
    result = await run(shell, f"echo before; {escape_command(nap)} sleep {nap}", timeout_s=0.7)
    assert sleeping_pids(nap) == []
    assert result.kind == "timed_out"
    assert "before\n[timed out after 0.7 s" in result.text


@pytest.mark.contract("T14", "C4")
async def test_a_cancel_ends_all(shell: WorkspaceShell, nap: str) -> None:
    task = asyncio.create_task(run(shell, f"{escape_command(nap)} sleep {nap}"))
    await asyncio.to_thread(comes_true, lambda: len(sleeping_pids(nap)) == ESCAPED + 1)
    assert len(sleeping_pids(nap)) == ESCAPED + 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleeping_pids(nap) == []


@pytest.mark.contract("T14", "C1")
async def test_a_second_cancel_returns_at_once_and_all_ends_all_the_same(
    shell: WorkspaceShell, nap: str
) -> None:
    task = asyncio.create_task(run(shell, f"trap '' TERM; {escape_command(nap)} sleep {nap}"))
    await asyncio.to_thread(comes_true, lambda: len(sleeping_pids(nap)) == ESCAPED + 1)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(comes_true, lambda: not sleeping_pids(nap))


@pytest.mark.contract("T14")
async def test_what_a_command_leaves_running_ends_with_it(shell: WorkspaceShell, nap: str) -> None:
    result = await run(shell, f"{escape_command(nap)} sleep 0.2; echo done")
    assert sleeping_pids(nap) == []
    assert result.text.startswith("done\n[exit code 0;")
    if shell.sandbox.tier == "process":
        assert "left running were ended" in result.text


@pytest.mark.contract("T5")
async def test_a_command_may_clean_up_within_its_grace(
    shell: WorkspaceShell, tmp_path: Path
) -> None:
    command = "trap 'echo bye > note; exit 0' TERM; sleep 20 & wait"
    result = await run(shell, command, timeout_s=0.5)
    assert result.kind == "timed_out"
    assert (tmp_path / "note").read_text() == "bye\n"


@pytest.mark.contract("T14")
async def test_a_fork_bomb_is_defused(shell: WorkspaceShell, nap: str) -> None:
    """A tame one: each of its processes starts the next, for as long as it lives."""
    (shell.sandbox.root / "bomb").write_text(
        f'[ "$1" -lt 150 ] && (setsid sh bomb $(($1 + 1)) &)\nexec sleep {nap}\n'
    )
    await run(shell, "sh bomb 0", timeout_s=0.4)
    assert not await asyncio.to_thread(comes_true, lambda: sleeping_pids(nap), 0.5)


@pytest.mark.contract("T14")
async def test_a_command_that_kills_its_supervisor_takes_itself_along(
    tmp_path: Path, nap: str
) -> None:
    plain = open_shell(tmp_path, sandbox=Sandbox(require="process"))
    command = f"setsid sleep {nap} & sleep 0.2; kill -KILL $PPID; sleep {nap}"
    result = await run(plain, command)
    assert sleeping_pids(nap) == []
    assert result.kind == "error"
    assert "it was lost" in result.text
    assert zombie_children() == []


@pytest.mark.contract("T14")
async def test_a_supervisor_that_does_not_answer_is_ended_with_all_below_it(
    tmp_path: Path, nap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with what has thrown its marker away."""
    monkeypatch.setattr(jobs, "SUPERVISOR_SLACK_S", -jobs.KILL_S)
    plain = open_shell(tmp_path, sandbox=Sandbox(require="process"))
    command = f"{escape_command(nap)} sleep 0.2; kill -STOP $PPID; sleep {nap}"
    result = await run(plain, command, timeout_s=0.5)
    assert sleeping_pids(nap) == []
    assert "it was lost" in result.text
    assert zombie_children() == []


@pytest.mark.contract("T14", "C1")
async def test_a_cancel_at_the_very_start(shell: WorkspaceShell, nap: str) -> None:
    """Before the supervisor has heard what to run, or just as it does."""
    for wait_s in (0, 0, 0.005, 0.01, 0.02, 0.04, 0.08):
        task = asyncio.create_task(run(shell, f"{escape_command(nap)} sleep {nap}"))
        await asyncio.sleep(wait_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sleeping_pids(nap) == []


@pytest.mark.contract("T14", "T5", "C4")
async def test_through_a_toolbox(shell: WorkspaceShell, nap: str) -> None:
    """The toolbox's own grace is enough to see all dead."""
    box = Toolbox(shell.tools)
    reports: list[str] = []
    call = cleared_call(box.specs[0], {"command": f"echo up; {escape_command(nap)} sleep {nap}"})
    task = asyncio.create_task(box.run(call, call_context(reports)))
    await asyncio.to_thread(comes_true, lambda: len(sleeping_pids(nap)) == ESCAPED + 1)
    assert reports == ["up"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleeping_pids(nap) == []


@pytest.mark.contract("C1")
async def test_what_must_be_hidden_is_not_looked_for_on_the_event_loop(
    shell: WorkspaceShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C1: a large workspace takes a while to look through, and other runs must not wait for it."""
    planned_in: list[threading.Thread] = []
    wrap_command = ActiveSandbox.wrap_command

    def note_thread(self: ActiveSandbox, *arguments: Any, **options: Any) -> list[str]:
        planned_in.append(threading.current_thread())
        return wrap_command(self, *arguments, **options)

    monkeypatch.setattr(ActiveSandbox, "wrap_command", note_thread)
    assert "hello" in (await run(shell, "echo hello")).text
    assert threading.current_thread() not in planned_in
    assert planned_in


async def test_the_registry_holds_only_what_runs(shell: WorkspaceShell, tmp_path: Path) -> None:
    await run(shell, "true")
    (file,) = (tmp_path / ".windlass" / "processes").glob("*.json")
    assert '"calls": {}' in file.read_text()
    shell.close()
    assert not file.exists()


# ── in the background ────────────────────────────────────────────────────────


@pytest.mark.contract("T13")
async def test_a_background_command_is_read_and_ended_by_its_handle(
    shell: WorkspaceShell, nap: str
) -> None:
    handle = await start(shell, f"echo one; {escape_command(nap)} sleep 0.4; echo two; sleep {nap}")
    assert "still running" in await read(shell, handle)
    await asyncio.to_thread(comes_true, lambda: shell.find_job("s", handle).output.total_bytes == 8)
    first = await read(shell, handle)
    assert first.startswith("one\ntwo\n[still running; continue with since=8;")
    assert (await read(shell, handle, since=4)).startswith("two\n[still running")
    assert (await read(shell, handle, since=8)).startswith("(no output)\n[still running")
    ended = await shell.tools[2](context(), handle)
    assert ended.text.startswith("one\ntwo\n[stopped;")
    assert sleeping_pids(nap) == []
    again = await shell.tools[2](context(), handle)
    assert again.text == ended.text


async def test_waiting_for_a_background_command(shell: WorkspaceShell) -> None:
    handle = await start(shell, "sleep 0.3; echo done; exit 7")
    told = await read(shell, handle, wait_s=20.0)
    assert told.startswith("done\n[exit code 7;")


async def test_a_background_command_may_have_a_time(shell: WorkspaceShell, nap: str) -> None:
    handle = await start(shell, f"sleep {nap}", timeout_s=0.3)
    assert "timed out" in await read(shell, handle, wait_s=20.0)


async def test_handles_belong_to_their_session(shell: WorkspaceShell) -> None:
    handle = await start(shell, "sleep 20")
    with pytest.raises(ModelRetry, match="There are none"):
        await read(shell, handle, session="other")
    with pytest.raises(ModelRetry, match=handle):
        await read(shell, "bg-0")


async def test_the_number_of_background_commands_is_bounded(shell: WorkspaceShell) -> None:
    handles = [await start(shell, "sleep 20") for _ in range(2)]
    with pytest.raises(ModelRetry, match="2 background commands"):
        await start(shell, "true")
    await shell.tools[2](context(), handles[0])
    await start(shell, "true")


def test_a_background_command_outlives_an_event_loop_but_not_the_shell(
    shell: WorkspaceShell, nap: str
) -> None:
    handle = asyncio.run(start(shell, f"{escape_command(nap)} sleep {nap}"))
    assert comes_true(lambda: len(sleeping_pids(nap)) == ESCAPED + 1)
    assert "still running" in asyncio.run(read(shell, handle))
    shell.close()
    assert sleeping_pids(nap) == []


# ── what is kept of the output ───────────────────────────────────────────────


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=12), st.integers(0, 60), st.data())
def test_head_and_tail_are_kept_from_any_position_on(
    chunks: list[bytes], half: int, data: st.DataObject
) -> None:
    """T10: all of what fits; else the two ends, and the number of bytes between."""
    half = max(1, half)
    output = OutputBuffer(2 * half)
    for chunk in chunks:
        output.add_data(bytes(97 + byte % 26 for byte in chunk))
    whole = "".join(chr(97 + byte % 26) for chunk in chunks for byte in chunk)
    since = data.draw(st.integers(0, len(whole)))
    text, total = output.read_text(since)
    assert total == len(whole)
    first = min(half, len(whole))
    last = max(first, len(whole) - half)
    gap = last - max(since, first)
    if gap <= 0:
        assert text == whole[since:]
    else:
        head, note, tail = text.split("\n")
        assert (head, tail) == (whole[since:first], whole[last:])
        assert f" {gap} bytes " in note
