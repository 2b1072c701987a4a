"""Real places for commands to run in: a container of an image made here, and a machine by SSH."""

import os
import pwd
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from windlass.tools.shell.sandbox import DEFAULT_PATH
from windlass.tools.shell.tiers import Container, RemoteMachine, find_container

IMAGE = "localhost/windlass-tests:busybox"
# Root's limits may be lower here than those that an engine sets by default.
_LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
_APPLETS = (
    *("cat", "chmod", "echo", "env", "id", "kill", "ln", "ls", "mkdir", "mount", "nc", "nohup"),
    *("printf", "ps", "rm", "setsid", "sh", "sleep", "tail", "touch", "true", "unshare"),
)


@cache
def find_test_container() -> Container | str:
    """Return a container that works here, or the reason why there is none."""
    if os.environ.get("WINDLASS_NO_CONTAINERS"):
        return "containers are switched off"
    busybox = next((p for p in ("/bin/busybox", "/usr/bin/busybox") if Path(p).exists()), None)
    podman = shutil.which("podman", path=DEFAULT_PATH)
    if podman is None or busybox is None:
        return "podman and a static busybox are not installed"
    _make_image(podman, busybox)
    fault = ""
    for flags in ((), ("--runtime=runc",), ("--runtime=crun",)):
        for limits in ((), _LIMITS):
            container = Container(
                image=IMAGE, engine="podman", engine_flags=flags, run_flags=limits
            )
            fault = find_container(container).fault
            if not fault:
                return container
    return fault


def _make_image(podman: str, busybox: str) -> None:
    target = Path(f"/tmp/windlass-image-{os.getpid()}.tar")
    with tarfile.open(target, "w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in _APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for name in ("etc", "tmp", "proc", "dev", "sys", "root"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
    subprocess.run([podman, "import", str(target), IMAGE], check=False, capture_output=True)
    target.unlink()


def require_container() -> Container:
    found = find_test_container()
    if isinstance(found, str):
        pytest.skip(f"no container can run here: {found}")
    return found


@contextmanager
def serving_ssh(folder: Path, workspace: Path) -> Iterator[RemoteMachine]:
    """Run a real SSH server on this machine, with keys of its own."""
    sshd = shutil.which("sshd", path=DEFAULT_PATH)
    if sshd is None:
        pytest.skip("sshd is not installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    host_key = (folder / "host.pub").read_text()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host_key}")
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    server = subprocess.Popen(
        [sshd, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port)
        user = pwd.getpwuid(os.geteuid()).pw_name
        yield RemoteMachine(
            host=f"{user}@127.0.0.1",
            folder=str(workspace),
            port=port,
            identity=folder / "user",
            known_hosts=folder / "known",
        )
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the SSH server did not start")
