"""A process of the soak: `worker.py PLACE [--steady]`.

It works until SIGTERM asks it to end, or until it is killed. A steady worker is never killed: it
rests now and then, and writes a sample of its resources.
"""

import argparse
import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from gauge import count_object_types, living_children, take_sample
from life import WorkerLife, WorkPlace, open_life

from windlass.journals.sqlite.journal import SqliteJournal

WORK_S = 4.0
"""Seconds between two rests of a steady worker."""
ROUNDS_MAX = 20
"""How often the last process tries to finish the sessions that are left open."""
SETTLE_S = 5.0
"""Seconds in which leftovers of a run must be gone."""


async def run_worker(place: WorkPlace, *, steady: bool, leak: bool) -> None:
    """Work until the process is asked to end or is killed."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with open_life(place) as life:
        try:
            if steady:
                await _work_steadily(life, place, over, leak=leak)
            else:
                await life.work(over.is_set)
        finally:
            _write_report(life, place)


async def _work_steadily(
    life: WorkerLife, place: WorkPlace, over: asyncio.Event, *, leak: bool
) -> None:
    began = time.monotonic()
    leaked = list[object]()
    await _open_connections(life.journal)
    tasks = len(asyncio.all_tasks())
    children = len(living_children(os.getpid()))
    first = None
    with (place.folder / "samples.jsonl").open("wb") as file:
        while not over.is_set():
            until = time.monotonic() + WORK_S
            await life.work(lambda until=until: over.is_set() or time.monotonic() > until)
            await _settle_down(tasks, children)
            if leak:
                leaked += [b"x" * 2**22, (place.folder / "samples.jsonl").open("rb")]
            minute = (time.monotonic() - began) / 60
            file.write(msgspec.json.encode(take_sample(minute, life.runs)) + b"\n")
            file.flush()
            if first is None and minute > 0.5:
                first = count_object_types()
    if first is not None:
        grown = (count_object_types() - first).most_common(12)
        lines = "".join(f"{name} +{count}\n" for name, count in grown)
        (place.folder / "grown.txt").write_text(lines, "utf-8")


async def _open_connections(journal: SqliteJournal) -> None:
    """Open all connections of the journal now: opened one by one they would look like a leak."""
    await asyncio.gather(*(journal.read("nobody") for _ in range(64)))
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await journal.wait_for_append("nobody", 0)


async def _settle_down(tasks: int, children: int) -> None:
    """Wait a moment for cancelled work to end. What does not end shows in the sample."""
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        await asyncio.sleep(0.1)
        if len(asyncio.all_tasks()) <= tasks and len(living_children(os.getpid())) <= children:
            return


def _write_report(life: WorkerLife, place: WorkPlace) -> None:
    name = f"report-{os.getpid()}.json"
    report = {"count": life.count, "trouble": life.trouble}
    (place.folder / name).write_bytes(msgspec.json.encode(report))


async def finish_sessions(place: WorkPlace) -> WorkerLife:
    """Resume everything that was left open, and then end the sessions that helpers left."""
    async with open_life(place) as life:
        for _ in range(ROUNDS_MAX):
            if not await life.resume_all():
                break
        life.count["helpers left open"] += await life.resume_all(helpers=True)
        return life


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("url")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--steady", action="store_true")
    parser.add_argument("--leak", action="store_true")
    options = parser.parse_args()
    place = WorkPlace(options.folder, options.url, options.seed, options.at_once)
    asyncio.run(run_worker(place, steady=options.steady, leak=options.leak))


if __name__ == "__main__":
    main()
