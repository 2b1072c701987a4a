"""The command line as a newcomer has it: an empty home, an empty project, no key."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import windlass.project.files
from cli_types import Cli
from windlass.cli import main
from windlass.testing.fault_server import FaultServer, serve_in_thread
from windlass_shell import WindlassShell

KEY = "sk-test-0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of this machine's settings shows."""
    place = tmp_path / "home"
    place.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(place))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "WINDLASS_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(windlass.project.files, "SYSTEM_FILE", tmp_path / "etc" / "config.toml")
    return place


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which is where we are."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def cli(project: Path) -> Cli:
    """`windlass ARGS…` in the project."""

    def call(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, args, input=stdin, prog_name="windlass")

    return call


@pytest.fixture
def server(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    """A provider with a script; `openai-chat:m` is asked there."""
    with serve_in_thread(FaultServer()) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield running


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[WindlassShell]:
    """A shell in an empty project; `openai-chat:m` is asked at its server."""
    with serve_in_thread(FaultServer()) as running:
        yield WindlassShell(tmp_path, running)
