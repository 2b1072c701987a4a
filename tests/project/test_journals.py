"""Which journal is opened, and what is said if it cannot be."""

from pathlib import Path

import pytest

from windlass.core.errors import ConfigError, JournalFailed
from windlass.project.journals import journal_path, open_existing_journal, open_journal
from windlass.project.settings import Settings
from windlass.project.snapshot import take_snapshot
from windlass.project.trust import TrustStore


def test_a_name_goes_before_the_settings_and_these_before_the_default(project: Path) -> None:
    (project / "windlass.toml").write_text('journal = "kept.db"\n')
    assert journal_path(named="~/mine.db") == Path("~/mine.db").expanduser()
    assert journal_path().name == "sessions.db", "the project is not trusted yet"
    TrustStore().remember(take_snapshot(project))
    assert journal_path() == project / "kept.db"
    assert journal_path(Settings(journal="/d/j.db")) == Path("/d/j.db")
    assert journal_path(Settings()).name == "sessions.db"


def test_a_journal_is_created_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "j.db"
    with open_journal(path):
        pass
    with open_existing_journal(path) as journal:
        assert Path(journal.path) == path


def test_what_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(JournalFailed, match="Name another file with WINDLASS_JOURNAL"),
        open_journal(tmp_path / "file" / "j.db"),
    ):
        pass
    with pytest.raises(ConfigError, match="there is no journal"), open_existing_journal(Path("x")):
        pass
