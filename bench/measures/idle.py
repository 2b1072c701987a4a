"""Memory of a session that has had one run and waits for the next one."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Awaitable, Callable

from meter import BenchRow, run_in_child
from world import ModelSwitchboard, TextWatcher, make_agent, make_floor, script_steps

STEPS = 3


def measure(sessions: int) -> list[BenchRow]:
    """Measure idle sessions. The floor keeps its messages, Windlass a journal in memory."""
    code = "from measures.idle import print_idle; print_idle({!r}, {})"
    each = {side: run_in_child(code.format(side, sessions)) for side in ("floor", "windlass")}
    return [BenchRow(name=f"idle session, of {sessions:,}, {STEPS} steps", unit="kB", **each)]


def print_idle(side: str, sessions: int) -> None:
    """Print the memory of a session. It runs in its own process, so that nothing else counts."""
    rehearsal = _make_switchboard(10)
    model = _make_switchboard(sessions)
    run = {"floor": _floor_run, "windlass": _windlass_run}[side]
    asyncio.run(_play_sessions(rehearsal, run(rehearsal)))
    gc.collect()
    tracemalloc.start()
    work = run(model)
    kept = asyncio.run(_play_sessions(model, work))
    model.models.clear()  # The scripted models keep their prompts, which must not count.
    gc.collect()
    print(json.dumps(tracemalloc.get_traced_memory()[0] / len(kept) / 1024))


def _make_switchboard(sessions: int) -> ModelSwitchboard:
    return ModelSwitchboard({f"Go {at}.": script_steps(STEPS - 1) for at in range(sessions)})


def _floor_run(model: ModelSwitchboard) -> Callable[[str], Awaitable[object]]:
    floor = make_floor(model)
    return lambda prompt: floor.run(prompt, TextWatcher().on_text)


def _windlass_run(model: ModelSwitchboard) -> Callable[[str], Awaitable[object]]:
    agent = make_agent(model)

    async def run(prompt: str) -> str:
        return (await agent.run(prompt, on_event=TextWatcher().on_event)).session_id

    return run


async def _play_sessions(
    model: ModelSwitchboard, run: Callable[[str], Awaitable[object]]
) -> list[object]:
    return [await run(prompt) for prompt in model.models]
