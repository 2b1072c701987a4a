"""What the service costs: for each frame to each watcher, for each watcher, for each start."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any

import aiohttp
from measures.service.child import LAST
from meter import BenchRow, child_environment

AIM = 3.0
SIDES = ("floor", "windlass")
AT_ONCE = 32
"""Starts of runs that are under way at a time."""


class Child:
    """One side as a process, and what it tells."""

    def __init__(self, commands: IO[str], replies: IO[str]) -> None:
        self._commands = commands
        self._replies = replies

    def hear(self) -> Any:  # noqa: ANN401 - whatever it tells as JSON
        return json.loads(self._replies.readline())

    def go_on(self) -> None:
        self._commands.write("\n")
        self._commands.flush()


@contextmanager
def run_child(*arguments: str) -> Iterator[Child]:
    command = [sys.executable, str(Path(__file__).with_name("child.py")), *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Child(process.stdin, process.stdout)
        finally:
            process.kill()


def measure(watchers: int, events: int, rounds: int, starts: int) -> list[BenchRow]:
    frames: dict[str, list[float]] = {side: [] for side in SIDES}
    memory: dict[str, list[float]] = {side: [] for side in SIDES}
    cpu: dict[str, list[float]] = {side: [] for side in SIDES}
    wall: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            per_frame_us, per_watcher_kb = asyncio.run(_watch(side, watchers, events))
            frames[side].append(per_frame_us)
            memory[side].append(per_watcher_kb)
            per_start_us, starts_per_s = asyncio.run(_start(side, starts))
            cpu[side].append(per_start_us)
            wall[side].append(starts_per_s)
    return [
        BenchRow(
            name=f"SSE frame, {watchers:,} watchers",
            unit="µs CPU",
            aim=AIM,
            **{side: median(values) for side, values in frames.items()},
        ),
        BenchRow(
            name=f"watcher, of {watchers:,}",
            unit="kB RSS",
            **{side: median(values) for side, values in memory.items()},
        ),
        BenchRow(
            name="POST /runs, durable",
            unit="µs CPU",
            **{side: median(values) for side, values in cpu.items()},
        ),
        BenchRow(
            name=f"POST /runs, {AT_ONCE} at once, best",
            unit="per s",
            **{side: max(values) for side, values in wall.items()},
        ),
    ]


async def _watch(side: str, watchers: int, events: int) -> tuple[float, float]:
    """Return the CPU time of a frame, and the memory of a watcher."""
    with run_child("watch", side, str(events)) as child:
        told = child.hear()
        opened = [await _open_stream(told) for _ in range(watchers)]
        await asyncio.gather(*(reader.readuntil(LAST) for reader, _ in opened))
        child.go_on()
        read = await asyncio.gather(*(reader.readuntil(LAST) for reader, _ in opened))
        child.go_on()
        counted = child.hear()
        for _, writer in opened:
            writer.transport.abort()
    frames = sum(data.count(b"\ndata: ") for data in read)
    assert frames >= watchers * events, f"{side}: {frames} frames"
    return counted["cpu_s"] / frames * 1e6, counted["kb"] / watchers


async def _open_stream(told: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:  # noqa: ANN401 - what the child told
    port = int(told["address"].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    writer.write(
        f"GET /runs/many/events?follow=true HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {told['token']}\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    return reader, writer


async def _start(side: str, starts: int) -> tuple[float, float]:
    """Return the CPU time of a start with its run, and how many were answered in a second."""
    with run_child("start", side) as child:
        told = child.hear()
        headers = {"Authorization": f"Bearer {told['token']}"}
        async with aiohttp.ClientSession(told["address"], headers=headers) as client:
            left = iter(range(starts))

            async def post() -> None:
                for _ in left:
                    async with client.post("/runs", json={"prompt": "Hi."}) as reply:
                        assert reply.status == 202
                        await reply.read()

            child.go_on()
            began = time.perf_counter()
            await asyncio.gather(*(post() for _ in range(AT_ONCE)))
            taken_s = time.perf_counter() - began
            child.go_on()
            counted = child.hear()
    return counted["cpu_s"] / starts * 1e6, starts / taken_s
