"""A program of this version, which a test of upgrades takes for the version before.

Run as `python older_program.py JOURNAL SESSION COUNT`: it appends COUNT notes to the session, each
in an append of its own, and says how far it came.
"""

import asyncio
import sys

from windlass.journals.urls import open_journal
from windlass.ports import Journal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts


async def append_notes(journal: Journal, session: str, count: int) -> None:
    for _ in range(count):
        seq = len(await journal.read(session)) + 1
        await append_facts(journal, session, note_facts(seq, seq, "older"))
        sys.stdout.write(f"{seq}\n")


if __name__ == "__main__":
    place, name, notes = sys.argv[1:]
    opened = open_journal(place)
    try:
        asyncio.run(append_notes(opened, name, int(notes)))
    finally:
        opened.close()
