"""The tables of a journal in an SQLite file. `windlass.sqlite_file` opens and migrates the file."""

from collections.abc import Sequence
from pathlib import Path

from windlass.core.errors import ForOperator, JournalFailed
from windlass.environ import private_registry_folder
from windlass.sqlite_file import (
    Durability,
    SqliteConnection,
    TableSet,
    finish_upgrade,
    is_upgrade_finished,
    open_database,
)

MIGRATIONS: Sequence[str] = (
    # Records are stored in the order of their arrival, so that a group of many sessions fills a few
    # pages. Sorted by session, each append would write its own page, at four times the cost.
    # Money is text, because SQLite's numbers are not exact. A row of `pools` is the sum of its
    # shares. A question that no fact has settled is found by its index, no matter how many there
    # were.
    """
    CREATE TABLE sessions (
        number INTEGER PRIMARY KEY,
        session TEXT NOT NULL UNIQUE,
        head BLOB NOT NULL,
        seal TEXT NOT NULL,
        facts INTEGER NOT NULL,
        version INTEGER NOT NULL,
        state TEXT NOT NULL,
        changed REAL NOT NULL,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        runs INTEGER NOT NULL,
        outcome TEXT,
        agent TEXT NOT NULL,
        caller TEXT NOT NULL,
        parent TEXT NOT NULL,
        pause TEXT NOT NULL,
        released INTEGER NOT NULL,
        due REAL,
        tags TEXT NOT NULL,
        updated REAL NOT NULL,
        steps INTEGER NOT NULL,
        asked INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        usd TEXT,
        reserved_tokens INTEGER,
        reserved_usd TEXT,
        mail_last INTEGER NOT NULL DEFAULT 0,
        mail_taken INTEGER NOT NULL DEFAULT 0,
        prompts_last INTEGER NOT NULL DEFAULT 0,
        prompts_taken INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX sessions_by_time ON sessions (changed);
    CREATE INDEX sessions_by_state ON sessions (state, changed);
    CREATE INDEX sessions_by_agent ON sessions (agent, changed) WHERE agent <> '';
    CREATE INDEX sessions_by_caller ON sessions (caller, changed) WHERE caller <> '';
    CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent <> '';
    CREATE VIRTUAL TABLE session_text USING fts5(
        session, title, content='sessions', content_rowid='number', tokenize='trigram'
    );
    INSERT INTO session_text (session_text, rank) VALUES ('secure-delete', 1);
    CREATE TRIGGER session_text_added AFTER INSERT ON sessions BEGIN
        INSERT INTO session_text (rowid, session, title)
            VALUES (new.number, new.session, new.title);
    END;
    CREATE TRIGGER session_text_changed AFTER UPDATE OF title ON sessions
    WHEN old.title <> new.title BEGIN
        INSERT INTO session_text (session_text, rowid, session, title)
            VALUES ('delete', old.number, old.session, old.title);
        INSERT INTO session_text (rowid, session, title)
            VALUES (new.number, new.session, new.title);
    END;
    CREATE TRIGGER session_text_removed AFTER DELETE ON sessions BEGIN
        INSERT INTO session_text (session_text, rowid, session, title)
            VALUES ('delete', old.number, old.session, old.title);
    END;
    CREATE TABLE records (
        arrival INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        body TEXT NOT NULL,
        hash BLOB NOT NULL,
        encoding TEXT NOT NULL DEFAULT '',
        UNIQUE (number, seq)
    ) STRICT;
    CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT;
    CREATE TABLE uses (
        hash TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (hash, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX uses_by_session ON uses (number);
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
        held_usd TEXT NOT NULL DEFAULT '0',
        held_tokens INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (session, run, budget)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX shares_held ON shares (budget, period)
        WHERE held_usd <> '0' OR held_tokens <> 0;
    CREATE TABLE mail (
        session INTEGER NOT NULL,
        lane TEXT NOT NULL,
        number INTEGER NOT NULL,
        at REAL NOT NULL,
        by TEXT NOT NULL,
        key TEXT NOT NULL,
        message TEXT,
        signature TEXT NOT NULL,
        caller TEXT NOT NULL DEFAULT '',
        agent TEXT NOT NULL DEFAULT '',
        priority INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (session, lane, number)
    ) STRICT;
    CREATE UNIQUE INDEX mail_by_key ON mail (session, lane, key) WHERE key <> '';
    CREATE TRIGGER mail_removed AFTER DELETE ON sessions BEGIN
        DELETE FROM mail WHERE session = old.number;
    END;
    CREATE TABLE questions (
        session INTEGER NOT NULL,
        call TEXT NOT NULL,
        body TEXT NOT NULL,
        settled INTEGER NOT NULL,
        PRIMARY KEY (session, call)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX questions_left ON questions (session) WHERE NOT settled;
    CREATE TRIGGER questions_removed AFTER DELETE ON sessions BEGIN
        DELETE FROM questions WHERE session = old.number;
    END;
    -- Sessions that need a driver, each as its row says: the same rule as `keep_work` of Postgres.
    CREATE TABLE work (
        number INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        agent TEXT NOT NULL,
        begun INTEGER NOT NULL,
        caller TEXT NOT NULL,
        priority INTEGER NOT NULL,
        since REAL NOT NULL,
        due REAL
    ) STRICT;
    CREATE INDEX work_free ON work (agent, begun, caller, priority DESC, since)
        WHERE due IS NULL;
    CREATE INDEX work_later ON work (due) WHERE due IS NOT NULL;
    CREATE TRIGGER work_of_new AFTER INSERT ON sessions BEGIN
        DELETE FROM work WHERE number = new.number;
        INSERT INTO work SELECT
            new.number, new.session,
            CASE WHEN new.parent <> '' THEN ''
                ELSE coalesce(nullif(prompt.agent, ''), new.agent) END,
            new.state = 'open' AND new.parent = ''
                OR new.mail_last <= new.mail_taken AND new.due IS NOT NULL,
            coalesce(prompt.caller, new.caller), coalesce(prompt.priority, 0),
            coalesce(prompt.at, new.changed),
            CASE WHEN new.mail_last > new.mail_taken THEN NULL ELSE new.due END
        FROM (SELECT 1) LEFT JOIN mail AS prompt ON prompt.session = new.number
            AND prompt.lane = 'prompts'
            AND (new.parent <> '' OR new.state
                NOT IN ('open', 'waiting', 'awaiting_budget', 'paused'))
            AND prompt.number = (SELECT min(number) FROM mail WHERE session = new.number
                AND lane = 'prompts' AND number > new.prompts_taken)
        WHERE new.mail_last > new.mail_taken
            OR new.prompts_last > new.prompts_taken
                AND (new.parent <> '' OR new.state
                    NOT IN ('open', 'waiting', 'awaiting_budget', 'paused'))
            OR new.parent = '' AND (new.state = 'open' OR new.due IS NOT NULL);
    END;
    CREATE TRIGGER work_of_changed AFTER UPDATE ON sessions
    WHEN (old.state, old.due, old.agent, old.caller, old.parent, old.mail_last, old.mail_taken,
            old.prompts_last, old.prompts_taken)
        IS NOT (new.state, new.due, new.agent, new.caller, new.parent, new.mail_last,
            new.mail_taken, new.prompts_last, new.prompts_taken) BEGIN
        DELETE FROM work WHERE number = new.number;
        INSERT INTO work SELECT
            new.number, new.session,
            CASE WHEN new.parent <> '' THEN ''
                ELSE coalesce(nullif(prompt.agent, ''), new.agent) END,
            new.state = 'open' AND new.parent = ''
                OR new.mail_last <= new.mail_taken AND new.due IS NOT NULL,
            coalesce(prompt.caller, new.caller), coalesce(prompt.priority, 0),
            coalesce(prompt.at, new.changed),
            CASE WHEN new.mail_last > new.mail_taken THEN NULL ELSE new.due END
        FROM (SELECT 1) LEFT JOIN mail AS prompt ON prompt.session = new.number
            AND prompt.lane = 'prompts'
            AND (new.parent <> '' OR new.state
                NOT IN ('open', 'waiting', 'awaiting_budget', 'paused'))
            AND prompt.number = (SELECT min(number) FROM mail WHERE session = new.number
                AND lane = 'prompts' AND number > new.prompts_taken)
        WHERE new.mail_last > new.mail_taken
            OR new.prompts_last > new.prompts_taken
                AND (new.parent <> '' OR new.state
                    NOT IN ('open', 'waiting', 'awaiting_budget', 'paused'))
            OR new.parent = '' AND (new.state = 'open' OR new.due IS NOT NULL);
    END;
    CREATE TRIGGER work_removed AFTER DELETE ON sessions BEGIN
        DELETE FROM work WHERE number = old.number;
    END;
    CREATE TABLE anchors (
        session TEXT NOT NULL,
        seq INTEGER NOT NULL,
        head BLOB NOT NULL,
        at REAL NOT NULL,
        signature TEXT NOT NULL,
        PRIMARY KEY (session, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE shared_records (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        data BLOB NOT NULL,
        signature TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO meta VALUES ('journal', lower(hex(randomblob(16)))), ('record_version', '0');
    """,
)
"""Each one brings a file to the next version; a new file begins with the first.

A step leaves the tables usable for programs of the version before (`journals/upgrades.py`).
"""
PAGE_BYTES = 1_024
"""An append writes three pages to change a few hundred bytes, so they are small.

Large blobs take some 15 % longer to write; nothing takes longer to read.
"""


def open_writer(path: Path, durability: Durability) -> SqliteConnection:
    """Open the file for writing; create the file, its folder and its tables if they are missing.

    Raises ConfigError if the path cannot be a journal, and JournalFailed if it cannot be opened.
    """
    return open_database(path, _journal_tables(), private_registry_folder(), durability)


def sqlite_error(path: Path, error: Exception) -> ForOperator:
    """Return the JournalFailed to raise: what went wrong with the file, and what to do."""
    return _journal_tables().make_error(path, error)


def is_shared(connection: SqliteConnection) -> bool:
    """Whether programs of an older version may use the file: its upgrade is not finished."""
    return not is_upgrade_finished(connection, _journal_tables())


def end_sharing(connection: SqliteConnection) -> None:
    """Finish the upgrade of the file. Call it in a transaction."""
    finish_upgrade(connection, _journal_tables())


def _journal_tables() -> TableSet:
    return TableSet(
        "journal",
        JournalFailed,
        MIGRATIONS,
        upgrade_table="meta",
        page_bytes=PAGE_BYTES,
    )
