"""One trial: processes work on one session and are killed as planned, until it is finished."""

import asyncio
import multiprocessing
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from pathlib import Path

from proof.crash.provider import StepRequest
from proof.crash.script import (
    NOTES,
    RECORDED,
    ROWS,
    SENT,
    SESSION,
    expected_keys,
    results_by_call,
    settle_unknown_sends,
)
from proof.crash.worker import WorkerJob, create_rows_table, read_marks, run_worker
from windlass.core.audit.replay import replay
from windlass.core.events import AttemptStarted, Fact, RunPaused, RunResumed, StepProposed
from windlass.core.fold.run import fold
from windlass.core.messages import Message
from windlass.journals.postgres.journal import PostgresJournal

LIFE_MAX_S = 60.0
"""A process that takes longer counts as hung."""
START_S = 0.03
"""Seconds in which a process starts and opens or creates its file."""
RECORD_S = 0.25
"""Seconds in which a reply that was sent whole must be on record, on a machine that is busy.

A kill can always hit between the last byte of a reply and its record. Nothing may add to that time.
"""
EARLY = 0.15
"""The share of the kills that hit during the start."""
_ONE_AT_A_TIME = threading.Lock()
"""`Process.start` also reaps earlier processes, which only one thread may do at a time."""


@dataclass(slots=True)
class SessionRecord:
    """A session after its last process, with the counts of its kills."""

    hits: int = 0
    """Kills that hit a live process."""
    killed_at: list[float] = field(default_factory=list[float])
    """When those kills were, in seconds since the epoch."""
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
    """The result of one trial or of many.

    All counts but `asked_again`, `unknown`, `parked` and `killed_after` should be zero.
    """

    unfinished: int = 0
    paid_twice: int = 0
    sent_in_vain: int = 0
    """Replies that were requested again although there was time to record them before the kill."""
    asked_again_s: list[float] = field(default_factory=list[float])
    """For each reply that was sent whole and requested again: how long before the kill."""
    recorded_after_s: list[float] = field(default_factory=list[float])
    """For each reply that was recorded: the time from its end marker to the durable record."""
    off_record: int = 0
    """Requests that were sent but are not recorded."""
    done_twice: int = 0
    lost: int = 0
    differing: int = 0
    broken: int = 0
    unknown: int = 0
    """Writes that were reported to the model as unknown."""
    parked: int = 0
    """How often a run was parked, because one call was running at two kills."""
    killed_after: Counter[str] = field(default_factory=Counter[str])
    """How often each kind of fact was the last record before a kill."""

    @property
    def asked_again(self) -> int:
        """Replies that the provider had sent whole and that were requested again."""
        return len(self.asked_again_s)

    @property
    def faults(self) -> int:
        """The number of broken promises."""
        replies = self.paid_twice + self.sent_in_vain + self.off_record
        effects = self.done_twice + self.lost
        return self.unfinished + replies + effects + self.differing + self.broken

    def add(self, other: "TrialCount") -> None:
        for name in TrialCount.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def fork_context() -> ForkServerContext:
    """Return a context whose processes start with everything imported, so kills hit real work."""
    # A fork server imports once and forks fast, and its children share no threads or locks.
    context = multiprocessing.get_context("forkserver")
    modules = ["proof.crash.worker", "proof.crash.speaker", "aiohttp", "asyncpg"]
    context.set_forkserver_preload(modules)
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
        code, killed_at = _run_process(context, job, delay)
        record.lives += 1
        record.last_s = time.monotonic() - began
        if code == -signal.SIGKILL and delay is not None:
            record.hits += 1
            record.killed_at.append(killed_at)
        elif code != 0:
            log = Path(job.folder, "worker.log")
            output = log.read_text("utf-8").strip() if log.exists() else "no output"
            record.trouble = f"exit code {code}: {output}"
            break
        elif delay is not None:
            record.misses += 1
    asyncio.run(_read_journal(job, record))
    return record


def _run_process(
    context: ForkServerContext, job: WorkerJob, delay: float | None
) -> tuple[int | None, float]:
    """Start a process, and kill it after the delay if it still runs.

    Returns its exit code, and when it was killed or ended, in seconds since the epoch.
    """
    process = context.Process(target=run_worker, args=(job,), daemon=True)
    with _ONE_AT_A_TIME:
        process.start()
    ended = wait([process.sentinel], LIFE_MAX_S if delay is None else delay)
    killed_at = time.time()
    if not ended:
        process.kill()
    wait([process.sentinel])
    with _ONE_AT_A_TIME:
        return process.exitcode, killed_at


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
    count.parked = sum(isinstance(fact, RunPaused) for fact in record.facts)
    known = results_by_call(twin.messages)
    count.differing = int(settle_unknown_sends(record.messages, known) != twin.messages)
    _count_replies(count, record, asks)
    count.recorded_after_s += _times_to_record(record, asks, folder)
    _count_effects(count, record, folder)
    return count


def _count_replies(count: TrialCount, record: SessionRecord, asks: Sequence[StepRequest]) -> None:
    proposed = [fact for fact in record.facts if isinstance(fact, StepProposed)]
    for step, fact in enumerate(proposed, 1):
        requests = [ask for ask in asks if ask.step == step]
        # A request for a step after its reply was recorded was paid for in vain.
        count.paid_twice += sum(ask.at > fact.at for ask in requests)
        for ask in requests[:-1]:
            lived_s = _lived_after_reply_s(ask, record)
            if lived_s > 0:
                count.asked_again_s.append(lived_s)
            count.sent_in_vain += lived_s > RECORD_S
    started = Counter(fact.step for fact in record.facts if isinstance(fact, AttemptStarted))
    asked = Counter(ask.step for ask in asks)
    count.off_record += sum((asked - started).values())


def _times_to_record(
    record: SessionRecord, asks: Sequence[StepRequest], folder: Path
) -> Iterator[float]:
    """Yield how long each recorded reply took from its end marker to the disk, in seconds.

    Zero if it was on the disk first: a reply is whole for its reader once nothing is missing but
    the marker.
    """
    lines = (line.partition("@") for line in read_marks(folder / RECORDED))
    durable_at = {int(seq): float(at) for seq, _, at in lines}
    proposed = [fact for fact in record.facts if isinstance(fact, StepProposed)]
    for step, fact in enumerate(proposed, 1):
        sent_at = [ask.sent_at for ask in asks if ask.step == step][-1]
        # A process that is killed right after the record does not note it.
        if sent_at is not None and fact.seq in durable_at:
            yield max(0.0, durable_at[fact.seq] - sent_at)


def _lived_after_reply_s(ask: StepRequest, record: SessionRecord) -> float:
    """Return how long the process that asked lived on after its whole reply had been sent.

    It is zero or less if the process died before that, or if the reply was never sent whole.
    """
    if ask.sent_at is None:
        return 0.0
    # The provider may read a request after the death of its sender, which had recorded it before.
    attempts = (fact for fact in record.facts if isinstance(fact, AttemptStarted))
    began = max(fact.at for fact in attempts if fact.step == ask.step and fact.at <= ask.at)
    return min((at for at in record.killed_at if at > began), default=inf) - ask.sent_at


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
