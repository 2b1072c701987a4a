"""The tables of a journal in an SQLite file. `windlass.sqlite_file` opens and migrates the file."""

from pathlib import Path

from windlass.core.errors import ForOperator, JournalFailed
from windlass.journals.stored_journal import Durability
from windlass.sqlite_file import SqliteConnection, TableSet, open_database

MIGRATIONS = (
    # Records are stored in the order of their arrival, so that a group of many sessions fills a few
    # pages. Sorted by session, each append would write a page of its own, at four times the cost.
    """
    CREATE TABLE sessions (
        number INTEGER PRIMARY KEY,
        session TEXT NOT NULL UNIQUE,
        head BLOB NOT NULL,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        facts INTEGER NOT NULL,
        runs INTEGER NOT NULL,
        steps INTEGER NOT NULL,
        outcome TEXT,
        proposed INTEGER NOT NULL,
        asked INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE records (
        arrival INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        body TEXT NOT NULL,
        hash BLOB NOT NULL,
        UNIQUE (number, seq)
    ) STRICT;
    CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT;
    CREATE TABLE uses (
        hash TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (hash, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX uses_by_session ON uses (number);
    """,
    # With these indexes, a list of sessions reads only the rows that it shows. A row of `pools` is
    # the sum of its shares. Money is text, because SQLite's numbers are not exact.
    """
    CREATE INDEX sessions_by_time ON sessions (updated);
    CREATE INDEX sessions_left_open ON sessions (updated) WHERE outcome IS NULL;
    CREATE TABLE pools (
        budget TEXT NOT NULL,
        period TEXT NOT NULL,
        usd TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (budget, period)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE shares (
        session TEXT NOT NULL,
        run INTEGER NOT NULL,
        budget TEXT NOT NULL,
        period TEXT NOT NULL,
        usd TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (session, run, budget)
    ) STRICT, WITHOUT ROWID;
    """,
)
"""Each one brings a file from its version to the next; a new file has version 0."""


def open_writer(path: Path, durability: Durability) -> SqliteConnection:
    """Open the file for writing; create the file, its folder and its tables if they are missing.

    Raises ConfigError if the path cannot be a journal, and JournalFailed if it cannot be opened.
    """
    return open_database(path, _journal_tables(), durability)


def sqlite_error(path: Path, error: Exception) -> ForOperator:
    """Return the JournalFailed to raise: what went wrong with the file, and what to do."""
    return _journal_tables().make_error(path, error)


def _journal_tables() -> TableSet:
    return TableSet("journal", JournalFailed, MIGRATIONS)
