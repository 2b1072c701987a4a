"""Save the file of a journal while it is in use, and put a saved one back.

Invariant: what looks like a backup is whole. It is written under another name, checked record by
record, marked, and renamed last. A file without the mark is not restored: a plain copy of a file in
use lacks what its log held.
"""

import os
import secrets
import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec

from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed
from windlass.core.session_summary import SessionQuery
from windlass.core.text_clip import printable_line
from windlass.journals.saved_journal import SavedJournal
from windlass.journals.signing import load_key
from windlass.journals.sqlite import schema
from windlass.journals.sqlite.anchors import OLDER_JOURNAL, AnchorBook
from windlass.journals.sqlite.queries import ALL_ROWS, list_sessions, verify_session
from windlass.journals.sqlite.record_book import OLDER_RECORDS
from windlass.journals.sqlite.schema import open_writer, sqlite_error
from windlass.sqlite_file import (
    Durability,
    SqliteConnection,
    open_connection,
    write_transaction,
)

MARK = "backup"
IN_USE_MS = 500
"""How long to wait for other programs to leave a file that is to be replaced."""
PLAIN_COPY = (
    "this file is a copy that `windlass backup` did not make: what the log beside the journal held "
    "when it was copied is missing; make a backup with `windlass backup FILE`"
)
_PUT_MARK = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
_LIST_SCHEMA = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"
_WORD_TABLES = frozenset(f"session_text_{part}" for part in ("data", "idx", "docsize", "config"))
_READ_FILE = "SELECT value FROM meta WHERE name = 'file'"


def save_file(source: Path, target: Path) -> SavedJournal:
    """Save a journal as one file while others use it; return what it holds.

    Raises ConfigError if the target exists, and JournalCorrupt if the journal is damaged.
    """
    if target.exists():
        raise ConfigError(f"{target} exists already: name another file for the backup")
    with _draft_for(target) as draft:
        reader = open_connection(source)
        copy = open_connection(draft)
        try:
            # In one step: others can write in the meantime, and their changes cannot make it begin
            # again.
            with cast("Any", copy).backup("main", reader, "main") as backup:
                backup.step(-1)
            copy.execute("PRAGMA journal_mode = DELETE")
            saved = _check_copy(copy, source, find_older=False)
            copy.execute(_PUT_MARK, (MARK, msgspec.json.encode(saved).decode()))
            copy.execute("DELETE FROM meta WHERE name = 'file'")
        finally:
            copy.close()
            reader.close()
        _move_draft(draft, target)
    return saved


def restore_file(
    backup: Path, target: Path, *, replace: bool = False, accept: bool = False
) -> SavedJournal:
    """Put a backup in place of a journal; return what it holds.

    Without `accept`, all of it must be signed with this user's key. With `replace`, a journal that
    is there is kept next to it. Raises ConfigError if the file is not a backup, or the target
    exists or is in use, and JournalCorrupt if it is damaged or was changed.
    """
    if target.exists() and not replace:
        raise ConfigError(f"{target} exists already: pass --replace, or name another journal")
    with _draft_for(target) as draft:
        shutil.copyfile(backup, draft)
        try:
            copy = open_connection(draft)
        except apsw.NotADBError:
            raise _no_journal_error(backup) from None
        try:
            _require_own_schema(copy, backup)
            _require_mark(copy, backup)
            saved = _check_copy(copy, backup, find_older=not accept)
            copy.execute("DELETE FROM meta WHERE name IN (?, 'file')", (MARK,))
        finally:
            copy.close()
        if target.exists():
            _leave_aside(target)
        _move_draft(draft, target)
    return saved


def open_noted(path: Path, durability: Durability) -> SqliteConnection:
    """Open a journal for writing, as `open_writer` does, and note which file it is."""
    connection = open_writer(path, durability)
    try:
        if connection.execute(_READ_FILE).get is None:
            with write_transaction(connection):
                note_file(connection, path)
    except apsw.Error as error:
        connection.close()
        raise sqlite_error(path, error) from error
    return connection


def note_file(connection: SqliteConnection, path: Path) -> None:
    """Note in a file which file it is, so that a copy of it is recognised."""
    connection.execute(_PUT_MARK, ("file", str(path.stat().st_ino)))


def is_plain_copy(connection: SqliteConnection, path: Path) -> bool:
    """Whether a file is another one than it was made as, and no restored backup."""
    known = connection.execute(_READ_FILE).get
    return known is not None and known != str(path.stat().st_ino)


def _check_copy(copy: SqliteConnection, named: Path, *, find_older: bool) -> SavedJournal:
    """Check every page and every record; return what there is. Raises JournalCorrupt.

    With `find_older`, all that the journal's key says about the file as a whole must be true as
    well, apart from its age: a backup is older than what it was made of.
    """
    problems = [str(row[0]) for row in copy.execute("PRAGMA integrity_check") if row[0] != "ok"]
    book = AnchorBook.open(copy, load_key())
    sessions = list_sessions(copy, SessionQuery(), None, ALL_ROWS) if not problems else []
    signed = book if find_older else None
    for summary in sessions:
        found = verify_session(copy, summary.session, signed)
        problems += [f"session {summary.session!r}: {problem}" for problem in found]
    if signed is not None and not problems:
        expected = (OLDER_JOURNAL, OLDER_RECORDS)
        problems += [each for each in signed.find_problems(copy) if each not in expected]
    if problems:
        raise _damage_error(named, problems)
    return SavedJournal(time.time(), len(sessions), sum(each.facts for each in sessions))


def _require_own_schema(copy: SqliteConnection, named: Path) -> None:
    """Raise an error if a file has a table, a trigger or a view that no journal has.

    A trigger could change records after they were checked, and before they are signed.
    """
    known: set[tuple[object, ...]] = set()
    with closing(cast("SqliteConnection", apsw.Connection(":memory:"))) as fresh:
        for step in schema.MIGRATIONS:
            fresh.execute(step)
            known |= _list_schema(fresh)
    try:
        unknown = _list_schema(copy) - known
    except apsw.Error:
        raise _no_journal_error(named) from None
    if unknown:
        kind, name, *_ = min(unknown, key=repr)
        found = printable_line(f"{kind} {name!r}")
        raise JournalCorrupt(
            f"{named} has a {found} that no journal has, or that is another one there: it was "
            "changed. Nothing was written"
        )


def _list_schema(connection: SqliteConnection) -> set[tuple[object, ...]]:
    """Return what a file defines. The index of words has tables whose text SQLite chooses."""
    return {
        (kind, name, table, "" if kind == "table" and str(name) in _WORD_TABLES else text)
        for kind, name, table, text in connection.execute(_LIST_SCHEMA)
    }


def _require_mark(copy: SqliteConnection, named: Path) -> None:
    try:
        mark = copy.execute("SELECT value FROM meta WHERE name = ?", (MARK,)).get
    except apsw.Error:
        raise _no_journal_error(named) from None
    if mark is None:
        raise ConfigError(
            f"{named} was not made by `windlass backup`. If it is a plain copy of a journal that "
            "was in use, what the log beside the journal held is missing in it: make a backup with "
            "`windlass backup FILE --journal JOURNAL` instead"
        )


def _no_journal_error(named: Path) -> ConfigError:
    return ConfigError(f"{named} is not a journal of Windlass, or is damaged")


def _damage_error(named: Path, problems: Sequence[str]) -> JournalCorrupt:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return JournalCorrupt(
        f"{named}: {problems[0]}{more}. Nothing was written. If the journal is from another "
        "machine or user and you trust it, restore it with --accept"
    )


def _leave_aside(target: Path) -> None:
    """Rename the journal that is to be replaced. Raises ConfigError if a program uses it."""
    try:
        connection = open_connection(target)
        try:
            connection.set_busy_timeout(IN_USE_MS)
            # Only the last user of a file can do this; it also moves the log into the file.
            connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            connection.close()
    except apsw.BusyError:
        raise ConfigError(f"{target} is in use: stop the programs that use it first") from None
    except apsw.Error:
        pass  # It is damaged, which may be why it is replaced.
    kept = target.with_name(f"{target.name}.replaced-{int(time.time())}")
    target.rename(kept)
    for side in ("-wal", "-shm"):
        Path(f"{target}{side}").unlink(missing_ok=True)


@contextmanager
def _draft_for(target: Path) -> Generator[Path]:
    """Yield a new file beside the target, for its owner only, which is deleted if it stays."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise JournalFailed(f"{target} cannot be written: {error.strerror}") from None
    try:
        yield draft
    except apsw.FullError:
        raise JournalFailed(f"{target} cannot be written: the disk is full") from None
    except OSError as error:
        raise JournalFailed(f"{target} cannot be written: {error.strerror}") from None
    finally:
        for side in ("", "-wal", "-shm", "-journal"):
            Path(f"{draft}{side}").unlink(missing_ok=True)


def _move_draft(draft: Path, target: Path) -> None:
    """Give a finished file its name, once all of it is on the disk."""
    for path in (draft, target.parent):
        if path is not draft:
            draft.rename(target)
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):
                os.fsync(handle)
        finally:
            os.close(handle)
