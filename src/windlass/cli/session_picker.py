"""Which session a command works on: the one that was named, the latest, or one from a list."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from windlass.cli.terminal import choose_from_list
from windlass.core.errors import ConfigError
from windlass.core.phrases import format_count
from windlass.core.session_summary import SessionSummary
from windlass.project.journals import ManagedJournal
from windlass.project.session_names import (
    find_latest,
    find_session,
    no_session_of,
    sessions_of_folder,
)

PICK = "?"
"""The value of `--resume` without a name: let the person choose."""
LISTED_MAX = 200


async def choose_session(
    journal: ManagedJournal, folder: Path, name: str | None, *, latest: bool
) -> SessionSummary | None:
    """The session that `--resume` or `--continue` asks for; None if neither was given."""
    if name == PICK:
        return await pick_session(journal, folder)
    if name is not None:
        return await find_session(journal, name)
    return await find_latest(journal, folder) if latest else None


async def pick_session(journal: ManagedJournal, folder: Path) -> SessionSummary:
    """The session that the person at the terminal chooses from the folder's latest ones."""
    found = await sessions_of_folder(journal, folder, limit=LISTED_MAX)
    if not found:
        raise no_session_of(folder)
    return await _ask_which(found)


async def _ask_which(found: Sequence[SessionSummary]) -> SessionSummary:
    if not sys.stdin.isatty():
        raise ConfigError(
            "there is no terminal to choose a session at: name one, or use -c for the latest"
        )
    rows = [
        f"{summary.title}  ({summary.state}, {format_age(summary.updated)})" for summary in found
    ]
    chosen = await choose_from_list("Which session?", rows)
    if chosen is None:
        raise ConfigError("no session was chosen")
    return found[chosen]


def format_age(then: float) -> str:
    """How long ago a time (in seconds since the epoch) was, in words."""
    seconds = max(0.0, time.time() - then)
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{format_count(int(seconds // size), name)} ago"
    return "just now"
