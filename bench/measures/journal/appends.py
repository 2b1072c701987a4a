"""One append at full durability, from one session or from many at once.

Each session waits for its append before it makes the next one. There are two floors, which make the
same records durable one by one: a raw SQLite commit for each, and a write with fsync for each.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import apsw
from meter import BenchRow, Work, race_contestants

from windlass.core.events import Fact
from windlass.journals.codec import encode_fact
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import start_append
from windlass.testing.samples import note_facts

AIM = {1: 2.0, 10: 1.0, 100: 0.5}
"""As a multiple of a raw SQLite commit: sessions at once share their commits."""


def measure(sessions: Sequence[int], appends: int, rounds: int) -> list[BenchRow]:
    """Measure `appends` appends of one record each, for several numbers of sessions at once."""
    facts = note_facts(1, appends)
    bodies = [encode_fact(fact).body for fact in facts]
    rows: list[BenchRow] = []
    with tempfile.TemporaryDirectory() as folder:
        places = (Path(folder, f"{number}.db") for number in count())
        for crowd in sessions:
            times = race_contestants(
                {
                    "fsync": lambda: _fsync_work(bodies, next(places)),
                    "commit": lambda: _commit_work(bodies, next(places)),
                    "windlass": partial(_append_work, facts, crowd, places),
                },
                rounds,
            )
            each = {side: time.wall_s / appends * 1e6 for side, time in times.items()}
            name = f"append, {crowd} at once"
            ours = each["windlass"]
            rows += (
                BenchRow(
                    name=f"{name}, a commit each",
                    unit="µs wall",
                    floor=each["commit"],
                    windlass=ours,
                    aim=AIM.get(crowd),
                ),
                BenchRow(
                    name=f"{name}, an fsync each",
                    unit="µs wall",
                    floor=each["fsync"],
                    windlass=ours,
                ),
            )
    return rows


def _fsync_work(bodies: Sequence[bytes], path: Path) -> Work:
    async def work() -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for body in bodies:
            os.write(handle, body)
            os.fdatasync(handle)
        os.close(handle)

    return work


def _commit_work(bodies: Sequence[bytes], path: Path) -> Work:
    file = apsw.Connection(str(path))
    file.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    file.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    async def work() -> None:
        for body in bodies:
            file.execute("INSERT INTO records (body) VALUES (?)", (body,))
        file.close()

    return work


def _append_work(facts: Sequence[Fact], crowd: int, places: Iterator[Path]) -> Work:
    journal = SqliteJournal(next(places))
    appends_each = len(facts) // crowd

    async def append_all(session: str) -> None:
        for fact in facts[:appends_each]:
            await start_append(journal, session, [fact])

    async def work() -> None:
        await asyncio.gather(*(append_all(f"s{number}") for number in range(crowd)))
        journal.close()

    return work
