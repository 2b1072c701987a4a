"""One trial: process after process works on one session, killed as planned, until it is done."""

import asyncio
import multiprocessing
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from pathlib import Path

from proof.crash.provider import StepRequest
from proof.crash.script import (
    NOTES,
    ROWS,
    SENT,
    SESSION,
    expected_keys,
    results_by_call,
    settle_unknown_sends,
)
from proof.crash.worker import WorkerJob, create_rows_table, read_marks, run_worker
from windlass.core.audit.replay import replay
from windlass.core.events import AttemptStarted, Fact, RunResumed, StepProposed
from windlass.core.fold.run import fold
from windlass.core.messages import Message
from windlass.journals.postgres.journal import PostgresJournal

LIFE_MAX_S = 60.0
"""A process that takes longer hangs."""
START_S = 0.03
"""In which a process starts and makes or opens its file."""
EARLY = 0.15
"""The part of the kills that come in that time."""
_ONE_AT_A_TIME = threading.Lock()
"""Starting a process looks after the ones before, which only one thread may do at once."""


@dataclass(slots=True)
class SessionRecord:
    """A session that was worked on until no process had anything left to do."""

    hits: int = 0
    """Kills that ended a process which was alive."""
    misses: int = 0
    lives: int = 0
    last_s: float = 0.0
    """How long the last process lived."""
    trouble: str = ""
    """Why it did not come to its end."""
    facts: Sequence[Fact] = ()
    broken: list[str] = field(default_factory=list[str])
    """What is wrong with its journal."""

    @property
    def messages(self) -> list[Message]:
        return list(fold(SESSION, self.facts).transcript)


@dataclass(slots=True)
class TrialCount:
    """What came of a trial, or of many. All but `unknown` and `killed_after` should be zero."""

    unfinished: int = 0
    paid_twice: int = 0
    off_record: int = 0
    """Requests that went out and are not on record."""
    done_twice: int = 0
    lost: int = 0
    differing: int = 0
    broken: int = 0
    unknown: int = 0
    """Letters of which the model was told that nobody knows whether they went out."""
    killed_after: Counter[str] = field(default_factory=Counter[str])
    """By its kind, the last record of a process that was killed."""

    @property
    def faults(self) -> int:
        """How many promises were broken."""
        replies = self.paid_twice + self.off_record
        effects = self.done_twice + self.lost
        return self.unfinished + replies + effects + self.differing + self.broken

    def add(self, other: "TrialCount") -> None:
        for name in TrialCount.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def fork_context() -> ForkServerContext:
    """Where processes come from that are ready to work: so kills hit them at work."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["proof.crash.worker", "aiohttp", "asyncpg"])
    return context


def plan_kills(rolls: random.Random, run_s: float, kills: int) -> list[float]:
    """When to kill: anywhere in what is left of the run, and now and then in the first moments."""
    delays: list[float] = []
    for _ in range(kills):
        left_s = max(START_S, run_s - sum(delays))
        delays.append(rolls.uniform(0, START_S if rolls.random() < EARLY else left_s))
    return delays


def run_with_kills(
    context: ForkServerContext, job: WorkerJob, delays: Sequence[float]
) -> SessionRecord:
    """Kill process after process, then let one come to the end."""
    create_rows_table(Path(job.folder))
    lived = SessionRecord()
    for delay in (*delays, None):
        began = time.monotonic()
        code = _run_process(context, job, delay)
        lived.lives, lived.last_s = lived.lives + 1, time.monotonic() - began
        if code == -signal.SIGKILL and delay is not None:
            lived.hits += 1
        elif code != 0:
            log = Path(job.folder, "worker.log")
            said = log.read_text("utf-8").strip() if log.exists() else "it said nothing"
            lived.trouble = f"exit code {code}: {said}"
            break
        elif delay is not None:
            lived.misses += 1
    asyncio.run(_read_journal(job, lived))
    return lived


def _run_process(context: ForkServerContext, job: WorkerJob, delay: float | None) -> int | None:
    """How a process ended that was killed after so long, if it lived that long."""
    process = context.Process(target=run_worker, args=(job,), daemon=True)
    with _ONE_AT_A_TIME:
        process.start()
    if not wait([process.sentinel], LIFE_MAX_S if delay is None else delay):
        process.kill()
    wait([process.sentinel])
    with _ONE_AT_A_TIME:
        return process.exitcode


async def _read_journal(job: WorkerJob, lived: SessionRecord) -> None:
    journal = job.open_journal()
    try:
        lived.facts = await journal.read(SESSION)
        lived.broken = [str(problem) for problem in await journal.verify(SESSION)]
    finally:
        if isinstance(journal, PostgresJournal):
            await journal.aclose()
        else:
            journal.close()
    again = replay(SESSION, lived.facts)
    if not again.is_same:
        lived.broken.append(str(again.difference or again.other_rules))


def count_faults(
    lived: SessionRecord, twin: SessionRecord, asks: Sequence[StepRequest], folder: Path
) -> TrialCount:
    """What came of a trial, against the same session without a kill."""
    count = TrialCount(broken=len(lived.broken), killed_after=_records_before_kills(lived.facts))
    run = fold(SESSION, lived.facts).run
    if lived.trouble or run is None or run.outcome != "completed":
        count.unfinished = 1
        return count
    known = results_by_call(twin.messages)
    count.differing = int(settle_unknown_sends(lived.messages, known) != twin.messages)
    _count_replies(count, lived.facts, asks)
    _count_effects(count, lived, folder)
    return count


def _count_replies(count: TrialCount, facts: Sequence[Fact], asks: Sequence[StepRequest]) -> None:
    proposed = [fact for fact in facts if isinstance(fact, StepProposed)]
    for step, fact in enumerate(proposed, 1):
        count.paid_twice += sum(ask.step == step and ask.at > fact.at for ask in asks)
    started = Counter(fact.step for fact in facts if isinstance(fact, AttemptStarted))
    asked = Counter(ask.step for ask in asks)
    count.off_record += sum((asked - started).values())


def _count_effects(count: TrialCount, lived: SessionRecord, folder: Path) -> None:
    with closing(sqlite3.connect(folder / ROWS)) as file:
        rows = [str(key) for (key,) in file.execute("SELECT key FROM rows")]
    results = results_by_call(lived.messages)
    for tool, done in {
        "note": read_marks(folder / NOTES),
        "book": rows,
        "send": read_marks(folder / SENT),
    }.items():
        times, expected = Counter(done), expected_keys(tool)
        for key in expected:
            kind = results[key.removeprefix(f"{SESSION}/")].result.kind
            count.unknown += kind == "unknown"
            count.lost += kind == "value" and times[key] == 0
            count.differing += kind not in ("value", "unknown" if tool == "send" else "value")
        count.done_twice += sum(n - 1 for n in times.values()) + len(times.keys() - expected)


def _records_before_kills(facts: Sequence[Fact]) -> Counter[str]:
    return Counter(
        type(last).__name__ for last, fact in pairwise(facts) if isinstance(fact, RunResumed)
    )
