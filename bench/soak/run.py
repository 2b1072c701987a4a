"""Many sessions for a long time, with everything that can happen to them: `make soak`.

Processes work on one journal. Now and then one is killed, and the others continue what it left. One
process is never killed, and its resources may not grow. At the end nothing may be left behind:
every session has ended or waits for a person, every record is intact, and no effect happened twice.
Otherwise the exit code is 1.
"""

import argparse
import asyncio
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from audit import SoakAudit, adopt_orphans, audit_sessions, count_leftover_processes
from gauge import ProcessSample, SampleTrend, find_trends, trend_table
from life import WorkPlace
from provider import SoakProvider
from worker import finish_sessions

from windlass.testing.fault_server import serve_in_thread

KILL_EVERY_S = (3.0, 9.0)
END_S = 90.0
"""Seconds in which a process must finish its active runs."""
SAMPLES_MIN = 6


class SoakRun:
    """The worker processes."""

    def __init__(self, folder: Path, url: str, options: argparse.Namespace) -> None:
        self.kills = 0
        self.trouble: list[str] = []
        self._folder = folder
        self._url = url
        self._at_once = options.at_once
        self._rolls = random.Random(options.seed)
        self._steady = self._start_worker("--steady", *(["--leak"] if options.leak else []))
        self._workers = [self._start_worker() for _ in range(options.workers)]

    def _start_worker(self, *flags: str) -> subprocess.Popen[bytes]:
        worker = Path(__file__).with_name("worker.py")
        seed = str(self._rolls.randrange(2**31))
        arguments = [str(self._folder), self._url, "--seed", seed]
        arguments += ["--at-once", str(self._at_once)]
        log = (self._folder / "worker.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, str(worker), *arguments, *flags],
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def run(self, seconds: float) -> None:
        """Kill a worker now and then, and replace it at once."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self._rolls.uniform(*KILL_EVERY_S)))
            at = self._rolls.randrange(len(self._workers))
            if not (self._is_alive(self._workers[at]) and self._is_alive(self._steady)):
                return
            self._workers[at].kill()
            self._workers[at].wait()
            self._workers[at] = self._start_worker()
            self.kills += 1

    def _is_alive(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            self.trouble.append(f"a process ended by itself with code {process.returncode}")
        return process.returncode is None

    def end(self) -> None:
        """Ask all processes to end, and wait for them."""
        processes = [*self._workers, self._steady]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + END_S
        for process in processes:
            try:
                code = process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
                self.trouble.append("a process did not end when it was asked to")
            if code not in (0, -signal.SIGKILL, -signal.SIGTERM):
                self.trouble.append(f"a process ended with code {code}")


class SoakFindings(msgspec.Struct, kw_only=True):
    """The result of a soak."""

    minutes: float
    kills: int
    requests: int
    faults: int
    kinds: int
    """How many kinds of faults."""
    count: Counter[str]
    audit: SoakAudit
    trends: list[SampleTrend]
    trouble: list[str]

    @property
    def is_sound(self) -> bool:
        grew = any(one.grew for one in self.trends)
        return not (grew or self.trouble or self.audit.faults) and bool(self.trends)


def run_soak(folder: Path, options: argparse.Namespace) -> SoakFindings:
    """Run the soak, and audit what is left."""
    provider = SoakProvider(options.seed)
    with serve_in_thread(provider.server) as server:
        soak = SoakRun(folder, server.url, options)
        try:
            soak.run(options.minutes * 60)
        finally:
            soak.end()
        closing = asyncio.run(
            finish_sessions(WorkPlace(folder, server.url, options.seed, options.at_once))
        )
    audit = asyncio.run(audit_sessions(folder))
    count_leftover_processes(audit)
    count, trouble = _read_reports(folder)
    samples = _read_samples(folder)
    return SoakFindings(
        minutes=options.minutes,
        kills=soak.kills,
        requests=provider.request_count,
        faults=provider.faults.total(),
        kinds=len(provider.faults),
        count=count + closing.count,
        audit=audit,
        trends=find_trends(samples) if len(samples) >= SAMPLES_MIN else [],
        trouble=[*soak.trouble, *trouble, *closing.trouble],
    )


def _read_reports(folder: Path) -> tuple[Counter[str], list[str]]:
    """Return the counts of the workers that were not killed, and all reported errors."""
    count: Counter[str] = Counter()
    trouble: list[str] = []
    for path in folder.glob("report-*.json"):
        report = msgspec.json.decode(path.read_bytes())
        count.update(report["count"])
        trouble += report["trouble"]
    log = (folder / "worker.log").read_text("utf-8").strip()
    if log:
        trouble.append(log)
    return count, trouble


def _read_samples(folder: Path) -> list[ProcessSample]:
    decode = msgspec.json.Decoder(ProcessSample).decode
    lines = (folder / "samples.jsonl").read_bytes().splitlines()
    return [decode(line) for line in lines]


def report_lines(found: SoakFindings) -> Iterator[str]:
    audit = found.audit
    count = found.count
    rows: list[tuple[str, object]] = [
        ("minutes", found.minutes),
        ("workers killed, and replaced", found.kills),
        ("requests to the provider", f"{found.requests:,}"),
        (f"of them failed, in {found.kinds} ways", f"{found.faults:,}"),
        ("sessions, records", f"{audit.sessions:,}, {audit.records:,}"),
        ("sessions that wait for a person", audit.waiting),
        ("effects, and those reported as unknown", f"{audit.effects:,}, {audit.unknown}"),
        ("in workers that lived: cancels, steerings", f"{count['cancels']}, {count['steered']}"),
        ("  answers, resumed", f"{count['answered']}, {count['resumed']}"),
        ("helpers that were not resumed", count["helpers left open"]),
        ("effects done twice", audit.twice),
        ("effects lost", audit.lost),
        ("sessions left open", audit.open),
        ("sessions that do not verify, fold or replay", audit.broken),
        ("processes left behind", audit.processes),
        ("unexpected errors", len(found.trouble)),
    ]
    yield from (f"{title:<46} {value!s:>16}" for title, value in rows)
    yield ""
    yield from trend_table(found.trends) if found.trends else ["too short to see what grows"]
    yield from audit.findings[:20]
    yield from found.trouble[:5]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2, help="processes that are killed (2)")
    parser.add_argument("--at-once", type=int, default=8, help="sessions in each process (8)")
    parser.add_argument("--seed", type=int, default=0)
    leak = "leak on purpose in the process that is never killed: the exit code must be 1"
    parser.add_argument("--leak", action="store_true", help=leak)
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args()
    adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="windlass-soak-"))
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}: {folder}")
    found = run_soak(folder, options)
    print(*report_lines(found), sep="\n")
    if found.is_sound and not options.keep:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    return 0 if found.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
