"""Changes to a project's files: what was there stays, and what cannot be read is not written."""

import os
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.file_edits import read_mcp_entries, write_mcp_entries, write_setting


def test_a_setting_is_written_above_the_first_table(project: Path) -> None:
    file = project / "windlass.toml"
    file.write_text("# mine\n\n[agents.x]\nmodel = 'c:d'\n")
    assert write_setting(file, "model", 'a:"b"') == 'model = "a:\\"b\\""'
    assert write_setting(file, "max_steps", "3") == "max_steps = 3"
    assert write_setting(file, "max_steps", "4") == "max_steps = 4"
    assert file.read_text() == (
        '# mine\nmodel = "a:\\"b\\""\nmax_steps = 4\n\n[agents.x]\nmodel = \'c:d\'\n'
    )


def test_a_value_that_could_not_be_read_back_is_not_written(project: Path) -> None:
    file = project / "windlass.toml"
    with pytest.raises(ConfigError, match="max_steps must be a whole number"):
        write_setting(file, "max_steps", "0")
    with pytest.raises(ConfigError):
        write_mcp_entries({"bad": {"command": 3}})
    assert list(project.iterdir()) == []


@pytest.mark.usefixtures("project")
def test_servers_keep_the_names_of_their_variables() -> None:
    assert read_mcp_entries() == {}
    entry = {"command": "serve", "args": [], "env": {"TOKEN": "${TOKEN}"}}
    write_mcp_entries({"own": entry})
    assert read_mcp_entries() == {"own": entry}


@pytest.mark.parametrize("text", ["{", "[]", '{"servers": {}}'])
def test_a_file_in_another_form_is_refused(project: Path, text: str) -> None:
    (project / ".mcp.json").write_text(text)
    with pytest.raises(ConfigError, match="Correct the file first"):
        read_mcp_entries()


@pytest.mark.parametrize("umask", [0o022, 0])
def test_the_files_of_a_person_are_for_them_only_whatever_the_umask(
    project: Path, tmp_path: Path, umask: int
) -> None:
    """P3: settings, servers and journals, and each folder that was made for them."""
    settings = tmp_path / "home" / "new" / "windlass" / "config.toml"
    journal = tmp_path / "data" / "new" / "windlass" / "sessions.db"
    before = os.umask(umask)
    try:
        write_setting(settings, "max_steps", "3")
        write_mcp_entries({"x": {"command": "x", "env": {"KEY": "$KEY"}}})
        SqliteJournal(journal).close()
    finally:
        os.umask(before)
    for file in (settings, project / ".mcp.json", journal):
        assert file.stat().st_mode & 0o777 == 0o600, file
    for folder in (settings.parent, settings.parent.parent, *journal.parents[:3]):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    # One that is there already, and open to others, is closed by the next change.
    settings.chmod(0o644)
    write_setting(settings, "max_steps", "4")
    assert settings.stat().st_mode & 0o777 == 0o600
