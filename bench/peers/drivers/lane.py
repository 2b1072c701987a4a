"""One contestant in a process of its own: a JSON job per line on stdin, a JSON answer per line.

Only the standard library: it runs in every peer's environment. A driver gives `serve` a function
that makes an agent, and says whether its agents are awaited or called.
"""

import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from errands import Seen

PROMPT = "Go."
TOLD_MAX = 400

# One loop for all jobs, as in a service: some clients keep connections for the loop's whole life.
_LOOP = asyncio.Runner()


@dataclass(frozen=True, slots=True)
class Order:
    """What an agent is made for."""

    url: str
    steps: int = 1_000
    """No agent may stop before this many replies."""
    store: str = ""
    """A folder for what is durable; empty: nothing is."""
    session: str = "s"
    resume: bool = False
    """Go on with what a process before this one began."""
    wide: bool = False
    """As many calls at once as are asked for, where there is a setting for it."""
    watched: bool = True
    """Whether somebody sees the text as it comes."""


@dataclass(slots=True)
class Shown:
    """What a person who watches has before them."""

    parts: list[str] = field(default_factory=list)
    on_first: Callable[[], None] | None = None

    def __call__(self, text: str) -> None:
        if text:
            self.parts.append(text)
            if self.on_first is not None:
                called, self.on_first = self.on_first, None
                called()

    def discard(self) -> None:
        """The runtime said that what was shown no longer counts."""
        self.parts.clear()


Play = Callable[[Shown], Any]
"""Plays one run and gives its final text; a coroutine if the driver's agents are awaited.

It can be played again, and many times at once: what may be shared between runs is made once.
"""


class Driver:
    """What a driver says for its peer."""

    package = ""
    awaited = True
    durable = ""
    """What keeps its sessions on disk, if anything does."""

    def make(self, order: Order) -> Play:
        raise NotImplementedError

    async def cancelled(self, order: Order, shown: Shown, stop: asyncio.Event) -> str:
        """Run until `stop`, then cancel as the documentation says. Returns with control."""
        work = asyncio.ensure_future(self.make(order)(shown))
        await stop.wait()
        work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            return "CancelledError"
        return "returned"


def serve(driver: Driver) -> None:
    """Answer jobs until there are no more."""
    # Whatever the peer prints goes to stderr; the answers have stdout for themselves.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = _JOBS[job.pop("do")](driver, job)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            answer = {"error": _told(error)}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _told(error: BaseException) -> dict[str, str]:
    words = " ".join(str(error).split())
    return {"type": type(error).__name__, "message": words[:TOLD_MAX]}


def _ready(driver: Driver, job: dict[str, Any]) -> dict[str, Any]:
    """What it took to have an agent, and then what its first reply took, from nothing."""
    order = Order(**job["order"])
    play = driver.make(order)
    ready = time.process_time(), _rss_kb()
    text = _LOOP.run(_awaited(play)) if driver.awaited else play(Shown())
    return {
        "cpu_s": ready[0],
        "rss_kb": ready[1],
        "first_cpu_s": time.process_time(),
        "first_rss_kb": _rss_kb(),
        "version": version(driver.package),
        "durable": driver.durable,
        "text": text,
    }


async def _awaited(play: Play) -> str:
    return await play(Shown())


def _run(driver: Driver, job: dict[str, Any]) -> dict[str, Any]:
    """Some runs one after the other, as one measurement."""
    order, times = Order(**job["order"]), job.get("times", 1)
    Seen.ran = Seen.at_once = Seen.awake = 0
    Seen.arguments.clear()
    shown, texts, errors = Shown(), [], []

    async def awaited() -> tuple[float, ...]:
        play = driver.make(order)
        before = _start()
        for _ in range(times):
            try:
                texts.append(await play(shown))
            except Exception as error:  # noqa: BLE001 - the outcome is what is asked for
                errors.append(_told(error))
        return _since(before)

    def called() -> tuple[float, ...]:
        play = driver.make(order)
        before = _start()
        for _ in range(times):
            try:
                texts.append(play(shown))
            except Exception as error:  # noqa: BLE001
                errors.append(_told(error))
        return _since(before)

    cpu, wall, wrote = _LOOP.run(awaited()) if driver.awaited else called()
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "wrote": wrote,
        "shown": sum(map(len, shown.parts)),
        "pieces": len(shown.parts),
        "seen": "".join(shown.parts)[:TOLD_MAX],
        "text": str(texts[-1])[:TOLD_MAX] if texts else None,
        "error": errors[-1] if errors else None,
        "ran": Seen.ran,
        "at_once": Seen.at_once,
        "arguments": list(Seen.arguments),
    }


def _crowd(driver: Driver, job: dict[str, Any]) -> dict[str, Any]:
    """Many runs at once: tasks where agents are awaited, a thread each where they are called."""
    order, runs = Order(**job["order"]), job["runs"]
    lost: list[dict[str, str]] = []

    async def one(play: Play) -> None:
        try:
            await play(Shown())
        except Exception as error:  # noqa: BLE001
            lost.append(_told(error))

    async def awaited() -> tuple[float, ...]:
        play = driver.make(order)
        await one(play)
        peak, before = _peak_kb(), _start()
        await asyncio.gather(*(one(play) for _ in range(runs)))
        return (*_since(before), _peak_kb() - peak)

    def single(play: Play) -> None:
        try:
            play(Shown())
        except Exception as error:  # noqa: BLE001
            lost.append(_told(error))

    def called() -> tuple[float, ...]:
        play = driver.make(order)
        single(play)
        peak, before = _peak_kb(), _start()
        with ThreadPoolExecutor(runs) as pool:
            list(pool.map(single, [play] * runs))
        return (*_since(before), _peak_kb() - peak)

    cpu, wall, _, peak = _LOOP.run(awaited()) if driver.awaited else called()
    first = lost[0] if lost else None
    return {"cpu_s": cpu, "wall_s": wall, "peak_kb": peak, "lost": len(lost), "why": first}


def _cancel(driver: Driver, job: dict[str, Any]) -> dict[str, Any]:
    """From the cancel until the caller has control again. The text has begun by then."""
    order = Order(**job["order"])

    async def play() -> dict[str, Any]:
        began, stop = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        shown = Shown(on_first=lambda: loop.call_soon_threadsafe(began.set) and None)
        work = asyncio.ensure_future(driver.cancelled(order, shown, stop))
        await began.wait()
        await asyncio.sleep(0.2)
        at = time.monotonic()
        stop.set()
        done, _ = await asyncio.wait({work}, timeout=job["within_s"])
        took = time.monotonic() - at
        how = work.result() if done else "no control"
        return {"at": at, "took_s": took if done else None, "how": how}

    return _LOOP.run(play())


def _start() -> tuple[float, ...]:
    gc.collect()
    return time.process_time(), time.perf_counter(), _written()


def _since(before: tuple[float, ...]) -> tuple[float, ...]:
    now = time.process_time(), time.perf_counter(), _written()
    return tuple(b - a for a, b in zip(before, now, strict=True))


def _written() -> int:
    """Bytes handed to write calls on files so far; what goes to sockets is not among them."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split("wchar: ")[1].split()[0])
    except OSError:
        return 0


def _rss_kb() -> int:
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split("VmRSS:")[1].split()[0])


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


_JOBS: dict[str, Callable[[Driver, dict[str, Any]], dict[str, Any]]] = {
    "ready": _ready,
    "run": _run,
    "crowd": _crowd,
    "cancel": _cancel,
}
