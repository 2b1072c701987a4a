"""The resources that a process holds, sampled over time, and whether they grow.

A sample is taken at rest: no run is active, and garbage has been collected. The first samples are a
warm-up. A line is fitted through the rest, and its rise from the first to the last is the growth.
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
"""The share of the samples that is ignored."""
LINE = "{:<24} {:>9} {:>9} {:>9} {:>12} {:>10}  {}"


class ProcessSample(msgspec.Struct, frozen=True):
    """The resources of a process at one moment."""

    minute: float
    runs: int
    rss_kb: int
    objects: int
    """Objects that the garbage collector tracks."""
    handles: int
    """Files, pipes and sockets, without TCP connections."""
    connections: int
    """TCP connections to the provider, including those kept for the next request."""
    tasks: int
    threads: int
    children: int


class GrowthBound(msgspec.Struct, frozen=True):
    """How much a number may rise over all samples before it counts as growth."""

    title: str
    part: float = 0.0
    """As a share of the first value."""
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
    """One row of the table."""

    title: str
    start: float
    end: float
    most: float
    per_minute: float
    per_thousand: float
    """The rise for each thousand runs."""
    grew: bool


def take_sample(minute: float, runs: int) -> ProcessSample:
    """Sample this process. Call it at rest, inside its event loop."""
    for _ in range(3):
        gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    handles = _open_handles()
    tcp_sockets = _tcp_sockets()
    connections = sum(handle in tcp_sockets for handle in handles)
    return ProcessSample(
        minute=round(minute, 3),
        runs=runs,
        rss_kb=int(status["VmRSS"].split()[0]),
        objects=len(gc.get_objects()),
        handles=len(handles) - connections,
        connections=connections,
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        children=len(living_children(os.getpid())),
    )


def _open_handles() -> list[str]:
    """Return the target of each file handle of this process."""
    found: list[str] = []
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # The handle of the listing itself is closed by now.
            found.append(str(handle.readlink()))
    return found


def _tcp_sockets() -> set[str]:
    """Return the TCP sockets of this machine, named as in `_open_handles`."""
    lines = [
        line
        for path in (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
        if path.exists()
        for line in path.read_text().splitlines()[1:]
    ]
    return {f"socket:[{line.split()[9]}]" for line in lines}


def count_object_types() -> Counter[str]:
    """Count the objects by type, to see which of them grew."""
    types = (type(item) for item in gc.get_objects())
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in types)


def living_children(parent: int) -> list[int]:
    """Return the living children of a process."""
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
    """Return the trend of each number, without the samples of the warm-up."""
    judged = samples[int(len(samples) * WARM_UP) :]
    return [_find_trend(name, bound, judged) for name, bound in BOUNDS.items()]


def _find_trend(name: str, bound: GrowthBound, judged: Sequence[ProcessSample]) -> SampleTrend:
    values: list[float] = [getattr(sample, name) for sample in judged]
    minutes = [sample.minute for sample in judged]
    slope = linear_regression(minutes, values).slope
    rise = slope * (minutes[-1] - minutes[0])
    runs = judged[-1].runs - judged[0].runs
    start = median(values[:3])
    end = median(values[-3:])
    # A single busy sample bends the line, but a value that returned to its start has not grown.
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
    return [head, *(_format_trend(trend) for trend in found)]


def _format_trend(trend: SampleTrend) -> str:
    numbers: list[Any] = [f"{value:,.0f}" for value in (trend.start, trend.end, trend.most)]
    slopes = [f"{value:+,.2f}" for value in (trend.per_minute, trend.per_thousand)]
    return LINE.format(trend.title, *numbers, *slopes, "GROWS" if trend.grew else "flat")
