"""From the end marker of a reply to its durable record: the time in which a kill loses the reply.

The floor is one append with fsync of the same record to a bare file, made before each request.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from statistics import quantiles

from meter import BenchRow
from typing_extensions import override
from world import make_agent, script_steps

from windlass.core.events import Fact, ReplyEnd, ReplyPiece, StepProposed
from windlass.core.session_summary import SessionSummary
from windlass.core.view import Prompt
from windlass.journals.codec import encode_fact
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel

AIM_P50 = 4.0
"""As a multiple of a bare append with fsync."""


class _ReplyTimes:
    """When each reply ended and was durable, and how long a bare append took, in seconds."""

    def __init__(self, bare_file: Path) -> None:
        self.ended_at = 0.0
        self.waits_s: list[float] = []
        self.bare_s: list[float] = []
        self.body = b"x" * 200
        self._handle = os.open(bare_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def time_bare_append(self) -> None:
        began = time.perf_counter()
        os.write(self._handle, self.body)
        os.fdatasync(self._handle)
        self.bare_s.append(time.perf_counter() - began)

    def note_durable(self, _done: object) -> None:
        self.waits_s.append(time.perf_counter() - self.ended_at)


class _TimedModel(ScriptedModel):
    times: _ReplyTimes

    @override
    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        self.times.time_bare_append()
        async for piece in super().stream(prompt):
            if isinstance(piece, ReplyEnd):
                self.times.ended_at = time.perf_counter()
            yield piece


class _TimedJournal(SqliteJournal):
    times: _ReplyTimes

    @override
    def append(
        self, session: str, facts: Sequence[Fact], row: SessionSummary
    ) -> asyncio.Future[None]:
        done = super().append(session, facts, row)
        if isinstance(facts[-1], StepProposed):
            self.times.body = encode_fact(facts[-1]).body
            done.add_done_callback(self.times.note_durable)
        return done


def measure(replies: int) -> list[BenchRow]:
    """Measure the replies of one run in a file at full durability."""
    with tempfile.TemporaryDirectory() as folder:
        times = _ReplyTimes(Path(folder, "bare"))
        asyncio.run(_run_replies(replies, times, Path(folder, "sessions.db")))
    bare = quantiles(times.bare_s, n=100)
    waits = quantiles(times.waits_s, n=100)
    return [
        BenchRow(
            name=f"end marker to durable record, p{share}",
            unit="µs wall",
            floor=bare[share - 1] * 1e6,
            windlass=waits[share - 1] * 1e6,
            aim=AIM_P50 if share == 50 else None,
        )
        for share in (50, 99)
    ]


async def _run_replies(replies: int, times: _ReplyTimes, path: Path) -> None:
    model = _TimedModel(script_steps(replies))
    model.times = times
    with _TimedJournal(path) as journal:
        journal.times = times
        await make_agent(model, journal).run("Go.")
