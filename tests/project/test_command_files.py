"""U2: commands of a chat that are files of the user, or of a project that a person trusts."""

from dataclasses import replace
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.project.command_files import CommandFile, load_command_files
from windlass.project.effects import describe_effects
from windlass.project.snapshot import take_snapshot
from windlass.project.trust import ProjectFolder

pytestmark = pytest.mark.contract("U2")


def write_command(place: Path, name: str, text: str) -> None:
    folder = place / ".windlass" / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    return place


def test_a_project_offers_its_commands_only_once_it_is_trusted(home: Path, tmp_path: Path) -> None:
    """U2: and the person who trusts it is told of each; a changed file is another project."""
    project = tmp_path / "project"
    project.mkdir()
    write_command(project, "fix.md", "---\ndescription: mend it\n---\nFix issue $1.")
    write_command(project, "both.md", "The project's.")
    write_command(project, "bad name.md", "Never offered.")
    write_command(home, "both.md", "The user's.")
    snapshot = take_snapshot(project)
    folder = ProjectFolder(snapshot, is_trusted=False)
    assert list(load_command_files(folder)) == ["both"]
    found = load_command_files(replace(folder, is_trusted=True))
    assert (found["fix"].about, found["both"].body) == ("mend it", "The user's.")
    assert "bad name" not in found
    assert (found["fix"].is_own, found["both"].is_own) == (False, True)
    assert any("/fix" in line for line in describe_effects(snapshot))
    write_command(project, "fix.md", "Something else.")
    assert take_snapshot(project).digest != snapshot.digest


def test_arguments_fill_the_places() -> None:
    file = CommandFile("fix", "NUMBER", "Issue $1, twice $1. All: $ARGUMENTS")
    assert file.fill_in("7 'and more'") == "Issue 7, twice 7. All: 7 'and more'"
    assert CommandFile("go", "", "Go.").fill_in("now") == "Go.\n\nnow"
    assert CommandFile("go", "", "Go.").fill_in("") == "Go."
    # What is filled in is not read for places again.
    assert CommandFile("say", "", "Say $1").fill_in("'$1'") == "Say $1"
    with pytest.raises(ConfigError, match="takes 1 arguments: NUMBER"):
        file.fill_in("")


def test_a_broken_file_says_what_is_wrong_when_it_is_used(home: Path, tmp_path: Path) -> None:
    write_command(home, "broken.md", "---\ndescription: never ends\n")
    found = load_command_files(ProjectFolder(take_snapshot(tmp_path), is_trusted=True))
    with pytest.raises(ConfigError, match=r"broken\.md: its front matter"):
        found["broken"].fill_in("")
