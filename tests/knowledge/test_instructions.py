"""`AGENTS.md`, from the root down to where the work is."""

import os
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.knowledge.instructions import FILE_BYTES_MAX, ProjectInstructions, read_instructions

pytestmark = pytest.mark.contract("X5")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    (top / "src" / "crane").mkdir(parents=True)
    (top / "AGENTS.md").write_text("Use tabs.\n")
    (top / "src" / "crane" / "AGENTS.md").write_text("\ufeffUse spaces.\r\nAlways.\n")
    return top


def test_the_root_comes_first_and_the_nearest_last(root: Path) -> None:
    read = read_instructions(root, root / "src" / "crane")
    assert read.sources == ("AGENTS.md", "src/crane/AGENTS.md")
    assert read.text == (
        "# From AGENTS.md\n\nUse tabs.\n\n# From src/crane/AGENTS.md\n\nUse spaces.\nAlways."
    )
    assert read_instructions(root).sources == ("AGENTS.md",)
    assert read_instructions(root, root / "src").sources == ("AGENTS.md",)


def test_the_alias_is_read_where_the_name_is_not(root: Path) -> None:
    (root / "CLAUDE.md").write_text("Not this.")
    (root / "src" / "CLAUDE.md").write_text("But this.")
    read = read_instructions(root, root / "src")
    assert read.sources == ("AGENTS.md", "src/CLAUDE.md")
    assert "Not this." not in read.text


def test_a_project_without_any_has_none(tmp_path: Path) -> None:
    assert read_instructions(tmp_path) == ProjectInstructions()


def test_a_link_out_of_the_root_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("The vault.")
    (root / "src" / "AGENTS.md").symlink_to(tmp_path / "secret.md")
    assert read_instructions(root, root / "src").sources == ("AGENTS.md",)


def test_a_link_inside_the_root_is(root: Path) -> None:
    (root / "src" / "AGENTS.md").symlink_to(root / "AGENTS.md")
    assert read_instructions(root, root / "src").text.count("Use tabs.") == 2


def test_a_folder_outside_of_the_root_is_refused(root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to(tmp_path)
    for folder in (tmp_path, root / "out", root / ".."):
        with pytest.raises(ConfigError, match="not inside"):
            read_instructions(root, folder)


def test_a_pipe_does_not_make_us_wait(root: Path) -> None:
    os.mkfifo(root / "src" / "AGENTS.md")
    assert read_instructions(root, root / "src").sources == ("AGENTS.md",)


def test_what_is_too_long_is_clipped_and_says_so(root: Path) -> None:
    (root / "AGENTS.md").write_text("ö" * FILE_BYTES_MAX)
    read = read_instructions(root, root / "src" / "crane")
    assert read.sources == ("AGENTS.md", "src/crane/AGENTS.md")
    assert "[AGENTS.md is longer; the rest was left out]" in read.text
    assert "\N{REPLACEMENT CHARACTER}" not in read.text
    small = read_instructions(root, root / "src" / "crane", bytes_max=100)
    assert small.sources == ("AGENTS.md",)
    assert len(small.text.encode()) < 250


def test_what_is_no_text_is_read_as_well_as_it_can_be(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"Use \xff tabs.")
    assert "Use \N{REPLACEMENT CHARACTER} tabs." in read_instructions(root).text
