"""The cost of a long session: the bytes of a late step, and a resume after 10,000 records."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from itertools import count
from pathlib import Path

import apsw
from meter import BenchRow, Work, race_contestants
from world import make_agent, script_steps

from windlass.core.events import Fact, ReplyEnd, ReplyPiece, StepProposed, TextDelta
from windlass.core.view import Prompt
from windlass.journals.codec import encode_fact
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel
from windlass.testing.journals import start_append

FLAT_AIM = 1.1
RESUME_AIM_MS = 60.0
BATCH = 500


class OneAnswer:
    """A model that says one word. A scripted model would check each message of a long request."""

    info = ScriptedModel([]).info

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:  # noqa: ARG002 - a port
        yield TextDelta("Done.")
        yield ReplyEnd()


def measure(early: int, late: int, facts: int, rounds: int) -> list[BenchRow]:
    """Measure the bytes of an early and a late step, and the time to resume a long session."""
    kept = asyncio.run(_make_session(max(late + 1, facts // 5)))
    return [_measure_bytes(kept, early, late), _measure_resume(kept[:facts], rounds)]


async def _make_session(length: int) -> list[Fact]:
    journal = MemoryJournal()
    result = await make_agent(ScriptedModel(script_steps(length)), journal).run("Go.")
    return list(await journal.read(result.session_id))


def _measure_bytes(facts: Sequence[Fact], early: int, late: int) -> BenchRow:
    """Measure the records from one reply of the model to the next."""
    ends = [at for at, fact in enumerate(facts) if isinstance(fact, StepProposed)]

    def size(step: int) -> int:
        return sum(len(encode_fact(fact).body) for fact in facts[ends[step - 2] : ends[step - 1]])

    return BenchRow(
        name=f"records of step {late:,}, against step {early:,}",
        unit="B",
        floor=size(early),
        windlass=size(late),
        aim=FLAT_AIM,
    )


def _measure_resume(facts: Sequence[Fact], rounds: int) -> BenchRow:
    """Measure all of `agent.resume`, including its one step. The floor only fetches the rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "whole.db")
        asyncio.run(_write_session(path, facts))
        copies = (Path(folder, f"{number}.db") for number in count())
        times = race_contestants(
            {
                "floor": lambda: _fetch_work(path),
                "windlass": lambda: _resume_work(path, next(copies)),
            },
            rounds,
        )
    taken = {side: time.wall_s * 1e3 for side, time in times.items()}
    return BenchRow(
        name=f"resume of {len(facts):,} records, best, in ms", unit="", aim=RESUME_AIM_MS, **taken
    )


async def _write_session(path: Path, facts: Sequence[Fact]) -> None:
    with SqliteJournal(path) as journal:
        for at in range(0, len(facts), BATCH):
            await start_append(journal, "s", facts[at : at + BATCH])


def _fetch_work(path: Path) -> Work:
    async def work() -> None:
        file = apsw.Connection(str(path))
        file.execute("SELECT body, hash FROM records ORDER BY number, seq").fetchall()
        file.close()

    return work


def _resume_work(path: Path, copy: Path) -> Work:
    shutil.copy(path, copy)

    async def work() -> None:
        with SqliteJournal(copy) as journal:
            result = await make_agent(OneAnswer(), journal).resume("s")
        assert result.completed

    return work
