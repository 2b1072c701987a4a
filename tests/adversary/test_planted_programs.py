"""A folder of strangers, with programs that have the names of those that Windlass runs itself."""

import os
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.tools.files.grep import GrepQuery, search_files
from windlass.tools.files.workspace import Workspace
from windlass.tools.helper_programs import find_program
from windlass.tools.mcp.config import McpStdio
from windlass.tools.mcp.stdio import start_server
from windlass.tools.run_context import RunContext
from windlass.tools.shell import sandbox as module
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import open_shell

pytestmark = [pytest.mark.contract("T13"), pytest.mark.realtime]
NAMES = ("rg", "bwrap", "bash", "sh", "git", "python3", "server")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that a planted program would make."""
    return tmp_path / "escaped"


@pytest.fixture
def repository(tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without `.git`, as from an archive, with programs in several places."""
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "stranger"
    for place in (root / "bin", root / "part" / "bin"):
        place.mkdir(parents=True)
        for name in NAMES:
            (place / name).write_text(f"#!/bin/sh\n: > {mark}\n")
            (place / name).chmod(0o755)
    (root / "part" / "hay").write_text("a needle\n")
    return root


def has_run(mark: Path) -> bool:
    return mark.exists()


@pytest.mark.parametrize(
    "entry",
    [
        *("bin", "./bin", "", ".", "../bin", "{root}/bin", "{root}/part/../bin"),
        *("{root}/part/bin", "{link}", "/proc/self/cwd/bin"),
    ],
)
def test_no_program_is_taken_from_what_a_stranger_wrote(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """In a part of it, by whatever name it is on PATH."""
    part = repository / "part"
    link = tmp_path / "link"
    link.symlink_to(repository / "bin")
    monkeypatch.chdir(part)
    monkeypatch.setenv("PATH", entry.format(root=repository, link=link))
    for name in NAMES:
        assert find_program(name, part) is None


def test_a_nested_repository_does_not_make_the_one_around_it_ours(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submodule has a `.git` of its own."""
    (repository / "part" / ".git").write_text("gitdir: ../.git/modules/part\n")
    monkeypatch.setenv("PATH", str(repository / "bin"))
    assert find_program("rg", repository / "part") is None


def test_programs_of_the_user_are_found(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders of the home folder are on PATH, and the workspace is in the home folder too."""
    own = tmp_path / ".local" / "bin"
    own.mkdir(parents=True)
    (own / "rg").write_text("#!/bin/sh\n")
    (own / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{repository}/bin:{own}")
    assert find_program("rg", repository / "part") == str(own / "rg")


def test_a_link_to_a_program_of_the_stranger_is_not_followed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "rg").symlink_to(repository / "bin" / "rg")
    monkeypatch.setenv("PATH", str(own))
    assert find_program("rg", repository / "part") is None


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["bin", "./bin", "../bin", "{root}/bin"])
async def test_nothing_planted_runs(
    repository: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """Neither for a search, nor for a command, whether a sandbox works or not."""
    part = repository / "part"
    monkeypatch.chdir(part)
    path = entry.format(root=repository)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(module, "DEFAULT_PATH", "/nowhere")
    module._probe_cached.cache_clear()
    module._can_confine_helpers.cache_clear()
    query = GrepQuery("needle", ".", None, ignore_case=False, context=0, matches_max=5)
    assert "a needle" in search_files(Workspace(part), query, RunContext(deps=None))
    for require in (None, "process"):
        shell = open_shell(part, sandbox=Sandbox(require=require), environ={"PATH": path})
        result = await shell.tools[0](RunContext(deps=None), "echo said")
        assert "said" in result.text
        shell.close()
    assert not has_run(mark)
    module._probe_cached.cache_clear()
    module._can_confine_helpers.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["bin", ".", ""])
async def test_a_server_of_the_user_is_not_looked_up_in_the_current_folder(
    repository: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """Their own settings name a program, and a folder of strangers has one of that name."""
    monkeypatch.chdir(repository / "part" if entry == "bin" else repository / "bin")
    with pytest.raises(ConfigError, match="there is no program 'server'"):
        await start_server(McpStdio(name="s", command="server", env={"PATH": entry}))
    path = os.pathsep.join((entry, "/usr/bin:/bin"))
    # What it starts in turn is not looked up there either.
    args = ("-c", "git --version")
    server = McpStdio(name="s", command="/bin/sh", args=args, env={"PATH": path})
    started = await start_server(server)
    assert "exit code 0" in await started.describe_exit()
    await started.stop()
    assert not has_run(mark)
