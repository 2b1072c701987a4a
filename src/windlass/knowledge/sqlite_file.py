"""The tables of knowledge in a SQLite file, which may be a journal's: see `windlass.sqlite_file`.

The law: nothing of a journal is touched. The tables have names of their own and a version of their
own, and a write is short, because appends to the journal wait for it.
"""

from windlass.knowledge.store import KnowledgeFailed
from windlass.sqlite_file import TableSet

KNOWLEDGE_STEPS = (
    """
    CREATE TABLE knowledge_notes (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        title TEXT NOT NULL,
        created REAL NOT NULL
    ) STRICT;
    CREATE INDEX knowledge_notes_by_scope ON knowledge_notes (kind, key);
    CREATE TABLE knowledge_origins (
        note INTEGER NOT NULL,
        place TEXT NOT NULL,
        session TEXT NOT NULL,
        call TEXT NOT NULL,
        digest TEXT NOT NULL,
        untrusted INTEGER NOT NULL,
        private INTEGER NOT NULL,
        created REAL NOT NULL,
        expires_at REAL,
        PRIMARY KEY (note, place, session, call)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX knowledge_origins_by_place ON knowledge_origins (place);
    CREATE INDEX knowledge_origins_by_expiry ON knowledge_origins (expires_at)
        WHERE expires_at IS NOT NULL;
    CREATE TABLE knowledge_chunks (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        note INTEGER NOT NULL,
        title TEXT NOT NULL,
        text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX knowledge_chunks_by_note ON knowledge_chunks (note);
    CREATE TABLE knowledge_vectors (
        chunk INTEGER PRIMARY KEY,
        model TEXT NOT NULL,
        vector BLOB NOT NULL
    ) STRICT;
    CREATE VIRTUAL TABLE knowledge_words USING fts5(
        title, text, content='knowledge_chunks', content_rowid='number',
        tokenize='unicode61 remove_diacritics 2', prefix='4 6'
    );
    CREATE TRIGGER knowledge_chunk_came AFTER INSERT ON knowledge_chunks BEGIN
        INSERT INTO knowledge_words (rowid, title, text)
            VALUES (new.number, new.title, new.text);
    END;
    CREATE TRIGGER knowledge_chunk_went AFTER DELETE ON knowledge_chunks BEGIN
        INSERT INTO knowledge_words (knowledge_words, rowid, title, text)
            VALUES ('delete', old.number, old.title, old.text);
        DELETE FROM knowledge_vectors WHERE chunk = old.number;
    END;
    CREATE TRIGGER knowledge_note_went AFTER DELETE ON knowledge_notes BEGIN
        DELETE FROM knowledge_chunks WHERE note = old.number;
        DELETE FROM knowledge_origins WHERE note = old.number;
    END;
    """,
)
"""Each step brings the tables to the next version."""

KNOWLEDGE_TABLES = TableSet("knowledge", KnowledgeFailed, KNOWLEDGE_STEPS, "knowledge_version")
