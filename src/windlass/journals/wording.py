"""Error messages that more than one journal raises.

Invariant: a message names the journal or the session, says what happened, and says what to do.
"""

from collections.abc import Sequence
from contextlib import suppress

from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed, SessionBusy
from windlass.core.suggestions import find_near_names
from windlass.ports import Journal

NAMES_MAX = 500
"""Sessions among which near names are looked for, the latest first."""


def closed_error(location: str) -> JournalFailed:
    """The journal was used after `close`."""
    return JournalFailed(f"{location}: the journal is closed; open it again to use it")


def forked_error(location: str) -> JournalFailed:
    """The journal was opened in a parent process, and is used in its child."""
    return JournalFailed(f"{location}: opened before a fork; open the journal again in the child")


def other_format_error(location: str, version: int, known: int) -> JournalFailed:
    """The tables were made by a version of Windlass that this one does not know."""
    return JournalFailed(
        f"{location}: its format is version {version}, and this Windlass knows {known}; use the "
        "Windlass that made it, or another schema"
    )


def session_busy_error(session: str) -> SessionBusy:
    """Another driver has the lease of the session, or has written to it."""
    return SessionBusy(
        f"session {session!r}: another driver is running it; wait until it ends, or watch it"
    )


async def no_session_error(journal: Journal, session: str) -> ConfigError:
    """A session without records was named."""
    return ConfigError(await describe_unknown_session(journal, session))


async def describe_unknown_session(journal: Journal, session: str) -> str:
    """Report that a session is not in the journal, with similar names if it can list them."""
    near: Sequence[str] = ()
    with suppress(ConfigError):
        names = [one.session for one in await journal.sessions(limit=NAMES_MAX)]
        near = find_near_names(session, names)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"there is no session {session!r} in this journal.{hint}"


def session_exists_error(session: str) -> ConfigError:
    """A new session was given the name of another one."""
    return ConfigError(f"session {session!r} exists already; choose another name")


def session_missing_error(session: str) -> JournalFailed:
    """A blob was stored for a session without records."""
    return JournalFailed(f"session {session!r} does not exist, so no data can be stored for it")


def session_name_error(session: str, reason: str) -> JournalFailed:
    """The store cannot hold this text as the name of a session."""
    return JournalFailed(f"{session!r} is not a valid session name: {reason}")


def session_corrupt_error(location: str, session: str, problem: object) -> JournalCorrupt:
    """A record of the session is not the one that was written."""
    return JournalCorrupt(
        f"{location}: session {session!r} is corrupt and will not be used: {problem}; "
        "restore the journal from a backup"
    )


def blob_corrupt_error(location: str, session: str, name: str) -> JournalCorrupt:
    """Stored data no longer matches the hash that it is stored under."""
    return JournalCorrupt(
        f"{location}: session {session!r}: the data stored as {name} was changed; "
        "restore the journal from a backup"
    )
