"""Choosing a session from a list."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from windlass.cli.renderer import QUIET
from windlass.cli.screen import Screen
from windlass.cli.terminal import read_stdin_line
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.session_summary import SessionSummary
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.launches import sessions_of_folder

LISTED_MAX = 10


async def pick_session(
    journal: SqliteJournal, folder: Path, *, unfinished: bool = False
) -> SessionSummary:
    """The session that the person at the terminal chooses."""
    found = await sessions_of_folder(journal, folder, unfinished=unfinished, limit=LISTED_MAX)
    if not found:
        raise NothingToDo(f"there is no session of {folder}. All of them: windlass sessions")
    return _ask_which(found)


def _ask_which(found: Sequence[SessionSummary]) -> SessionSummary:
    if not sys.stdin.isatty():
        raise ConfigError("name the session, or -c for the last one: nobody is here to choose")
    screen = Screen(sys.stderr)
    for number, one in enumerate(found, 1):
        screen.write_line(
            screen.clip_to_line(f"{one.title}  ({one.state}, {format_age(one.updated)})"),
            mark=f"{number:>2}",
        )
    screen.write_verbatim(f"Which one? 1-{len(found)}: ", QUIET)
    said = read_stdin_line() or ""
    screen.forget_line()
    if not said.isdecimal() or not 1 <= int(said) <= len(found):
        raise ConfigError(f"{said!r} is none of them" if said else "none was chosen")
    return found[int(said) - 1]


def format_age(then: float) -> str:
    """How long ago something was, in words."""
    seconds = max(0.0, time.time() - then)
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {name}{'' if number == 1 else 's'} ago"
    return "just now"
