"""What a process holds, sample by sample, and whether it grows.

A sample is taken at rest: no run is under way, and the garbage was collected. The first part of the
samples warms up. Then the line through the rest is fitted, and what it rises from the first to the
last of them is the growth.
"""

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import msgspec

WARM_UP = 0.3
"""The part of the samples that is not judged."""
LINE = "{:<24} {:>9} {:>9} {:>9} {:>12} {:>10}  {}"


class ProcessSample(msgspec.Struct, frozen=True):
    """What a process holds at one moment."""

    minute: float
    runs: int
    rss_kb: int
    objects: int
    """That the collector knows of."""
    handles: int
    """Files, pipes and sockets, without what is connected over TCP."""
    connections: int
    """To the provider: those that are kept open for the next request are among them."""
    tasks: int
    threads: int
    children: int


class GrowthBound(msgspec.Struct, frozen=True):
    """How much a number may rise over all samples before it counts as growth."""

    title: str
    part: float = 0.0
    """Of where it started."""
    spare: float = 0.0


BOUNDS = {
    "rss_kb": GrowthBound("memory, kB RSS", 0.05, 2_000),
    "objects": GrowthBound("objects of Python", 0.01, 1_000),
    "handles": GrowthBound("file handles", 0.0, 1.5),
    "connections": GrowthBound("connections", 0.5, 8.0),
    "tasks": GrowthBound("asyncio tasks", 0.0, 0.5),
    "threads": GrowthBound("threads", 0.0, 1.5),
    "children": GrowthBound("child processes", 0.0, 0.5),
}


class SampleTrend(msgspec.Struct, frozen=True):
    """One line of the table."""

    title: str
    start: float
    end: float
    most: float
    per_minute: float
    per_thousand: float
    """Runs."""
    grew: bool


def take_sample(minute: float, runs: int) -> ProcessSample:
    """What this process holds; at rest, inside its event loop."""
    for _ in range(3):
        gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    open_now, tcp = _open_handles(), _tcp_sockets()
    over_tcp = sum(one in tcp for one in open_now)
    return ProcessSample(
        minute=round(minute, 3),
        runs=runs,
        rss_kb=int(status["VmRSS"].split()[0]),
        objects=len(gc.get_objects()),
        handles=len(open_now) - over_tcp,
        connections=over_tcp,
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        children=len(living_children(os.getpid())),
    )


def _open_handles() -> list[str]:
    """What each file handle of this process is."""
    found: list[str] = []
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # The one by which the folder was read.
            found.append(str(handle.readlink()))
    return found


def _tcp_sockets() -> set[str]:
    """The sockets of this machine that speak TCP, as `_open` names them."""
    lines = [
        line
        for path in (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
        if path.exists()
        for line in path.read_text().splitlines()[1:]
    ]
    return {f"socket:[{line.split()[9]}]" for line in lines}


def count_object_types() -> Counter[str]:
    """The objects by type, to see which of them grew."""
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())


def living_children(parent: int) -> list[int]:
    """The living children of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return [pid for pid in found if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def find_trends(samples: Sequence[ProcessSample]) -> list[SampleTrend]:
    """Each number over all samples but those of the warm-up."""
    judged = samples[int(len(samples) * WARM_UP) :]
    return [_find_trend(name, bound, judged) for name, bound in BOUNDS.items()]


def _find_trend(name: str, bound: GrowthBound, judged: Sequence[ProcessSample]) -> SampleTrend:
    values: list[float] = [getattr(one, name) for one in judged]
    minutes = [one.minute for one in judged]
    slope = linear_regression(minutes, values).slope
    rise = slope * (minutes[-1] - minutes[0])
    runs = judged[-1].runs - judged[0].runs
    start, end = median(values[:3]), median(values[-3:])
    # A single busy sample bends a line; what has come back to its start has not grown.
    over = bound.part * start + bound.spare
    return SampleTrend(
        title=bound.title,
        start=start,
        end=end,
        most=max(values),
        per_minute=slope,
        per_thousand=rise / runs * 1_000 if runs else 0.0,
        grew=rise > over and end - start > over,
    )


def trend_table(found: Sequence[SampleTrend]) -> list[str]:
    head = LINE.format("", "start", "end", "most", "a minute", "1,000 runs", "").rstrip()
    return [head, *(_format_trend(one) for one in found)]


def _format_trend(one: SampleTrend) -> str:
    numbers: list[Any] = [f"{value:,.0f}" for value in (one.start, one.end, one.most)]
    slopes = [f"{value:+,.2f}" for value in (one.per_minute, one.per_thousand)]
    return LINE.format(one.title, *numbers, *slopes, "GROWS" if one.grew else "flat")
