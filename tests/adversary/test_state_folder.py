"""A repository that brings its own registry of running commands, to have files of the user removed.

The folder `.windlass/processes` is read and cleaned when a run is resumed: before anything of the
project was trusted.
"""

import os
import secrets
from pathlib import Path

import pytest

from windlass.tools.shell.reaper import ProcessReaper
from windlass.tools.shell.shell_tools import STATE_FOLDER, open_shell

pytestmark = [pytest.mark.slow, pytest.mark.contract("T13")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "docker").mkdir(parents=True)
    (folder / "docker" / "config.json").write_text("{}")
    (folder / "docker" / f"{secrets.token_hex(16)}.json").write_text("{}")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder


@pytest.mark.parametrize("link", [".windlass", ".windlass/processes"])
def test_a_link_in_the_place_of_the_registry_leads_nowhere(home: Path, link: str) -> None:
    repo = home / "repo"
    (repo / link).parent.mkdir(parents=True)
    target = home / "docker"
    if link == ".windlass":
        (home / "processes").symlink_to(target)
        target = home
    (repo / link).symlink_to(target)
    assert (repo / STATE_FOLDER / "config.json").exists()
    before = sorted((home / "docker").iterdir())
    shell = open_shell(repo)
    assert shell.reaper.reap_leftovers() == []
    shell.reaper.register_command("true")
    assert sorted((home / "docker").iterdir()) == before
    assert shell.reaper.folder.is_relative_to(home / "state")


def test_only_registries_are_removed(tmp_path: Path) -> None:
    """A folder with files of others in it, and links to files elsewhere."""
    folder = tmp_path / "processes"
    folder.mkdir()
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (folder / f"{secrets.token_hex(16)}.json").symlink_to(outside)
    os.mkfifo(folder / f"{secrets.token_hex(16)}.json")
    (folder / "package.json").write_text("{}")
    (folder / f"{secrets.token_hex(16)}.json").write_text("[" * 100_000)
    left = folder / f"{secrets.token_hex(16)}.json"
    left.write_text("{}")
    assert ProcessReaper(folder).reap_leftovers() == []
    assert not left.exists()
    assert outside.exists()
    assert (folder / "package.json").exists()
    assert sum(path.is_symlink() or path.is_fifo() for path in folder.iterdir()) == 2
