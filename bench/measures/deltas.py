"""CPU time of a text delta, with a watcher on both sides."""

from collections.abc import Sequence

from meter import BenchRow, Work, race_contestants
from world import TOOLS, TextWatcher, drain_model, make_agent, make_floor

from windlass import TextPart, UserMessage
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.testing import ScriptedModel, ScriptedReply, pause, say

AIM = 3.0
TOKEN = "word"


def measure(count: int, rounds: int) -> list[BenchRow]:
    """Measure deltas in a burst, as from a full buffer, and one in each turn of the event loop."""
    in_a_burst = [TOKEN * count]
    one_by_one = [[[say(TOKEN), pause(0)] for _ in range(count)]]
    return [
        *_measure_manner("in a burst", in_a_burst, count, rounds),
        *_measure_manner("one by one", one_by_one, count, rounds),
    ]


def _measure_manner(
    manner: str, script: Sequence[ScriptedReply], count: int, rounds: int
) -> list[BenchRow]:
    contestants = {
        "model": _model_work,
        "floor": _floor_work,
        "on_event": _on_event_work,
        "stream": _stream_work,
    }
    ready = {name: lambda make=make: make(script) for name, make in contestants.items()}
    each = {
        name: taken.cpu_s / count * 1e6 for name, taken in race_contestants(ready, rounds).items()
    }
    return [
        BenchRow(
            name=f"delta, {manner}, {way}",
            unit="µs CPU",
            model=each["model"],
            floor=each["floor"],
            windlass=each[way],
            aim=AIM,
        )
        for way in ("on_event", "stream")
    ]


def _model_work(script: Sequence[ScriptedReply]) -> Work:
    model = ScriptedModel(script)
    asked = Transcript([UserMessage((TextPart("Go."),))])
    prompt = Prompt(model.info.name, "", asked, TOOLS.specs, "auto", 8_192)
    return lambda: drain_model(model, [prompt])


def _floor_work(script: Sequence[ScriptedReply]) -> Work:
    floor = make_floor(ScriptedModel(script))
    return lambda: floor.run("Go.", TextWatcher().on_text)


def _on_event_work(script: Sequence[ScriptedReply]) -> Work:
    agent = make_agent(ScriptedModel(script))
    return lambda: agent.run("Go.", on_event=TextWatcher().on_event)


def _stream_work(script: Sequence[ScriptedReply]) -> Work:
    agent = make_agent(ScriptedModel(script))

    async def work() -> None:
        watcher = TextWatcher()
        async with agent.stream("Go.") as events:
            async for event in events:
                watcher.on_event(event)

    return work
