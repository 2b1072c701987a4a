"""The names of journals, and the error messages that more than one journal raises.

Invariant: a message names the journal or the session, says what happened, and says what to do.

A name is a path or a URL:

    sessions.db, sqlite:sessions.db    a SQLite file, which is created if it does not exist
    memory:, :memory:                  a journal in memory, which ends with the process
    postgresql://user@host/database    a Postgres database

Invariant: what is shown of a name never contains a password. If a URL cannot be parsed with
certainty, only its scheme is shown.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Literal, NamedTuple, get_args
from urllib.parse import SplitResult, parse_qs, urlsplit

from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed, SessionBusy
from windlass.core.suggestions import find_near_names, suggest_names
from windlass.core.text_clip import printable_line
from windlass.ports.journals import Journal

Durability = Literal["full", "relaxed"]
JournalKind = Literal["memory", "sqlite", "postgres"]

SCHEMES = ("memory", "sqlite", "postgresql")
POSTGRES_SCHEMES = ("postgresql", "postgres")
POOLER_OPTION = "pooler"
DIRECT_OPTION = "direct"
"""Options of a URL: what kind of pooler it leads to, and the URL of the server behind it."""
FILE_SCHEMES = ("sqlite", "file")
MEMORY_NAMES = ("memory:", "memory://", ":memory:", "sqlite::memory:")
MEMORY_NAME = "memory:"
HIDDEN = "…"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_HOSTS = re.compile(r"((\[[0-9A-Fa-f:.]+\]|[\w.-]*)(:\d+)?)(,(\[[0-9A-Fa-f:.]+\]|[\w.-]*)(:\d+)?)*")
"""One or more hosts with their ports, as libpq accepts them."""


class JournalName(NamedTuple):
    """A name that was understood: which kind of journal it is, and where that is."""

    kind: JournalKind
    location: str
    """The path of a file, or the URL of a server with all that is secret in it."""

    @property
    def shown(self) -> str:
        """The name without user and password."""
        return show_journal_name(self.location)


def parse_journal_name(name: str | PurePath) -> JournalName:
    """Return which journal a path or a URL names; a path may begin with `~`.

    Raises ConfigError if the name is empty or its scheme is not known. A path object is a path,
    whatever it looks like.
    """
    text = str(name)
    if not text.strip():
        raise ConfigError("journal='' names no journal: pass a path such as 'sessions.db'")
    if text in MEMORY_NAMES:
        return JournalName("memory", MEMORY_NAME)
    scheme, rest = _split_scheme(text)
    if not scheme or isinstance(name, PurePath):
        return JournalName("sqlite", os.path.expanduser(text))  # noqa: PTH111 - it stays a text
    if scheme in POSTGRES_SCHEMES:
        return JournalName("postgres", text)
    if scheme in FILE_SCHEMES:
        path = rest.removeprefix("//")
        if not path:
            raise ConfigError(f"journal='{scheme}:' names no file: pass sqlite:sessions.db")
        return JournalName("sqlite", os.path.expanduser(path))  # noqa: PTH111
    raise ConfigError(
        f"journal={show_journal_name(text)!r}: there is no journal of kind {scheme!r}."
        f"{suggest_names(scheme, SCHEMES)} Give a path, memory: or postgresql://…"
    )


def resolve_journal_name(name: str, folder: str) -> str:
    """Return the name so that it means the same in every folder: with an absolute path.

    Relative paths are resolved against `folder`. Raises ConfigError as `parse_journal_name`.
    """
    parsed = parse_journal_name(name)
    if parsed.kind != "sqlite":
        return parsed.location
    # Not `Path.resolve`: a path that goes through a link stays as it was written.
    return os.path.normpath(os.path.join(folder, parsed.location))  # noqa: PTH118


def show_journal_name(name: object) -> str:
    """Return how a name is shown to people: a URL without user, password and options."""
    text = str(name)
    scheme, rest = _split_scheme(text)
    if not scheme or scheme in FILE_SCHEMES or text in MEMORY_NAMES:
        return printable_line(text)
    parts = split_server_url(text)
    if parts is None:
        slashes = "//" if rest.startswith("//") else ""
        return f"{scheme}:{slashes}{HIDDEN}"
    host = parts.netloc.rpartition("@")[2]
    # What leads to the server stays, so that the name can be used as it is shown.
    given = parse_qs(parts.query)
    place = () if host else ("host", "port")
    kept = [f"{name}={given[name][0]}" for name in place if name in given]
    if given.get(POOLER_OPTION) == ["transaction"]:
        kept.append(f"{POOLER_OPTION}=transaction")
    options = f"?{'&'.join(kept)}" if kept else ""
    return printable_line(f"{scheme}://{host}{parts.path}{options}")


def split_server_url(url: str) -> SplitResult | None:
    """Return the parts of a server's URL; None if they are not beyond doubt.

    A password with a plain @, / or # in it makes a URL that can be read in two ways.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    outside = parts.path + parts.query + parts.fragment
    host = parts.netloc.rpartition("@")[2]
    is_plain = parts.netloc.count("@") <= 1 and "@" not in outside and not parts.fragment
    if not parts.scheme or not url.partition(":")[2].startswith("//") or not is_plain:
        return None
    return parts if _HOSTS.fullmatch(host) or _is_encoded_socket(host) else None


def _is_encoded_socket(host: str) -> bool:
    """Whether a host is the folder of a Unix socket, as libpq has it: %2Ftmp."""
    return re.fullmatch(r"%2[Ff][\w.%-]*(:\d+)?", host) is not None


def _split_scheme(text: str) -> tuple[str, str]:
    """Return the scheme of a URL and what follows it; an empty scheme for a path."""
    scheme, colon, rest = text.partition(":")
    # A single letter is a drive of Windows.
    if not colon or len(scheme) == 1 or _SCHEME.fullmatch(scheme) is None:
        return "", text
    return scheme.lower(), rest


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


def check_durability(durability: str) -> None:
    """Raise ConfigError unless this is one of the two values of Durability."""
    if durability not in get_args(Durability):
        raise ConfigError(f"durability={durability!r}: it must be 'full' or 'relaxed'")
