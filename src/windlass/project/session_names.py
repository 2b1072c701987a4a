"""Names of sessions: how they are made, and how a person's words find one.

A name begins with its folder, so that the sessions of a folder are found without reading them.
"""

import hashlib
import os
import re
from pathlib import Path

from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.session_summary import UNFINISHED_STATES, SessionSummary
from windlass.core.suggestions import find_near_names
from windlass.ports import Journal
from windlass.project.journals import ManagedJournal

SLUG_MAX = 24
SHOWN_MAX = 5
LISTED_MAX = 1_000


def session_prefix(folder: Path) -> str:
    """The beginning of the names of a folder's sessions: its name, and a digest of its path."""
    slug = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:SLUG_MAX] or "folder"
    digest = hashlib.blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=2)
    return f"{slug}-{digest.hexdigest()}-"


def new_session_name(folder: Path) -> str:
    """Return a name for a new session of a folder, which begins like its others."""
    return session_prefix(folder) + os.urandom(4).hex()


async def sessions_of_folder(
    journal: Journal, folder: Path, *, unfinished: bool = False, limit: int = LISTED_MAX
) -> list[SessionSummary]:
    """The sessions of a folder, the latest first."""
    prefix = session_prefix(folder)
    # The journal's search also finds the prefix in titles, so it is checked again here.
    state = UNFINISHED_STATES if unfinished else None
    found = await journal.sessions(prefix, limit=LISTED_MAX, state=state)
    return [summary for summary in found if summary.session.startswith(prefix)][:limit]


async def find_latest(
    journal: Journal, folder: Path, *, unfinished: bool = False
) -> SessionSummary:
    """The latest session of a folder; raises NothingToDo if there is none."""
    found = await sessions_of_folder(journal, folder, unfinished=unfinished, limit=1)
    if not found:
        raise no_session_of(folder, unfinished=unfinished)
    return found[0]


def no_session_of(folder: Path, *, unfinished: bool = False) -> NothingToDo:
    """The error for a folder without sessions."""
    kind = "unfinished session" if unfinished else "session"
    return NothingToDo(f"there is no {kind} of {folder}. To list all sessions: windlass sessions")


async def find_session(journal: ManagedJournal, name: str) -> SessionSummary:
    """The session with this name, or the only one whose name contains it.

    Raises ConfigError if several names contain it, and NothingToDo if none does.
    """
    found = await journal.sessions(name, limit=LISTED_MAX)
    exact = [summary for summary in found if summary.session == name]
    matches = exact or [summary for summary in found if name in summary.session]
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(summary.session for summary in matches[:SHOWN_MAX])
        raise ConfigError(
            f"{name!r} is part of {len(matches)} session names: {shown}. Write more of the name."
        )
    known = [summary.session for summary in await journal.sessions(limit=LISTED_MAX)]
    near = find_near_names(name, known)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif known:
        hint = "To list the sessions: windlass sessions"
    else:
        hint = (
            f"The journal {journal.name} is empty; name another one with --journal or "
            "WINDLASS_JOURNAL."
        )
    raise NothingToDo(f"there is no session {name!r}. {hint}")
