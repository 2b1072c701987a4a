"""What a fleet of workers costs, how it scales, and how fast it takes over: `make bench-fleet`.

All figures of a table come from one run on one machine, so that their ratios hold elsewhere. The
model is a server of ours that takes its time, so that waiting, and not the processor, is the limit.
Nothing is asserted.
"""

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cpu import read_cpu_s, read_tree_cpu_s
from stage import FleetStage, open_stage

from windlass.core.events import RunResumed

WORKERS = (1, 2, 4)
RUNS_AT_ONCE = 8
RUNS_PER_WORKER = 24
CALLS = 3
LATENCY_S = 2.0
STEPS = (10, 200)
KILLS = 10
CROWD = 18
"""Runs under way when a worker is killed."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-fleet-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def measure_scaling(*, engine: bool, quick: bool) -> None:
    """Print runs per second and processor time per run, for more and more workers."""
    name = "Temporal and Postgres" if engine else "Postgres alone"
    print(f"\n{name}: runs of {CALLS + 1} requests and {CALLS} calls,")
    print(f"a model that takes {LATENCY_S:g} s, {RUNS_AT_ONCE} runs at a time for each worker\n")
    print("| workers | runs/s | per worker | CPU per run, ms: workers | database | engine |")
    print("|---|---|---|---|---|---|")
    base = 0.0
    for workers in WORKERS:
        with temporary_folder() as folder:
            opened = open_stage(
                folder, latency_s=LATENCY_S, runs_at_once=RUNS_AT_ONCE, engine=engine
            )
            async with opened as stage:
                await stage.start_workers(workers)
                rate, costs = await _measure_rate(stage, RUNS_PER_WORKER // (4 if quick else 1))
        base = base or rate
        shares = " | ".join(f"{1000 * cost:.1f}" if cost else "-" for cost in costs)
        print(f"| {workers} | {rate:.1f} | {rate / base / workers:.2f} | {shares} |", flush=True)


async def _measure_rate(stage: FleetStage, runs_per_worker: int) -> tuple[float, list[float]]:
    """Return the runs per second of a stage, and the seconds of CPU of each part for one run."""
    count = runs_per_worker * len(stage.slots)
    sessions = [f"run {number}" for number in range(count)]

    def read_all() -> list[float]:
        engine = stage.place.engine
        return [
            sum(read_cpu_s(slot.process_id) for slot in stage.slots),
            read_tree_cpu_s(stage.place.database.process_id),
            read_cpu_s(engine.process_id) if engine is not None else 0.0,
        ]

    before = read_all()
    began_at = time.time()
    await stage.post_runs(sessions, CALLS)
    ended_at = await stage.wait_for_ends(sessions)
    after = read_all()
    costs = [(end - begin) / count for begin, end in zip(before, after, strict=True)]
    return count / (ended_at - began_at), costs


async def measure_take_over(*, engine: bool, kills: int) -> None:
    """Print how long after the death of a worker another one has its runs."""
    waits: list[float] = []
    with temporary_folder() as folder:
        opened = open_stage(folder, latency_s=0.2, runs_at_once=64, engine=engine)
        async with opened as stage:
            await stage.start_workers(3)
            for nth in range(kills):
                sessions = [f"run {number} before kill {nth}" for number in range(CROWD)]
                await stage.post_runs(sessions, calls=12)
                while not all(map(stage.find_driver, sessions)):  # noqa: ASYNC110 - of processes
                    await asyncio.sleep(0.1)
                # Whoever looked first has most of the runs.
                drivers = Counter(map(stage.find_driver, sessions))
                busiest = drivers.most_common(1)[0][0]
                slot = next(slot for slot in stage.slots if slot.name == busiest)
                slot.kill()
                killed_at = time.time()
                await stage.wait_for_ends(sessions)
                for session in sessions:
                    facts = await stage.journal.read(session)
                    resumed = [fact.at for fact in facts if isinstance(fact, RunResumed)]
                    waits += [at - killed_at for at in resumed if at > killed_at]
                slot.start()
                await asyncio.sleep(4)
    name = "Temporal and Postgres" if engine else "Postgres alone"
    print(f"\n{name}: {len(waits)} runs taken over in {kills} kills of one of 3 workers:")
    print(f"p50 {statistics.median(waits):.2f} s, p99 {_quantile(waits, 0.99):.2f} s", flush=True)


def _quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


async def measure_history() -> None:
    """Print how much the engine keeps of a short run and of a long one."""
    from windlass.fleet import connect_engine  # noqa: PLC0415 - an extra

    print("\n| replies and calls in a run | events in the engine's history | bytes |")
    print("|---|---|---|")
    with temporary_folder() as folder:
        opened = open_stage(folder, latency_s=0.0, runs_at_once=8, engine=True)
        async with opened as stage:
            assert stage.place.engine is not None
            await stage.start_workers(1)
            engine = await connect_engine(
                stage.place.engine.address_through(stage.place.engine.port)
            )
            for steps in STEPS:
                session = f"steps {steps}"
                await stage.post_runs([session], calls=steps)
                await stage.wait_for_ends([session])
                await asyncio.sleep(2)
                handle = engine.client.get_workflow_handle(engine.address.workflow_id(session))
                events = [event async for event in handle.fetch_history_events()]
                size = sum(len(event.SerializeToString()) for event in events)
                print(f"| {steps} | {len(events)} | {size:,} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fleet of workers costs.")
    parser.add_argument("--engine", choices=("postgres", "temporal"), action="append")
    parser.add_argument("--quick", action="store_true", help="few runs, to see that it works")
    given = parser.parse_args()
    for engine in given.engine or ("postgres", "temporal"):
        has_engine = engine == "temporal"
        asyncio.run(measure_scaling(engine=has_engine, quick=given.quick))
        asyncio.run(measure_take_over(engine=has_engine, kills=2 if given.quick else KILLS))
        if has_engine:
            asyncio.run(measure_history())


if __name__ == "__main__":
    main()
