"""CPU per text delta, with somebody watching on both sides."""

from collections.abc import Sequence

from meter import Row, Work, race
from world import TOOLS, Watcher, agent_of, drain, floor_of

from windlass import Text, User
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.testing import Reply, ScriptedModel, pause, say

AIM = 3.0
TOKEN = "word"


def measure(count: int, rounds: int) -> list[Row]:
    """Deltas come in a burst, as from a full buffer, or one in each turn of the event loop."""
    burst, apart = [TOKEN * count], [[[say(TOKEN), pause(0)] for _ in range(count)]]
    return [*_rows("in a burst", burst, count, rounds), *_rows("one by one", apart, count, rounds)]


def _rows(manner: str, script: Sequence[Reply], count: int, rounds: int) -> list[Row]:
    contestants = {"model": _model, "floor": _floor, "on_event": _on_event, "stream": _stream}
    ready = {name: lambda make=make: make(script) for name, make in contestants.items()}
    each = {name: taken.cpu_s / count * 1e6 for name, taken in race(ready, rounds).items()}
    return [
        Row(
            name=f"delta, {manner}, {way}",
            unit="µs CPU",
            model=each["model"],
            floor=each["floor"],
            windlass=each[way],
            aim=AIM,
        )
        for way in ("on_event", "stream")
    ]


def _model(script: Sequence[Reply]) -> Work:
    model = ScriptedModel(script)
    asked = Transcript([User((Text("Go."),))])
    prompt = Prompt(model.info.name, "", asked, TOOLS.specs, "auto", 8_192)
    return lambda: drain(model, [prompt])


def _floor(script: Sequence[Reply]) -> Work:
    floor = floor_of(ScriptedModel(script))
    return lambda: floor.run("Go.", Watcher().on_text)


def _on_event(script: Sequence[Reply]) -> Work:
    agent = agent_of(ScriptedModel(script))
    return lambda: agent.run("Go.", on_event=Watcher().on_event)


def _stream(script: Sequence[Reply]) -> Work:
    agent = agent_of(ScriptedModel(script))

    async def work() -> None:
        watcher = Watcher()
        async with agent.stream("Go.") as events:
            async for event in events:
                watcher.on_event(event)

    return work
