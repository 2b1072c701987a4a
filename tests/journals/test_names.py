"""D10: a journal is named by a path or a URL, and its password is never shown."""

from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.journals import open_journal
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.wording import (
    JournalName,
    parse_journal_name,
    resolve_journal_name,
    show_journal_name,
)

pytestmark = pytest.mark.contract("D10")
PASSWORD = "hunter2"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("sessions.db", ("sqlite", "sessions.db")),
        ("sqlite:sessions.db", ("sqlite", "sessions.db")),
        ("sqlite:///d/sessions.db", ("sqlite", "/d/sessions.db")),
        ("file:///d/sessions.db", ("sqlite", "/d/sessions.db")),
        ("./odd:name.db", ("sqlite", "./odd:name.db")),
        (Path("odd:name.db"), ("sqlite", "odd:name.db")),
        ("memory:", ("memory", "memory:")),
        (":memory:", ("memory", "memory:")),
        ("postgresql://u@h/d", ("postgres", "postgresql://u@h/d")),
        ("postgres://u@h/d", ("postgres", "postgres://u@h/d")),
    ],
)
def test_what_a_name_means(name: str, parsed: tuple[str, str]) -> None:
    """D10: memory, SQLite file, Postgres."""
    assert parse_journal_name(name) == parsed


def test_a_home_folder_is_found_and_a_relative_path_gets_its_folder() -> None:
    """D10: a name means the same in every folder once it is resolved."""
    assert resolve_journal_name("~/s.db", "/d") == str(Path("~/s.db").expanduser())
    assert resolve_journal_name("sqlite:../s.db", "/d/e") == "/d/s.db"
    assert resolve_journal_name("postgresql://h/d", "/d") == "postgresql://h/d"
    assert resolve_journal_name(":memory:", "/d") == "memory:"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (f"postgresql://ann:{PASSWORD}@db.example:5433/work", "postgresql://db.example:5433/work"),
        (f"postgresql://ann:{PASSWORD}@[::1]:5433/work", "postgresql://[::1]:5433/work"),
        (f"postgresql://db/work?user=ann&password={PASSWORD}", "postgresql://db/work"),
        (f"postgresql:///work?host=/run&password={PASSWORD}", "postgresql:///work?host=/run"),
        (f"postgresql://ann:a@{PASSWORD}@db/work", "postgresql://…"),
        (f"postgresql://ann:a/{PASSWORD}@db/work", "postgresql://…"),
        (f"postgresql://ann:a?{PASSWORD}@db/work", "postgresql://…"),
        (f"postgresql://ann:a#{PASSWORD}@db/work", "postgresql://…"),
        (f"postgresql://ann:{PASSWORD}", "postgresql://…"),
        (f"postgresql://db/work?password=a@{PASSWORD}", "postgresql://…"),
        (f"mysql://ann:{PASSWORD}@db/work", "mysql://db/work"),
        (f"ann:{PASSWORD}", "ann:…"),
        ("/d/sessions.db", "/d/sessions.db"),
        ("memory:", "memory:"),
    ],
)
def test_a_password_is_never_shown(name: str, shown: str) -> None:
    """D10: also not that of a URL which can be read in two ways."""
    assert show_journal_name(name) == shown
    assert JournalName("postgres", name).shown == shown


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (f"postgress://ann:{PASSWORD}@db/work", "Did you mean postgresql"),
        (f"mysql://ann:{PASSWORD}@db/work", "no journal of kind 'mysql'"),
        (f"mysql://ann:p/{PASSWORD}@db/work", "no journal of kind 'mysql'"),
        ("sqlite:", "names no file"),
        ("", "names no journal"),
    ],
)
def test_an_unknown_kind_is_refused_with_near_names_and_without_the_password(
    name: str, hint: str
) -> None:
    """D10: what is wrong with a name, and what to write instead."""
    with pytest.raises(ConfigError, match=hint) as raised:
        open_journal(name)
    assert PASSWORD not in str(raised.value)


def test_a_url_that_can_be_read_in_two_ways_is_refused() -> None:
    """D10: an odd password has to be encoded, so that no part of it is taken for the host."""
    for password in ("a/b", "a@b", "a?b", "a#b"):
        with pytest.raises(ConfigError, match="%40") as raised:
            PostgresJournal(f"postgresql://ann:{password}{PASSWORD}@db/work")
        assert PASSWORD not in str(raised.value)
    PostgresJournal(f"postgresql://ann:a%2Fb{PASSWORD}@db/work")


def test_the_name_of_an_open_journal_has_no_password(tmp_path: Path) -> None:
    """D10: `name` is what may be shown."""
    with PostgresJournal(f"postgresql://ann:{PASSWORD}@db/work") as journal:
        assert journal.name == "postgresql://db/work"
        assert PASSWORD not in repr(journal) + repr(vars(journal))
    opened = open_journal(str(tmp_path / "s.db"))
    assert opened.name == str(tmp_path / "s.db")
    opened.close()
    assert open_journal("memory:").name == "memory:"
