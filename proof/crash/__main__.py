"""`python -m proof.crash --kills 300`.

Kills a real process at random moments, lets another one continue, and counts the damage. The exit
code is 1 if anything was paid for twice, done twice, lost or different.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from proof.crash.provider import CrashProvider
from proof.crash.script import STEPS
from proof.crash.trial import (
    RECORD_S,
    SessionRecord,
    TrialCount,
    count_faults,
    fork_context,
    plan_kills,
    run_with_kills,
)
from proof.crash.worker import WorkerJob
from windlass.testing.fault_server import serve_in_thread

WORKERS_MAX = 2
BARE_APPENDS = 5
"""Bare appends that are timed after each trial."""
BARE_BYTES = 4096
"""About what SQLite writes to its log for a reply."""


class CrashCampaign:
    """Runs trials until the planned number of kills has hit a live process."""

    def __init__(
        self, *, kills: int, seed: int, dsn: str, folder: Path, keep_open: bool = False
    ) -> None:
        self.kills = kills
        self.seed = seed
        self.dsn = dsn
        self.count = TrialCount()
        self.trials = self.hits = self.misses = self.replies = self.asks = 0
        self.run_s = 0.0
        self.fsync_s: list[float] = []
        """How long a bare append with fsync took, measured in between."""
        self.findings: list[str] = []
        """What went wrong, one line for each trial."""
        self._folder = folder
        self._numbers = count(1)
        self._context = fork_context()
        self._provider = CrashProvider(keep_open=keep_open)
        self._one_at_a_time = threading.Lock()
        self._twin = SessionRecord()
        self._kills_planned = 0
        """Kills that are planned for the running trials."""

    def run(self, workers: int) -> None:
        with serve_in_thread(self._provider.server):
            self._twin = run_with_kills(self._context, self._new_job("twin"), ())
            if self._twin.trouble:
                sys.exit(f"The run fails even without a kill: {self._twin.trouble}")
            again = [
                run_with_kills(self._context, self._new_job(f"again{n}"), ()) for n in range(3)
            ]
            self.run_s = min(record.last_s for record in again)
            with ThreadPoolExecutor(workers) as pool:
                for done in [pool.submit(self._run_trials) for _ in range(workers)]:
                    done.result()

    def _run_trials(self) -> None:
        for number, kills in self._plan_trials():
            rolls = random.Random(f"{self.seed}/{number}")
            job = self._new_job(str(number))
            record = run_with_kills(self._context, job, plan_kills(rolls, self.run_s, kills))
            asks = self._provider.requests_of(job.trial)
            trial_count = count_faults(record, self._twin, asks, Path(job.folder))
            fsync_s = [time_bare_append(Path(job.folder, "bare")) for _ in range(BARE_APPENDS)]
            with self._one_at_a_time:
                self.count.add(trial_count)
                self.fsync_s += fsync_s
                self.trials += 1
                self.hits += record.hits
                self.misses += record.misses
                self.asks += len(asks)
                self.replies += sum(ask.sent_at is not None for ask in asks)
                if trial_count.faults:
                    why = record.trouble or "; ".join(record.broken)
                    self.findings.append(f"trial {number} in {job.folder}: {trial_count} {why}")

    def _plan_trials(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each trial, and how often to kill in it."""
        while True:
            with self._one_at_a_time:
                number = next(self._numbers)
                left = self.kills - self.hits - self._kills_planned
                kills = min(left, random.Random(f"{self.seed}+{number}").choice((1, 2, 3, 4)))
                self._kills_planned += max(0, kills)
            if kills <= 0:
                return
            yield number, kills
            with self._one_at_a_time:
                self._kills_planned -= kills

    def _new_job(self, name: str) -> WorkerJob:
        folder = self._folder / name
        folder.mkdir()
        return WorkerJob(name, str(folder), self._provider.server.url, self.dsn)


def time_bare_append(path: Path) -> float:
    """Return how long it takes to append as much as a reply to a file and wait for the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        began = time.perf_counter()
        os.write(handle, b"x" * BARE_BYTES)
        os.fdatasync(handle)
        return time.perf_counter() - began
    finally:
        os.close(handle)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="kills that must hit (300)")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--dsn", default="", help="the Postgres server, for --store postgres")
    parser.add_argument(
        "--keep-open", action="store_true", help="the provider keeps each response open at its end"
    )
    parser.add_argument("--workers", type=int, default=WORKERS_MAX, help="processes at once (2)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    if (options.store == "postgres") != bool(options.dsn):
        parser.error("--store postgres and --dsn go together")
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="windlass-crash-"))
    campaign = CrashCampaign(
        kills=options.kills,
        seed=options.seed,
        dsn=options.dsn,
        folder=folder,
        keep_open=options.keep_open,
    )
    try:
        campaign.run(options.workers)
    finally:
        if not campaign.findings:  # Otherwise the files are kept for a look.
            shutil.rmtree(folder)
    print(*report_lines(campaign, options.store), sep="\n")
    for line in campaign.findings:
        print(line)
    print(f"in {time.monotonic() - began:.0f} s, seed {options.seed}")
    return 1 if campaign.count.faults else 0


def report_lines(campaign: CrashCampaign, store: str) -> Iterator[str]:
    total = campaign.count
    trials = campaign.trials
    after = ", ".join(f"{name} {n}" for name, n in total.killed_after.most_common())
    found = sum(total.killed_after.values())
    # A disk that is slower than the limit excuses nothing.
    typical_ms = min(RECORD_S, percentile(total.recorded_after_s, 0.99)) * 1000
    within = sum(lived_s * 1000 <= typical_ms for lived_s in total.asked_again_s)
    rows: list[tuple[str, object]] = [
        (f"runs of {len(STEPS) + 1} steps, in {store}", trials),
        ("a run without a kill, in ms", round(campaign.run_s * 1000)),
        ("kills that hit a live process", campaign.hits),
        ("kills that came too late", campaign.misses),
        ("hits before the process wrote a record", campaign.hits - found),
        ("runs that finished", f"{trials - total.unfinished} of {trials}"),
        ("requests to the provider, whole replies", f"{campaign.asks}, {campaign.replies}"),
        ("recorded replies that were requested again", total.paid_twice),
        ("replies sent whole and requested again", total.asked_again),
        (f"of these, sent within {typical_ms:.1f} ms (p99) before it", within),
        (f"of these, sent over {RECORD_S * 1000:g} ms before the kill", total.sent_in_vain),
        ("end marker to durable record, ms p50, p99", _format_times(total.recorded_after_s)),
        ("a bare append with fsync, ms p50, p99", _format_times(campaign.fsync_s)),
        ("requests that are not recorded", total.off_record),
        ("effects done twice", total.done_twice),
        ("effects lost", total.lost),
        ("writes reported to the model as unknown", total.unknown),
        ("runs parked by a call at two kills, and resumed", total.parked),
        ("transcripts that differ from a run without kills", total.differing),
        ("journals that do not verify or replay", total.broken),
    ]
    yield from (f"{name:<50} {value!s:>12}" for name, value in rows)
    yield f"last record before a kill: {after}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed; 0 if there are none."""
    if not values:
        return 0.0
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _format_times(times_s: Sequence[float]) -> str:
    return ", ".join(f"{percentile(times_s, share) * 1000:.1f}" for share in (0.5, 0.99))


if __name__ == "__main__":
    sys.exit(main())
