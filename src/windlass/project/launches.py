"""How a session was started, and how it is found again.

What the command line was told is recorded with each run, so that `windlass resume` in another
shell, days later, needs nothing but the session's name. The name begins with the folder, so that
the sessions of a folder can be told from others without reading them.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.events import Fact, RunStarted
from windlass.core.session_summary import SessionSummary
from windlass.core.suggestions import suggest_names
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.settings import NO_LIMIT, SETTING_KEYS, Settings

CONTEXT_KEY = "windlass"
"""Where a launch stands in the context of a run."""
SLUG_MAX = 24
SHOWN_MAX = 5
LISTED_MAX = 1_000


class SessionLaunch(msgspec.Struct, frozen=True):
    """What a run was started with."""

    folder: str
    flags: dict[str, Any] = {}
    """The settings that were in force, as flags."""
    schema: dict[str, Any] | None = None
    """What the final reply must fit."""


def build_launch(settings: Settings, folder: Path, schema: dict[str, Any] | None) -> SessionLaunch:
    """All that is needed to set the same agent up again."""
    flags: dict[str, Any] = {}
    for key, about in SETTING_KEYS.items():
        value = getattr(settings, key)
        if about.per_agent:
            # No limit is a choice too.
            known = NO_LIMIT if value is None else value
            flags[key] = str(known) if isinstance(known, Decimal) else known
    return SessionLaunch(str(folder), flags, schema)


def last_launch(facts: Sequence[Fact]) -> SessionLaunch | None:
    """The launch of a session's last run, if it was started here."""
    started = [fact for fact in facts if isinstance(fact, RunStarted)]
    given = started[-1].context.get(CONTEXT_KEY) if started else None
    try:
        return msgspec.convert(given, SessionLaunch) if given else None
    except msgspec.ValidationError:
        return None


def launch_context(launch: SessionLaunch) -> Mapping[str, Any]:
    return {CONTEXT_KEY: msgspec.to_builtins(launch)}


def session_prefix(folder: Path) -> str:
    """What the names of a folder's sessions begin with."""
    slug = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:SLUG_MAX] or "folder"
    digest = hashlib.blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=2)
    return f"{slug}-{digest.hexdigest()}-"


def new_session_name(folder: Path) -> str:
    return session_prefix(folder) + os.urandom(4).hex()


async def find_latest(
    journal: SqliteJournal, folder: Path, *, unfinished: bool = False
) -> SessionSummary:
    """The session of a folder that was touched last; raises NothingToDo if there is none."""
    found = await sessions_of_folder(journal, folder, unfinished=unfinished, limit=1)
    if not found:
        kind = "unfinished session" if unfinished else "session"
        raise NothingToDo(f"there is no {kind} of {folder}. All of them: windlass sessions")
    return found[0]


async def sessions_of_folder(
    journal: SqliteJournal, folder: Path, *, unfinished: bool = False, limit: int = LISTED_MAX
) -> list[SessionSummary]:
    mark = session_prefix(folder)
    found = await journal.sessions(mark, limit=LISTED_MAX, unfinished=unfinished)
    return [one for one in found if one.session.startswith(mark)][:limit]


async def find_session(journal: SqliteJournal, given: str) -> SessionSummary:
    """The session that is meant by its name, or by a part of it that no other has."""
    found = await journal.sessions(given, limit=LISTED_MAX)
    exact = [one for one in found if one.session == given]
    near = exact or [one for one in found if given in one.session]
    if len(near) == 1:
        return near[0]
    if near:
        shown = ", ".join(one.session for one in near[:SHOWN_MAX])
        raise ConfigError(f"{given!r} is a part of {len(near)} names: {shown}. Write more of it.")
    known = [one.session for one in await journal.sessions(limit=LISTED_MAX)]
    near_names = suggest_names(given, known) if known else " The journal is empty."
    told = near_names if near_names.startswith(" Did") else " List them: windlass sessions"
    raise NothingToDo(f"there is no session {given!r}.{told}")
