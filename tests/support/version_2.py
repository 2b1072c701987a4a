"""An invented version 2 of the format: what a later version does to a journal of version 1."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from windlass.journals import session_rows, upgrades
from windlass.journals.postgres import queries as postgres_queries
from windlass.journals.postgres import schema as postgres_schema
from windlass.journals.sqlite import queries as sqlite_queries
from windlass.journals.sqlite import schema as sqlite_schema
from windlass.journals.sqlite import session_table

SQLITE_STEP = """
    ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT '';
    CREATE TABLE moods (mood TEXT PRIMARY KEY) STRICT;
    INSERT INTO moods VALUES ('calm');
"""
POSTGRES_STEP = """
    ALTER TABLE sessions ADD COLUMN mood text NOT NULL DEFAULT '';
    CREATE TABLE moods (mood text PRIMARY KEY);
    INSERT INTO moods VALUES ('calm');
"""
NEW_FACT = "RunPaused"
"""The fact that version 1 is said not to know."""


@contextmanager
def version_2() -> Iterator[None]:
    """Be a program of version 2: programs in other processes are of version 1."""
    with (
        patch.object(sqlite_schema, "MIGRATIONS", (*sqlite_schema.MIGRATIONS, SQLITE_STEP)),
        patch.object(postgres_schema, "MIGRATIONS", (*postgres_schema.MIGRATIONS, POSTGRES_STEP)),
        patch.object(upgrades, "NEW_FACTS", frozenset([NEW_FACT])),
        ExitStack() as stack,
    ):
        for module in (session_rows, session_table, sqlite_queries, postgres_queries):
            stack.enter_context(patch.object(module, "VERSION", 2))
        yield
