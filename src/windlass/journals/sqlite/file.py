"""The tables of a journal in a SQLite file, step by step. `windlass.sqlite_file` opens the file."""

from pathlib import Path

from windlass.core.errors import ForOperator, JournalFailed
from windlass.sqlite_file import Durability, SqliteConnection, TableSet, open_database

STEPS = (
    # Records lie in the order in which they came: a group of many sessions fills a few pages. Kept
    # together by session, each append would write a page of its own, at four times the cost.
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
    # A list of sessions reads as many as it shows. Of the shared budgets, a pool is what its
    # shares come to; money is text, since no number of SQLite's is exact.
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
"""Each step brings a file to the next version; a new file starts at version 0."""


def open_writer(path: Path, durability: Durability) -> SqliteConnection:
    """Open the file for writing; create it, its folder and its tables where they are missing."""
    return open_database(path, _journal_tables(), durability)


def sqlite_error(path: Path, error: Exception) -> ForOperator:
    """What went wrong with the file and what to do about it, in one line: a JournalFailed."""
    return _journal_tables().make_error(path, error)


def _journal_tables() -> TableSet:
    return TableSet("journal", JournalFailed, STEPS)
