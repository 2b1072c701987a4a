"""The process that drives the demo's agent, and is killed: `… run|resume FOLDER calm|fast`.

It tells its parent each event as a line of JSON, and does not outlive it.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path

import msgspec

from windlass.cli.demo.script import CALM, FAST, PROMPT, DemoPace
from windlass.cli.demo.task import JOURNAL, SESSION, build_agent
from windlass.core.errors import WindlassError
from windlass.core.events import Event
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.knowledge.sqlite import SqliteKnowledge

_encode = msgspec.json.Encoder().encode


def print_event(event: Event) -> None:
    sys.stdout.buffer.write(_encode(event) + b"\n")
    sys.stdout.buffer.flush()


async def drive_agent(what: str, folder: Path, pace: DemoPace) -> None:
    # The notes are in the journal's own file.
    with SqliteJournal(folder / JOURNAL) as journal, SqliteKnowledge(folder / JOURNAL) as notes:
        driven = build_agent(folder, journal, notes, pace)
        if what == "resume":
            await driven.resume(SESSION, on_event=print_event)
        else:
            await driven.run(PROMPT, session=SESSION, on_event=print_event)
        await driven.aclose()


def _end_with_parent() -> None:
    """The parent holds the other end of stdin; when it goes, however it goes, so does this."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main() -> None:
    what, folder, pace = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        asyncio.run(drive_agent(what, Path(folder), FAST if pace == "fast" else CALM))
    except WindlassError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
