"""Runs that are followed call by call: prints what they cost, as JSON.

    python -m proof.budgets.run_measures

The process must be a new one: what it loaded, cached or made before would not count.
"""

import asyncio
import inspect
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import msgspec
from aiohttp import ClientSession

from bench.wire_server import run_server
from windlass import Agent, Limits, tool
from windlass.journals import SqliteJournal
from windlass.server.aiohttp_server import listen
from windlass.server.dispatch import Dispatcher
from windlass.server.service import Service
from windlass.testing import FaultServer, ScriptedModel, call
from windlass.testing.chat_wire import call_chunks, chat_answer, text_chunk

ROOT = Path(__file__).resolve().parents[2]
SOURCE = f"{ROOT / 'src' / 'windlass'}/"
DOUBLES = f"{SOURCE}testing/"
FEW_STEPS = 20
MANY_STEPS = 60
FIRST_RUN = """
import sys
from windlass import Agent
from windlass.testing import ScriptedModel

Agent(ScriptedModel(["Hi."])).run_sync("Hello")
ours = [name for name in sys.modules if name.split(".")[0] == "windlass"]
print(sum(not name.startswith("windlass.testing") for name in ours))
"""
"""Prints how many modules of ours a program loads that runs an agent once, without doubles."""


def measure_runs() -> dict[str, float]:
    """Measure in new processes, and return the figures by their names."""
    loaded = subprocess.check_output([sys.executable, "-c", FIRST_RUN])
    printed = subprocess.check_output([sys.executable, "-m", __name__], cwd=ROOT)
    figures = msgspec.json.decode(printed, type=dict[str, float])
    return figures | {"modules of a first run": int(loaded)}


@tool(effect="read")
def look(at: int) -> int:
    """Look at a place."""
    return at


@contextmanager
def follow_calls(see: Callable[[CodeType], None]) -> Generator[None]:
    """Report the code of each Python function that is called, in every thread."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            see(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class Walk:
    """The functions of the package in the order in which a run first calls them."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], int] = {}

    def see(self, code: CodeType) -> None:
        """Note a function. Doubles, comprehensions and the bodies of classes do not count."""
        file = code.co_filename
        if not file.startswith(SOURCE) or file.startswith(DOUBLES):
            return
        if code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        self.functions.setdefault((file, code.co_qualname), len(self.functions) + 1)

    def figures(self, walk: str) -> dict[str, float]:
        loops = [place for (_, name), place in self.functions.items() if name == "run_loop"]
        return {
            f"functions of a {walk}": len(self.functions),
            f"files of a {walk}": len({file for file, _ in self.functions}),
            f"place of the loop in a {walk}": loops[0],
        }


async def measure_walks() -> dict[str, float]:
    """Follow a prompt, a call and a text: by HTTP into a file, and by a script in memory."""
    replies = chat_answer(call_chunks("look", '{"at":', "1}")), chat_answer(text_chunk("Done."))
    by_http, scripted = Walk(), Walk()
    with tempfile.TemporaryDirectory() as folder, SqliteJournal(Path(folder) / "j.db") as journal:
        async with FaultServer(*replies) as server:
            agent = Agent(
                "openai-compatible:m",
                base_url=server.url,
                key="x" * 20,
                tools=[look],
                journal=journal,
            )
            with follow_calls(by_http.see):
                await agent.run("Look.", on_event=lambda _: None)
            await agent.aclose()
    agent = Agent(ScriptedModel([call("look", {"at": 1}), "Done."]), tools=[look])
    with follow_calls(scripted.see):
        await agent.run("Look.")
    return by_http.figures("run over HTTP") | scripted.figures("scripted run")


async def measure_served_walk() -> dict[str, float]:
    """Follow the same run as a client starts and watches it: two requests to a service."""
    replies = chat_answer(call_chunks("look", '{"at":', "1}")), chat_answer(text_chunk("Done."))
    walk = Walk()
    with tempfile.TemporaryDirectory() as folder, SqliteJournal(Path(folder) / "j.db") as journal:
        async with FaultServer(*replies) as model:
            agent = Agent("openai-compatible:m", base_url=model.url, key="x" * 20, tools=[look])
            service = Service(agent, journal=journal)
            token = (await service.tokens.create("ann")).secret
            async with (
                service,
                listen(Dispatcher(service)) as address,
                ClientSession(address, headers={"Authorization": f"Bearer {token}"}) as client,
            ):
                with follow_calls(walk.see):
                    async with client.post("/runs", json={"prompt": "Look."}) as started:
                        place = started.headers["Location"]
                    stream = {"Accept": "text/event-stream"}
                    async with client.get(f"{place}/events", headers=stream) as events:
                        assert b"RunEnded" in await events.read()
    figures = walk.figures("served run")
    # Work of the service itself comes between, so that the place of the loop says nothing.
    del figures["place of the loop in a served run"]
    return figures


async def measure_step() -> dict[str, float]:
    """Count the Python calls that one more step over HTTP costs, in any library.

    It is the difference between long and short runs, so starting and ending do not count. The
    scripted server is a process of its own.
    """
    with run_server() as server:
        await _count_calls(server.calls_url(2))
        few = await _count_calls(server.calls_url(FEW_STEPS))
        many = await _count_calls(server.calls_url(MANY_STEPS))
    return {"Python calls of a step": (many - few) / (MANY_STEPS - FEW_STEPS)}


async def _count_calls(url: str) -> int:
    count = 0

    def see(_: CodeType) -> None:
        nonlocal count
        count += 1

    agent = Agent(
        "openai-compatible:m",
        base_url=url,
        key="x" * 20,
        tools=[look],
        limits=Limits(steps=None),
    )
    with follow_calls(see):
        async with agent.stream("Go.") as events:
            async for _ in events:
                pass
    assert events.result.outcome == "completed", events.result
    await agent.aclose()
    return count


async def main() -> None:
    """Measure in this process, and print the figures."""
    figures = await measure_walks() | await measure_served_walk() | await measure_step()
    print(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    asyncio.run(main())
