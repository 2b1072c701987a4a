"""Choosing a session from a list."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from windlass.cli.renderer import QUIET
from windlass.cli.screen import Screen
from windlass.cli.terminal import typed_line
from windlass.core.errors import ConfigError, NothingToDo
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.summary import Summary
from windlass.project.launches import of_folder

LISTED = 10


async def pick(journal: SqliteJournal, folder: Path, *, unfinished: bool = False) -> Summary:
    """The session that the person at the terminal chooses."""
    found = await of_folder(journal, folder, unfinished=unfinished, limit=LISTED)
    if not found:
        raise NothingToDo(f"there is no session of {folder}. All of them: windlass sessions")
    return _chosen(found)


def _chosen(found: Sequence[Summary]) -> Summary:
    if not sys.stdin.isatty():
        raise ConfigError("name the session, or -c for the last one: nobody is here to choose")
    screen = Screen(sys.stderr)
    for number, one in enumerate(found, 1):
        screen.line(
            screen.clip(f"{one.title}  ({one.state}, {ago(one.updated)})"), mark=f"{number:>2}"
        )
    screen.verbatim(f"Which one? 1-{len(found)}: ", QUIET)
    said = typed_line() or ""
    screen.typed()
    if not said.isdecimal() or not 1 <= int(said) <= len(found):
        raise ConfigError(f"{said!r} is none of them" if said else "none was chosen")
    return found[int(said) - 1]


def ago(then: float) -> str:
    """How long ago something was, in words."""
    seconds = max(0.0, time.time() - then)
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {name}{'' if number == 1 else 's'} ago"
    return "just now"
