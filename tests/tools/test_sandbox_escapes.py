"""Ways out of the sandbox that were found once: each is tried again here.

What an attacker would run runs inside of bubblewrap. What it would bring to run outside only writes
a file, whose absence is checked.
"""

import asyncio
import ctypes
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import windlass
from shells import require_tier
from windlass.core.errors import ModelRetry
from windlass.environ import live_socket_folder, signing_key_folder
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.tools.files.grep import GrepQuery, search_files
from windlass.tools.files.workspace import Workspace
from windlass.tools.helper_programs import base_python
from windlass.tools.run_context import RunContext
from windlass.tools.shell import sandbox as module
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import open_shell
from windlass.tools.shell.socket_filter import build_socket_filter

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T13")]

CONNECT = """
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    print("through")
except OSError:
    print("shut")
"""

INSTALLED = """
import asyncio, sys
from pathlib import Path
import windlass
from windlass.tools.files.grep import GrepQuery, search_files
from windlass.tools.files.workspace import Workspace
from windlass.tools.run_context import RunContext
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import open_shell

root = Path(sys.argv[1])
assert Path(windlass.__file__).is_relative_to(root), windlass.__file__
context = RunContext(deps=None)
shell = open_shell(root, sandbox=Sandbox(require="bubblewrap"))

async def main():
    if sys.argv[2] == "inside":
        await shell.tools[0](context, sys.argv[3])
    else:
        exec(sys.argv[3])
    print((await shell.tools[0](context, "echo still works")).text)
    query = GrepQuery("need.e", "hay", None, False, 0, 5)
    print(await asyncio.to_thread(search_files, Workspace(root), query, context))

asyncio.run(main())
shell.close()
"""

PYTHON = Path(sys.base_prefix)
"""Python may be in a home folder, which is hidden."""
HELPERS = ("processes.py", "shell/supervisor.py", "files/grep_worker.py")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require_tier("bubblewrap")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "hay").write_text("a needle\n")
    return tmp_path / "work"


async def run(root: Path, command: str, sandbox: Sandbox | None = None) -> str:
    shell = open_shell(root, sandbox=sandbox or Sandbox(require="bubblewrap"))
    try:
        result = await shell.tools[0](RunContext(deps=None), command)
    finally:
        shell.close()
    return result.text.rpartition("\n[")[0]


# ── Windlass installed in the workspace ──────────────────────────────────────


def run_installed_in(root: Path, where: str, attack: str) -> str:
    """Start a Windlass that is installed in the workspace, attack it, and use its helpers."""
    packages = root / "env" / "lib" / "site-packages"
    if not packages.exists():
        shutil.copytree(Path(windlass.__path__[0]), packages / "windlass")
    done = subprocess.run(
        [sys.executable, "-P", "-c", INSTALLED, str(root), where, attack],
        env={**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("is_moved", [False, True], ids=["overwritten", "moved away"])
def test_a_command_cannot_change_the_code_of_our_helpers(root: Path, *, is_moved: bool) -> None:
    """The supervisor of the next command runs outside of the sandbox."""
    mark = root.parent / "escaped"
    payload = f"open({str(mark)!r}, 'w')"
    tools = "env/lib/site-packages/windlass/tools"
    attack = "; ".join(f'echo "{payload}" > {tools}/{name}' for name in HELPERS)
    if is_moved:
        attack = f"mv env old; cp -r old env; {attack}"
    out = run_installed_in(root, "inside", attack)
    assert not mark.exists()
    assert "still works" in out
    assert "hay:1:a needle" in out
    for name in HELPERS:
        assert payload not in (root / tools / name).read_text()
    # What the same command would do to the next start of Windlass is prevented as well.
    run_installed_in(root, "inside", f'echo "{payload}" >> {tools}/../__init__.py')
    run_installed_in(root, "inside", "true")
    assert not mark.exists()


def test_helpers_run_what_was_read_at_the_start(root: Path) -> None:
    """Even if their files were changed from outside of the sandbox meanwhile."""
    mark = root.parent / "escaped"
    tools = root / "env" / "lib" / "site-packages" / "windlass" / "tools"
    names = [str(tools / name) for name in HELPERS]
    payload = f"open({str(mark)!r}, 'w')"
    attack = f"for name in {names}: Path(name).write_text({payload!r})"
    out = run_installed_in(root, "outside", attack)
    assert not mark.exists()
    assert "still works" in out
    assert "hay:1:a needle" in out


async def test_the_environment_can_be_opened_on_purpose(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = root / "env" / "site-packages"
    packages.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(packages), *sys.path])
    command = "touch env/site-packages/new 2>/dev/null && echo changed || echo kept"
    assert await run(root, command) == "kept"
    opened = Sandbox(require="bubblewrap", writable=(packages,))
    assert await run(root, command, opened) == "changed"


async def test_no_program_is_taken_from_the_workspace(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the workspace may be on PATH, and `rg` and `bwrap` run outside of the sandbox."""
    mark = root.parent / "escaped"
    (root / "bin").mkdir()
    for name in ("rg", "bwrap"):
        (root / "bin" / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (root / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}/bin:bin:{os.environ['PATH']}")
    monkeypatch.chdir(root)
    module._probe_cached.cache_clear()
    query = GrepQuery("needle", ".", None, ignore_case=False, context=0, matches_max=5)
    assert search_files(Workspace(root), query, RunContext(deps=None)) == "hay:1:a needle"
    assert await run(root, "echo confined") == "confined"
    assert not mark.exists()


async def test_no_program_is_taken_from_the_repository_around_the_workspace(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent works in one folder of a repository, and another one is on PATH."""
    mark = root.parent / "escaped"
    part = root / "part"
    part.mkdir()
    (part / "hay").write_text("a needle\n")
    (root / ".git").mkdir()
    (root / "bin").mkdir()
    for name in ("rg", "bwrap"):
        (root / "bin" / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (root / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}/bin")
    monkeypatch.setattr(module, "DEFAULT_PATH", "/nowhere")
    module._probe_cached.cache_clear()
    module._can_confine_helpers.cache_clear()
    assert not module.probe_bubblewrap(root=part).program.startswith(str(root))
    query = GrepQuery("needle", ".", None, ignore_case=False, context=0, matches_max=5)
    assert search_files(Workspace(part), query, RunContext(deps=None)) == "hay:1:a needle"
    module._probe_cached.cache_clear()
    module._can_confine_helpers.cache_clear()
    assert not mark.exists()


READ_KEY = """
import ctypes, sys
libc = ctypes.CDLL(None)
search, name, serial = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
found = [libc.syscall(search, 10, ring, b"user", name, 0) for ring in (-3, -4, -5)]
text = ctypes.create_string_buffer(64)
for key in (*found, serial):
    if key > 0 and libc.syscall(search, 11, key, text, 64) > 0:
        print(text.value.decode())
print("searched")
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="knows the numbers of one processor")
async def test_keys_of_the_kernel_cannot_be_read(root: Path) -> None:
    """No namespace hides the keyring of a login, which holds tickets and passwords."""
    libc = ctypes.CDLL(None)
    add_key = 248
    keyctl = 250
    serials = [
        libc.syscall(add_key, b"user", b"windlass-test", b"hush", 4, ring) for ring in (-3, -4)
    ]
    if min(serials) < 0:
        pytest.skip("this kernel has no keyrings for us")
    try:
        (root / "read_key.py").write_text(READ_KEY)
        for serial in serials:
            output = await run(root, f"python3 read_key.py {keyctl} windlass-test {serial}")
            assert output == "searched"
    finally:
        for serial in serials:
            libc.syscall(keyctl, 3, serial)


# ── sockets ──────────────────────────────────────────────────────────────────


@pytest.fixture(params=["workspace", "readable", "system"])
def socket_folder(request: pytest.FixtureRequest, root: Path) -> Iterator[Path]:
    match request.param:
        case "workspace":
            yield root
        case "readable":
            (root.parent / "service").mkdir()
            yield root.parent / "service"
        case _:
            if not os.access("/opt", os.W_OK):
                pytest.skip("only root can put a socket there")
            with tempfile.TemporaryDirectory(dir="/opt") as folder:
                yield Path(folder)


@pytest.mark.parametrize("network", [False, True])
async def test_services_cannot_be_reached_by_their_sockets(
    root: Path, socket_folder: Path, *, network: bool
) -> None:
    """A read-only mount does not stop a connection, and a container engine's socket is root."""
    path = socket_folder / "a service.sock"
    readable = (PYTHON,) if socket_folder == root else (PYTHON, socket_folder)
    options = Sandbox(require="bubblewrap", readable=readable, network=network)
    command = f"{base_python()} -c '{CONNECT}' '{path}'"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(0.1)
        assert await run(root, command, options) == "shut"
        with pytest.raises(TimeoutError):
            server.accept()


async def test_commands_can_use_sockets_of_their_own(root: Path) -> None:
    """Test suites do: databases, and pools of worker processes."""
    own = "import socket as s; a = s.socket(s.AF_UNIX); a.bind('own'); a.listen(); "
    own += "b = s.socket(s.AF_UNIX); b.connect('own'); print('through')"
    options = Sandbox(require="bubblewrap", readable=(PYTHON,))
    assert await run(root, f'{base_python()} -c "{own}"', options) == "through"


LATE = """
import asyncio, os, socket, sys, time
def try_to_connect():
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(sys.argv[1])
        return "through"
    except PermissionError:
        return "refused"
    except OSError:
        return ""
print("ready", flush=True)
while not (found := try_to_connect()):
    time.sleep(0.01)
print(found)
"""

OTHER_WAYS = """
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
def is_refused(*call):
    return libc.syscall(*call) == -1 and ctypes.get_errno() == 1
pair = (ctypes.c_int * 2)()
print("datagrams", is_refused(SOCKETPAIR, 1, 2, 0, pair))
print("raw", is_refused(SOCKETPAIR, 1, 3, 0, pair))
print("flags", is_refused(SOCKET, 1, 1 | 0o2000000 | 0o4000, 0))
print("ring", is_refused(425, 1, None))
a, b = socket.socketpair()
a.sendall(b"own pair works")
print(b.recv(99).decode())
socket.socket(socket.AF_INET).close()
"""


async def run_in_background(root: Path, command: str, sandbox: Sandbox, after_start: object) -> str:
    """What a background command prints; `after_start` is called once it has printed a line."""
    shell = open_shell(root, sandbox=sandbox)
    context = RunContext(deps=None)
    try:
        started = await shell.tools[0](context, command, background=True)
        handle = started.text.split('"')[1]
        while "ready" not in await shell.tools[1](context, handle, wait_s=0.01):
            pass
        if callable(after_start):
            after_start()
        return await shell.tools[1](context, handle, wait_s=20)
    finally:
        shell.close()


@pytest.mark.contract("T13")
@pytest.mark.parametrize("unix_sockets", [None, False], ids=["default", "off"])
async def test_a_background_command_cannot_reach_a_socket_that_comes_later(
    root: Path, *, unix_sockets: bool | None
) -> None:
    """What exists at the start is hidden; a background command could wait for the next one."""
    path = root / "late.sock"
    options = Sandbox(require="bubblewrap", readable=(PYTHON,), unix_sockets=unix_sockets)
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(0.1)

        def open_service() -> None:
            server.bind(str(path))
            server.listen()

        command = f"exec {base_python()} -c '{LATE}' '{path}'"
        assert "refused" in await run_in_background(root, command, options, open_service)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.contract("T13")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its system calls")
async def test_there_is_no_way_around_the_filter_of_sockets(root: Path) -> None:
    options = Sandbox(require="bubblewrap", readable=(PYTHON,), unix_sockets=False)
    ways = OTHER_WAYS.replace("SOCKETPAIR", "53").replace("SOCKET,", "41,")
    (root / "ways.py").write_text(ways)
    told = await run(root, f"{base_python()} ways.py", options)
    assert told.splitlines() == [
        *("datagrams True", "raw True", "flags True", "ring True"),
        "own pair works",
    ]


def test_the_filter_knows_two_processors_and_no_others() -> None:
    assert build_socket_filter("x86_64") != build_socket_filter("aarch64")
    assert build_socket_filter("mips") == b""


# ── the journal ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
@pytest.mark.parametrize("folder", ["", "state/sessions"])
async def test_a_journal_in_the_workspace_is_out_of_reach(
    root: Path, folder: str, *, is_open: bool
) -> None:
    """A command that writes into it could give a person's answer."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    path = root / folder / "agent.db"
    with SqliteJournal(path) as journal:
        if not is_open:
            journal.close()
        before = path.read_bytes()
        attack = f"""
            cd ./{folder}; cat agent.db* 2>/dev/null | wc -c
            for name in agent.db agent.db-wal agent.db-shm agent.db-journal agent.db-drivers; do
                (echo forged > $name) 2>/dev/null && cat $name
                echo forged > other; mv -f other $name 2>/dev/null && cat $name
                rm -f $name 2>/dev/null && echo removed $name
            done
            cd {root}
            mv state moved 2>/dev/null && echo moved away
            mv state/sessions moved 2>/dev/null && echo moved away
        """
        told = await run(root, attack)
        assert "forged" not in told
        assert "removed" not in told
        assert "away" not in told
        assert told.splitlines()[0] == "0", "nothing of it can be read either"
        assert path.read_bytes() == before
        for side_file in path.parent.glob("agent.db-*"):
            assert b"forged" not in side_file.read_bytes()
    with SqliteJournal(path) as journal:
        assert await journal.check() == []


async def test_the_sockets_of_drivers_are_out_of_reach(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is made while the command runs: deltas of others could be read by it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    look = "for at in 1 2 3 4 5 6 7 8 9 10; do ls -A state/windlass/live; sleep 0.1; done"
    command = f"{look}; mv state moved && echo moved away; echo looked"
    with SqliteJournal(root.parent / "elsewhere.db") as journal:
        looking = asyncio.create_task(run(root, f"({command}) 2>&1"))
        await asyncio.sleep(0.3)
        sender = journal.open_live("s", lambda _: None)
        told = await looking
        assert len(list(live_socket_folder().iterdir())) == 1
        sender.close()
    assert told.splitlines()[-1] == "looked"
    assert "moved away" not in told
    assert "-" not in "".join(line for line in told.splitlines() if "mv" not in line)


async def test_the_key_of_the_user_is_out_of_reach(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: with it, a command could answer in a person's place; also if it is in the workspace."""
    monkeypatch.setenv("XDG_DATA_HOME", str(root / "data"))
    with SqliteJournal(root / "agent.db"):
        key = signing_key_folder() / "journal.key"
        assert key.is_file()
        told = await run(root, "ls -A data/windlass/keys; cat data/windlass/keys/* 2>&1; echo end")
        assert key.name not in told
        assert told.splitlines()[-1] == "end"
        with pytest.raises(ModelRetry, match="belongs to Windlass"):
            Workspace(root).read_file("data/windlass/keys/journal.key", 10)


async def test_the_file_tools_do_not_touch_a_journal_either(root: Path) -> None:
    workspace = Workspace(root)
    (root / "link").symlink_to("agent.db")
    with SqliteJournal(root / "agent.db"):
        for name in ("agent.db", "./agent.db-wal", "link", "agent.db-journal"):
            with pytest.raises(ModelRetry, match="belongs to Windlass"):
                workspace.read_file(name, 10)
            with pytest.raises(ModelRetry, match="belongs to Windlass"):
                workspace.write_file(name, b"forged")
        query = GrepQuery("SQLite", ".", None, ignore_case=False, context=0, matches_max=5)
        assert "agent.db" not in search_files(workspace, query, RunContext(deps=None))
