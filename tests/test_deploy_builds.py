"""The image and the installation for systemd, built from what they copy and nothing else.

There is no container engine here. The steps of the container file that build are replayed in an
empty folder, with the files that `.dockerignore` leaves, in an environment without our own.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest

from certificates import make_certificate
from deploy_files import DEPLOY, read_instructions, read_unit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = DEPLOY.parent
APP = """
from windlass import Agent
from windlass.testing import ScriptedModel

agents = Agent(ScriptedModel(["Hello."] * 9), name="greeter")
"""
FOREIGN_VARIABLES = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
READY_S = 60.0


def plain_environment(**more: str) -> dict[str, str]:
    """Return the environment without what would let a build find our own packages."""
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
    ours = str(Path(sys.executable).parent)
    paths = [path for path in kept["PATH"].split(":") if path != ours]
    base = str(Path(sys.base_prefix) / "bin")
    return {**kept, "PATH": ":".join([base, *paths]), **more}


def is_ignored(name: str) -> bool:
    """Return whether `.dockerignore` leaves a file out: the last rule that fits decides."""
    ignored = False
    parts = name.split("/")
    starts = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!")
        tried = parts if pattern.startswith("**/") else starts
        if any(fnmatch(start, pattern.removeprefix("**/")) for start in tried):
            ignored = not rule.startswith("!")
    return ignored


def copy_context(to: Path) -> None:
    """Copy what a container engine would be given of this folder."""
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in filter(None, listed.splitlines()):
        if not is_ignored(name) and (ROOT / name).is_file():
            target = to / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)


class Replay:
    """The first stage of the container file, with its absolute paths below a folder."""

    def __init__(self, root: Path, context: Path, arguments: dict[str, str]) -> None:
        self._root = root
        self._context = context
        self._variables = plain_environment()
        self._arguments = arguments
        self._folder = root

    def run(self) -> None:
        """Follow the instructions up to the second stage."""
        stages = 0
        for name, text in read_instructions():
            stages += name == "FROM"
            if stages > 1:
                return
            getattr(self, f"do_{name.lower()}")(text)

    def do_from(self, _image: str) -> None:
        pass

    def do_arg(self, text: str) -> None:
        name, _, default = text.partition("=")
        self._variables[name] = self._arguments.get(name, default.strip('"'))

    def do_env(self, text: str) -> None:
        self._variables |= dict(pair.split("=", 1) for pair in shlex.split(text))

    def do_workdir(self, text: str) -> None:
        self._folder = self._place(text)
        self._folder.mkdir(parents=True, exist_ok=True)

    def do_copy(self, text: str) -> None:
        *sources, target = text.split()
        place = self._place(target)
        for source in (self._context / each for each in sources):
            if source.is_dir():
                shutil.copytree(source, place)
            else:
                into = place / source.name if target.endswith("/") else place
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, into)

    def do_run(self, text: str) -> None:
        moved = re.sub(r"(?<=\s)(/opt/\S+)", lambda found: f"{self._root}{found[0]}", text)
        done = subprocess.run(
            ["sh", "-c", moved],
            cwd=self._folder,
            env=self._variables,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def _place(self, path: str) -> Path:
        return self._root / path[1:] if path.startswith("/") else self._folder / path


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image holds below /opt/windlass, with one extra."""
    context = tmp_path_factory.mktemp("context")
    root = tmp_path_factory.mktemp("image")
    copy_context(context)
    Replay(root, context, {"EXTRAS": "postgres"}).run()
    return root / "opt" / "windlass"


@dataclass(frozen=True, slots=True)
class Running:
    """A service that was started as a deployment starts it."""

    url: str
    token: str
    port: int

    def ask(self, path: str, body: Any = None) -> Any:
        """Send a request, and return the reply."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        request = Request(self.url + path, data, headers)
        with urlopen(request, timeout=10, context=unchecked) as reply:
            return msgspec.json.decode(reply.read())

    def wait_until_ready(self) -> None:
        """Wait until the service takes work."""
        ends = time.monotonic() + READY_S
        while True:
            try:
                assert self.ask("/readyz")["status"] == "ready"
            except OSError:
                assert time.monotonic() < ends, "the service does not become ready"
                time.sleep(0.2)
            else:
                return

    def run_once(self) -> None:
        """Start a run, and wait for its end."""
        session = self.ask("/runs", {"prompt": "Hi."})["session"]
        ends = time.monotonic() + READY_S
        while self.ask(f"/runs/{session}")["summary"]["state"] != "completed":
            assert time.monotonic() < ends
            time.sleep(0.1)


@contextmanager
def serve_by(
    command: list[str], *, folder: Path, variables: dict[str, str], scheme: str = "http"
) -> Generator[Running]:
    """Start a command that serves, and stop it as an orchestrator does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # A bare machine: nothing of this environment but the path.
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    program = command[0]
    made = subprocess.check_output([program, "token", "create", "ann"], env=variables, cwd=folder)
    token = re.search(rb"wl_[A-Za-z0-9_-]+", made)
    assert token is not None
    with subprocess.Popen(
        [*command, "--port", str(port)], cwd=folder, env=variables, stderr=subprocess.PIPE
    ) as process:
        running = Running(f"{scheme}://127.0.0.1:{port}", token[0].decode(), port)
        try:
            running.wait_until_ready()
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        assert process.returncode == 0


def check_health(image: Path, running: Running) -> int:
    """Run the health check of the image against a port, and return its exit code."""
    [check] = [text for name, text in read_instructions() if name == "HEALTHCHECK"]
    program, script = msgspec.json.decode(check.partition("CMD ")[2], type=list[str])
    command = [str(image / "bin" / program), str(image / Path(script).name)]
    variables = {"WINDLASS_HEALTH_PORT": str(running.port)}
    return subprocess.run(command, env=variables, check=False).returncode


def test_the_image_holds_what_its_extras_need_and_no_more(image: Path) -> None:
    [packages] = (image / "lib").glob("python3.*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert {"windlass", "asyncpg", "cryptography"} <= names
    assert names.isdisjoint({"pip", "hatchling", "mcp", "pytest", "pydantic"})
    size = sum(file.stat().st_size for file in image.rglob("*") if file.is_file())
    assert size < 200 * 2**20


def test_the_image_starts_answers_and_runs(image: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    variables = {"WINDLASS_JOURNAL": str(tmp_path / "journal.db")}
    command = [str(image / "bin" / "windlass"), "serve", "app:agents", "--no-login"]
    with serve_by(command, folder=tmp_path, variables=variables) as running:
        running.run_once()
        assert check_health(image, running) == 0
    assert check_health(image, running) == 1


def test_the_health_check_works_with_tls(image: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    certificate, key = make_certificate(tmp_path)
    command = [
        *(str(image / "bin" / "windlass"), "serve", "app:agents", "--no-login"),
        *("--tls-cert", str(certificate), "--tls-key", str(key)),
    ]
    variables = {"WINDLASS_JOURNAL": str(tmp_path / "journal.db")}
    with serve_by(command, folder=tmp_path, variables=variables, scheme="https") as running:
        running.run_once()
        assert check_health(image, running) == 0


def test_the_installation_for_systemd_starts_answers_and_runs(image: Path, tmp_path: Path) -> None:
    """The environment is the one of the image: both are made by the same script."""
    deploy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, deploy)
    (deploy / "build.sh").write_text(f'ln -s {image} "$1"\n')
    app = tmp_path / "my_agents.py"
    app.write_text(APP)
    root = tmp_path / "root"
    install = ["sh", str(deploy / "install.sh"), str(app)]
    for _ in range(2):  # The second one is an upgrade, of a journal that is there.
        subprocess.run(install, env=plain_environment(DESTDIR=str(root)), check=True)
        time.sleep(1)  # A release is named after the second in which it was made.
        environment = root / "etc/windlass/environment"
        assert environment.stat().st_mode & 0o777 == 0o600
        pairs = [line.split("=", 1) for line in environment.read_text().splitlines()]
        service = read_unit("windlass.service")["Service"]
        assert (root / "etc/systemd/system/windlass.service").is_file()
        command = shlex.split(service["ExecStart"].replace("/opt/", f"{root}/opt/"))
        folder = root / service["WorkingDirectory"][1:]
        assert service["EnvironmentFile"] == "/etc/windlass/environment"
        command[command.index("--drain-delay") + 1] = "0"
        with serve_by(command, folder=folder, variables=dict(pairs)) as running:
            running.run_once()
    assert len(list((root / "opt").glob("windlass-*"))) == 2
    assert (root / "var/lib/windlass/journal.db").is_file()
