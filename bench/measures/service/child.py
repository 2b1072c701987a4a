"""The two sides of the service's measures, each as a process that is told when to begin.

The law: both sides send the same bytes to the same clients. The floor is a bare aiohttp handler
that writes prepared bytes; what it costs is what any service on aiohttp costs.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from windlass import Agent
from windlass.core.events import TextDelta
from windlass.server import Dispatcher, Service, ServiceLimits, StartRequest
from windlass.server.access import Caller
from windlass.server.aiohttp_server import listen
from windlass.server.frames import encode_event
from windlass.testing import ScriptedModel, pause, say

BareHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
PACE_S = 0.1
"""Between two events, so that each is a write of its own."""
LAST = b'"outcome":"completed"'
"""What the last frame holds on both sides."""
PLENTY = ServiceLimits(
    connections=20_000, streams_per_caller=20_000, requests_per_s=1e6, requests_at_once=100_000
)
ANN = Caller("ann", frozenset({"watch", "start"}))


def resident_kb() -> int:
    """Return the memory that this process holds now."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


async def read_command() -> None:
    """Wait until the process that measures says to go on."""
    await asyncio.to_thread(sys.stdin.readline)


def tell(value: object) -> None:
    """Tell the process that measures something."""
    print(json.dumps(value), flush=True)


async def answer_measurer(address: str, token: str, begin: "asyncio.Event") -> None:
    """Say where to connect; count from the first command to the second."""
    empty_kb = resident_kb()
    tell({"address": address, "token": token})
    await read_command()
    full_kb = resident_kb()
    cpu_s = time.process_time()
    begin.set()
    await read_command()
    tell({"cpu_s": time.process_time() - cpu_s, "kb": full_kb - empty_kb})


async def watch_windlass(events: int) -> None:
    """Serve one session whose run says so many words."""
    script = [part for _ in range(events) for part in (say("word"), pause(PACE_S))]
    with ScriptedModel(["Hello.", script]) as model:
        agent = Agent(model, name="helper")
        async with Service(agent, limits=PLENTY) as service:
            handle = await service.start_run(ANN, StartRequest(prompt="Hi.", session="many"))
            await handle.result()
            token = (await service.tokens.create("ann")).secret
            begin = asyncio.Event()
            async with listen(Dispatcher(service)) as address:
                measuring = asyncio.create_task(answer_measurer(address, token, begin))
                await begin.wait()
                await service.start_run(ANN, StartRequest(prompt="Go.", session="many"))
                await measuring


async def watch_floor(events: int) -> None:
    """Write prepared frames to everyone who is there, at the pace of the model."""
    frame = encode_event(TextDelta("word", seq=9, nth=1))
    last = b'id: 9\nevent: fact\ndata: {"type":"RunEnded","outcome":"completed"}\n\n'
    frames = [*([frame] * events), last]
    begin = asyncio.Event()
    turns = [asyncio.Event() for _ in frames]

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(last)
        for turn, data in zip(turns, frames, strict=True):
            await turn.wait()
            await response.write(data)
        await response.write_eof()
        return response

    async with run_bare(handle) as address:
        measuring = asyncio.create_task(answer_measurer(address, "", begin))
        await begin.wait()
        for turn in turns:
            turn.set()
            await asyncio.sleep(PACE_S)
        await measuring


async def start_windlass() -> None:
    """Serve starts of runs, kept in a file."""
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(ScriptedModel(["Hello."] * 100_000), name="helper")
        journal = str(Path(folder) / "sessions.db")
        async with Service(agent, journal=journal, limits=PLENTY) as service:
            token = (await service.tokens.create("ann")).secret
            async with listen(Dispatcher(service)) as address:
                await answer_measurer(address, token, asyncio.Event())


async def start_floor() -> None:
    """Answer the same requests with a prepared reply, from nothing."""
    body = json.dumps({"session": "ann.0123456789abcdef", "run": 1}).encode()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        return web.Response(status=202, body=body, content_type="application/json")

    async with run_bare(handle) as address:
        await answer_measurer(address, "", asyncio.Event())


@asynccontextmanager
async def run_bare(handle: BareHandler) -> AsyncGenerator[str]:
    """Run a handler of aiohttp on a free port of loopback."""
    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def main() -> None:
    kind, side, *numbers = sys.argv[1:]
    work = {
        ("watch", "windlass"): watch_windlass,
        ("watch", "floor"): watch_floor,
        ("start", "windlass"): start_windlass,
        ("start", "floor"): start_floor,
    }[kind, side]
    asyncio.run(work(*map(int, numbers)))


if __name__ == "__main__":
    main()
