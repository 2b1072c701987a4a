"""Memory of a session that has had one run and waits for the next."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Awaitable, Callable

from meter import Row, in_child
from world import Switchboard, Watcher, agent_of, floor_of, steps

STEPS = 3


def measure(sessions: int) -> list[Row]:
    """The floor keeps its messages, Windlass a journal in memory, which holds every fact."""
    code = "from measures.idle import print_idle; print_idle({!r}, {})"
    each = {side: in_child(code.format(side, sessions)) for side in ("floor", "windlass")}
    return [Row(name=f"idle session, of {sessions:,}, {STEPS} steps", unit="kB", **each)]


def print_idle(side: str, sessions: int) -> None:
    """In a process of its own, so that nothing else is counted."""
    rehearsal, model = _switchboard(10), _switchboard(sessions)
    run = {"floor": _floor, "windlass": _windlass}[side]
    asyncio.run(_play(rehearsal, run(rehearsal)))
    gc.collect()
    tracemalloc.start()
    work = run(model)
    kept = asyncio.run(_play(model, work))
    model.models.clear()  # They remember what they were asked.
    gc.collect()
    print(json.dumps(tracemalloc.get_traced_memory()[0] / len(kept) / 1024))


def _switchboard(sessions: int) -> Switchboard:
    return Switchboard({f"Go {at}.": steps(STEPS - 1) for at in range(sessions)})


def _floor(model: Switchboard) -> Callable[[str], Awaitable[object]]:
    floor = floor_of(model)
    return lambda prompt: floor.run(prompt, Watcher().on_text)


def _windlass(model: Switchboard) -> Callable[[str], Awaitable[object]]:
    agent = agent_of(model)

    async def run(prompt: str) -> str:
        return (await agent.run(prompt, on_event=Watcher().on_event)).session_id

    return run


async def _play(model: Switchboard, run: Callable[[str], Awaitable[object]]) -> list[object]:
    return [await run(prompt) for prompt in model.models]
