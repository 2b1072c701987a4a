"""CPU per text delta from the socket to whoever watches; the server's own is not counted."""

from collections.abc import Callable

from meter import Row, Work, race
from wire_server import WORD, serving
from world import Watcher, agent_at, floor_at

AIM = 6.0
APART_MS = 1


def measure(count: int, apart: int, rounds: int) -> list[Row]:
    """Deltas come in a burst, as many as a read can take, or so far apart that each is a read."""
    with serving() as server:
        return [
            *_rows("in a burst", server.text(count), count, rounds),
            *_rows(f"{APART_MS} ms apart", server.text(apart, APART_MS), apart, rounds),
        ]


def _rows(manner: str, url: str, count: int, rounds: int) -> list[Row]:
    contestants = {"floor": _floor, "on_event": _on_event, "stream": _stream}
    ready = {
        name: lambda make=make: _seen(make, url, len(WORD) * count)
        for name, make in contestants.items()
    }
    each = {name: taken.cpu_s / count * 1e6 for name, taken in race(ready, rounds).items()}
    return [
        Row(
            name=f"HTTP delta, {manner}, {way}",
            unit="µs CPU",
            floor=each["floor"],
            windlass=each[way],
            aim=AIM,
        )
        for way in ("on_event", "stream")
    ]


def _seen(make: Callable[[str, Watcher], Work], url: str, chars: int) -> Work:
    """The work, and the proof that it was done."""
    watcher = Watcher()
    work = make(url, watcher)

    async def seen() -> None:
        await work()
        assert watcher.shown == chars, f"{watcher.shown} of {chars} characters were shown"

    return seen


def _floor(url: str, watcher: Watcher) -> Work:
    floor = floor_at(url)
    return lambda: floor.run("Go.", watcher.on_text)


def _on_event(url: str, watcher: Watcher) -> Work:
    agent = agent_at(url)
    return lambda: agent.run("Go.", on_event=watcher.on_event)


def _stream(url: str, watcher: Watcher) -> Work:
    agent = agent_at(url)

    async def work() -> None:
        async with agent.stream("Go.") as events:
            async for event in events:
                watcher.on_event(event)

    return work
