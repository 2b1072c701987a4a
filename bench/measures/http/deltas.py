"""CPU time of a text delta from the socket to the watcher, without that of the server."""

from collections.abc import Callable

from meter import BenchRow, Work, race_contestants
from wire_server import WORD, run_server
from world import TextWatcher, make_wire_agent, make_wire_floor

AIM = 6.0
APART_MS = 1


def measure(count: int, apart: int, rounds: int) -> list[BenchRow]:
    """Measure deltas in a burst, with many in one read, and apart, with a read for each."""
    with run_server() as server:
        return [
            *_measure_manner("in a burst", server.text_url(count), count, rounds),
            *_measure_manner(
                f"{APART_MS} ms apart", server.text_url(apart, APART_MS), apart, rounds
            ),
        ]


def _measure_manner(manner: str, url: str, count: int, rounds: int) -> list[BenchRow]:
    contestants = {"floor": _floor_work, "on_event": _on_event_work, "stream": _stream_work}
    ready = {
        name: lambda make=make: _check_seen(make, url, len(WORD) * count)
        for name, make in contestants.items()
    }
    each = {
        name: taken.cpu_s / count * 1e6 for name, taken in race_contestants(ready, rounds).items()
    }
    return [
        BenchRow(
            name=f"HTTP delta, {manner}, {way}",
            unit="µs CPU",
            floor=each["floor"],
            windlass=each[way],
            aim=AIM,
        )
        for way in ("on_event", "stream")
    ]


def _check_seen(make: Callable[[str, TextWatcher], Work], url: str, chars: int) -> Work:
    """Return the work, with a check that all of the text was seen."""
    watcher = TextWatcher()
    unchecked_work = make(url, watcher)

    async def work() -> None:
        await unchecked_work()
        assert watcher.shown == chars, f"{watcher.shown} of {chars} characters were shown"

    return work


def _floor_work(url: str, watcher: TextWatcher) -> Work:
    floor = make_wire_floor(url)
    return lambda: floor.run("Go.", watcher.on_text)


def _on_event_work(url: str, watcher: TextWatcher) -> Work:
    agent = make_wire_agent(url)
    return lambda: agent.run("Go.", on_event=watcher.on_event)


def _stream_work(url: str, watcher: TextWatcher) -> Work:
    agent = make_wire_agent(url)

    async def work() -> None:
        async with agent.stream("Go.") as events:
            async for event in events:
                watcher.on_event(event)

    return work
