"""One trial: processes work on one session and are killed as planned, until it is finished."""

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
"""A process that takes longer counts as hung."""
START_S = 0.03
"""Seconds in which a process starts and opens or creates its file."""
EARLY = 0.15
"""The share of the kills that hit during the start."""
_ONE_AT_A_TIME = threading.Lock()
"""`Process.start` also reaps earlier processes, which only one thread may do at a time."""


@dataclass(slots=True)
class SessionRecord:
    """A session after its last process, with the counts of its kills."""

    hits: int = 0
    """Kills that hit a live process."""
    misses: int = 0
    lives: int = 0
    last_s: float = 0.0
    """Seconds that the last process record."""
    trouble: str = ""
    """Why it was not finished."""
    facts: Sequence[Fact] = ()
    broken: list[str] = field(default_factory=list[str])
    """Problems of its journal."""

    @property
    def messages(self) -> list[Message]:
        return list(fold(SESSION, self.facts).transcript)


@dataclass(slots=True)
class TrialCount:
    """The result of one trial or of many. All but `unknown` and `killed_after` should be zero."""

    unfinished: int = 0
    paid_twice: int = 0
    off_record: int = 0
    """Requests that were sent but are not recorded."""
    done_twice: int = 0
    lost: int = 0
    differing: int = 0
    broken: int = 0
    unknown: int = 0
    """Writes that were reported to the model as unknown."""
    killed_after: Counter[str] = field(default_factory=Counter[str])
    """How often each kind of fact was the last record before a kill."""

    @property
    def faults(self) -> int:
        """The number of broken promises."""
        replies = self.paid_twice + self.off_record
        effects = self.done_twice + self.lost
        return self.unfinished + replies + effects + self.differing + self.broken

    def add(self, other: "TrialCount") -> None:
        for name in TrialCount.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def fork_context() -> ForkServerContext:
    """Return a context whose processes start with everything imported, so kills hit real work."""
    # A fork server imports once and forks fast, and its children share no threads or locks.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["proof.crash.worker", "aiohttp", "asyncpg"])
    return context


def plan_kills(rolls: random.Random, run_s: float, kills: int) -> list[float]:
    """Draw the delays before each kill: anywhere in the rest of the run, sometimes at its start."""
    delays: list[float] = []
    for _ in range(kills):
        left_s = max(START_S, run_s - sum(delays))
        latest_s = START_S if rolls.random() < EARLY else left_s
        delays.append(rolls.uniform(0, latest_s))
    return delays


def run_with_kills(
    context: ForkServerContext, job: WorkerJob, delays: Sequence[float]
) -> SessionRecord:
    """Kill one process after each delay, then let one finish."""
    create_rows_table(Path(job.folder))
    record = SessionRecord()
    for delay in (*delays, None):
        began = time.monotonic()
        code = _run_process(context, job, delay)
        record.lives += 1
        record.last_s = time.monotonic() - began
        if code == -signal.SIGKILL and delay is not None:
            record.hits += 1
        elif code != 0:
            log = Path(job.folder, "worker.log")
            output = log.read_text("utf-8").strip() if log.exists() else "no output"
            record.trouble = f"exit code {code}: {output}"
            break
        elif delay is not None:
            record.misses += 1
    asyncio.run(_read_journal(job, record))
    return record


def _run_process(context: ForkServerContext, job: WorkerJob, delay: float | None) -> int | None:
    """Start a process, kill it after the delay if it still runs, and return its exit code."""
    process = context.Process(target=run_worker, args=(job,), daemon=True)
    with _ONE_AT_A_TIME:
        process.start()
    if not wait([process.sentinel], LIFE_MAX_S if delay is None else delay):
        process.kill()
    wait([process.sentinel])
    with _ONE_AT_A_TIME:
        return process.exitcode


async def _read_journal(job: WorkerJob, record: SessionRecord) -> None:
    journal = job.open_journal()
    try:
        record.facts = await journal.read(SESSION)
        record.broken = [str(problem) for problem in await journal.verify(SESSION)]
    finally:
        if isinstance(journal, PostgresJournal):
            await journal.aclose()
        else:
            journal.close()
    again = replay(SESSION, record.facts)
    if not again.is_same:
        record.broken.append(str(again.difference or again.other_rules))


def count_faults(
    record: SessionRecord, twin: SessionRecord, asks: Sequence[StepRequest], folder: Path
) -> TrialCount:
    """Compare a trial with the same session without kills."""
    count = TrialCount(broken=len(record.broken), killed_after=_records_before_kills(record.facts))
    run = fold(SESSION, record.facts).run
    if record.trouble or run is None or run.outcome != "completed":
        count.unfinished = 1
        return count
    known = results_by_call(twin.messages)
    count.differing = int(settle_unknown_sends(record.messages, known) != twin.messages)
    _count_replies(count, record.facts, asks)
    _count_effects(count, record, folder)
    return count


def _count_replies(count: TrialCount, facts: Sequence[Fact], asks: Sequence[StepRequest]) -> None:
    proposed = [fact for fact in facts if isinstance(fact, StepProposed)]
    for step, fact in enumerate(proposed, 1):
        # A request for a step after its reply was recorded was paid for in vain.
        count.paid_twice += sum(ask.step == step and ask.at > fact.at for ask in asks)
    started = Counter(fact.step for fact in facts if isinstance(fact, AttemptStarted))
    asked = Counter(ask.step for ask in asks)
    count.off_record += sum((asked - started).values())


def _count_effects(count: TrialCount, record: SessionRecord, folder: Path) -> None:
    with closing(sqlite3.connect(folder / ROWS)) as file:
        rows = [str(key) for (key,) in file.execute("SELECT key FROM rows")]
    results = results_by_call(record.messages)
    for tool, done in {
        "note": read_marks(folder / NOTES),
        "book": rows,
        "send": read_marks(folder / SENT),
    }.items():
        times = Counter(done)
        expected = expected_keys(tool)
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
