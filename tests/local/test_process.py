"""The server's life: started once, shared, started anew when it dies, never left behind (P10)."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smollm2 import (
    CAPITAL,
    PARIS,
    SYSTEM,
    ask_model,
    is_alive,
    make_prompt,
    make_smollm2,
    server_pids,
)
from windlass import Agent, AttemptFailed, LoopPolicy, TextDelta
from windlass.core.errors import ModelError
from windlass.models.local.model import build_local_model
from windlass.models.options import ModelOptions

pytestmark = [
    pytest.mark.local,
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
ENDLESS = ModelOptions(temperature=0, extra_body={"ignore_eos": True})
SUPPORT = Path(__file__).resolve().parents[1] / "support"


async def test_two_agents_share_one_server(weights: Path) -> None:
    """By the name of the model or of its file."""
    by_name = Agent(make_smollm2(), instructions=SYSTEM)
    by_file = Agent(build_local_model(str(weights), environ=os.environ), instructions=SYSTEM)
    first, second = await asyncio.gather(by_name.run(CAPITAL), by_file.run(CAPITAL))
    assert PARIS in first.text
    assert second.text
    assert len(server_pids()) == 1


async def test_starting_holds_up_nobody_and_survives_who_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WINDLASS_LOCAL_WINDOW", "1024")  # Another window takes another server.
    before, ticks = set(server_pids()), 0
    first = asyncio.create_task(make_smollm2().wait_for_endpoint())
    await asyncio.sleep(0.05)
    first.cancel()
    second = asyncio.create_task(make_smollm2().wait_for_endpoint())
    while not second.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 5
    assert first.cancelled()
    assert await make_smollm2().wait_for_endpoint() == await second
    (started,) = set(server_pids()) - before
    os.kill(started, signal.SIGKILL)
    await gone(started)


async def test_a_server_that_dies_is_a_server_error() -> None:
    """S2: and the next request starts another."""
    model = make_smollm2(output_max=500, options=ENDLESS)
    await model.wait_for_endpoint()
    (victim,) = server_pids()
    stream = model.stream(make_prompt("Tell me a story.", output_max=500))
    await anext(stream)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(ModelError, match="SIGKILL") as caught:
        async for _ in stream:
            pass
    assert (caught.value.fault.kind, caught.value.fault.retryable) == ("server", True)
    reply, _ = await ask_model(make_smollm2(), make_prompt(CAPITAL))
    assert PARIS in reply.text
    assert server_pids() != [victim]


async def test_a_run_survives_the_death_of_its_server() -> None:
    """S5, S6: asked again, from the beginning, and told once."""
    killed: list[int] = []
    failed: list[AttemptFailed] = []

    def watch(event: object) -> None:
        if isinstance(event, TextDelta) and not killed:
            killed.extend(server_pids())
            os.kill(killed[0], signal.SIGKILL)
        if isinstance(event, AttemptFailed):
            failed.append(event)

    agent = Agent(
        make_smollm2(output_max=200, options=ENDLESS), rules=LoopPolicy(on_partial="restart")
    )
    result = await agent.run("Tell me a story.", on_event=watch)
    assert [event.fault.kind for event in failed] == ["server"]
    assert result.outcome == "truncated"
    assert server_pids() not in ([], killed)


PROGRAM = """
import asyncio, os, signal, sys, time
from smollm2 import make_smollm2, server_pids

async def main(way):
    if way == "killed while loading":
        asyncio.create_task(make_smollm2().wait_for_endpoint())
        while not server_pids():
            await asyncio.sleep(0.001)
    else:
        await make_smollm2().wait_for_endpoint()
    (pid,) = server_pids()
    if way == "forked" and not os.fork():
        sys.exit()
    if way == "forked":
        os.wait()
        assert server_pids() == [pid]
    print(pid, flush=True)
    match way:
        case "raised":
            raise KeyboardInterrupt
        case "killed" | "killed while loading":
            os.kill(os.getpid(), signal.SIGKILL)
        case "terminated":
            os.kill(os.getpid(), signal.SIGTERM)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize(
    "way", ["ended", "raised", "terminated", "killed", "killed while loading", "forked"]
)
async def test_no_server_outlives_its_process(way: str) -> None:
    """P10: whichever way the process ends."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-c", PROGRAM, way),
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    told, errors = await child.communicate()
    assert told.strip(), errors.decode()
    await gone(int(told))
    assert is_alive(os.getpid())


async def gone(*pids: int) -> None:
    """Wait until the processes have ended; the test's own time limit is the limit."""
    deadline = time.monotonic() + 10
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"left behind: {alive}"
        await asyncio.sleep(0.01)
