"""Which journal is opened, and what is said if it cannot be."""

from pathlib import Path

import pytest

from windlass.core.errors import ConfigError, JournalFailed
from windlass.project.effects import describe_effects
from windlass.project.files import load_settings, settings_files
from windlass.project.journals import journal_name, open_existing_journal, open_journal
from windlass.project.settings import Settings
from windlass.project.snapshot import take_snapshot
from windlass.project.trust import TrustStore


def test_a_name_goes_before_the_settings_and_these_before_the_default(project: Path) -> None:
    (project / "windlass.toml").write_text('journal = "kept.db"\n')
    assert journal_name(named="~/mine.db") == str(Path("~/mine.db").expanduser())
    assert journal_name().endswith("/sessions.db"), "the project is not trusted yet"
    TrustStore().remember(take_snapshot(project))
    assert journal_name() == str(project / "kept.db")
    assert journal_name(Settings(journal="/d/j.db")) == "/d/j.db"
    assert journal_name(Settings()).endswith("/sessions.db")


def test_a_journal_is_created_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "j.db"
    with open_journal(path):
        pass
    with open_existing_journal(path) as journal:
        assert journal.name == str(path)


def test_what_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(JournalFailed, match="Name another file with WINDLASS_JOURNAL"),
        open_journal(tmp_path / "file" / "j.db"),
    ):
        pass
    with pytest.raises(ConfigError, match="there is no journal"), open_existing_journal(Path("x")):
        pass


@pytest.mark.contract("D10")
def test_every_layer_takes_the_same_names(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D10: a flag goes before the environment, this before the user's file, then the project's."""
    (project / "windlass.toml").write_text('journal = "sqlite:kept.db"\n')
    TrustStore().remember(take_snapshot(project))
    assert journal_name() == str(project / "kept.db")
    _, user, _ = settings_files()
    user.parent.mkdir(parents=True, exist_ok=True)
    user.write_text('journal = "postgresql://ann@db/work"\n')
    assert journal_name() == "postgresql://ann@db/work"
    monkeypatch.setenv("WINDLASS_JOURNAL", "memory:")
    assert journal_name() == "memory:"
    assert load_settings({"journal": "mine.db"}).settings.journal == str(project / "mine.db")


@pytest.mark.contract("D10")
def test_a_project_keeps_its_sessions_in_its_own_folder(project: Path, tmp_path: Path) -> None:
    """D10: a trusted project cannot write into another's journal, nor through a link."""
    (project / "link").symlink_to(tmp_path)
    for path in ("../other.db", "link/other.db", "~/other.db"):
        (project / "windlass.toml").write_text(f'journal = "{path}"\n')
        assert journal_name().endswith("/sessions.db"), "it has no effect before it is trusted"
        TrustStore().remember(take_snapshot(project))
        with pytest.raises(ConfigError, match="only in its own folder"):
            journal_name()
        assert load_settings({"journal": path}).settings.journal


@pytest.mark.contract("D10")
def test_a_project_sends_sessions_to_a_server_only_if_it_is_trusted(project: Path) -> None:
    """D10: and the person who is asked to trust it is told so, without a password."""
    url = "postgresql://ann:hunter2@db.example/work"
    (project / "windlass.toml").write_text(f'journal = "{url}"\n')
    assert journal_name().endswith("/sessions.db")
    effects = list(describe_effects(take_snapshot(project)))
    assert any("postgresql://db.example/work" in line and "login" in line for line in effects)
    assert "hunter2" not in str(effects)
    TrustStore().remember(take_snapshot(project))
    assert journal_name() == url
    assert "hunter2" not in TrustStore().path.read_text()


@pytest.mark.contract("D10")
def test_a_wrong_name_in_a_file_or_a_variable_is_refused_without_its_password(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: with the place, near names and no password."""
    url = "postgress://ann:hunter2@db.example/work"
    (project / "windlass.toml").write_text(f'\njournal = "{url}"\n')
    broken = take_snapshot(project).broken
    assert "windlass.toml, line 2: journal must be a path" in broken
    assert "Did you mean postgresql" in broken
    (project / "windlass.toml").unlink()
    monkeypatch.setenv("WINDLASS_JOURNAL", url)
    with pytest.raises(ConfigError, match=r"WINDLASS_JOURNAL=postgress://db.example") as raised:
        load_settings()
    assert "hunter2" not in broken + str(raised.value)
