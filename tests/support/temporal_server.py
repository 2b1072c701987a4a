"""A real Temporal server for the tests of this process, and workers that use it."""

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from postgres import schema_of, start_server
from windlass import Agent, tool
from windlass.agent.options import parts_of
from windlass.agent.working import WorkLimits
from windlass.core.messages import Effect, ToolResults
from windlass.core.setup import digest_configuration
from windlass.core.view import Prompt
from windlass.fleet import TakingRules, TemporalEngine, TemporalWorker, connect_engine
from windlass.fleet.engine import EngineUnreachable
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing import ScriptedModel, call, say

WAIT_S = 40.0
HEARTBEAT_S = 2.0


class TemporalServer:
    """A development server with its data in a file, so that it can be killed and started again."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="windlass-temporal-"))
        self.port = find_free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("temporal", path=str(Path(sys.executable).parent))
        assert program is not None
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port)]
        options += ["--db-filename", str(self._folder / "temporal.db"), "--log-level", "never"]
        self._process = subprocess.Popen(
            [program, "server", "start-dev", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        asyncio.run(self._wait_ready())

    async def _wait_ready(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await connect_engine(self.address())
                except EngineUnreachable:
                    await asyncio.sleep(0.1)
                else:
                    return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def address(self, prefix: str = "windlass", port: int = 0) -> str:
        options = f"prefix={prefix}&heartbeat_s={HEARTBEAT_S}"
        return f"temporal://127.0.0.1:{port or self.port}/default?{options}"


def find_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@cache
def start_temporal() -> TemporalServer:
    server = TemporalServer()
    server.start()
    return server


@pytest.fixture(scope="session", autouse=True)
def run_servers() -> Iterator[None]:
    """Import it into a test module that uses the servers: Temporal and Postgres."""
    start_server()
    start_temporal()
    yield
    start_temporal().remove()
    start_temporal.cache_clear()


class Bench:
    """A tool that waits until the test lets it go on, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_go_on = asyncio.Event()
        self.begun = asyncio.Event()

    async def work(self) -> str:
        """Work until told otherwise."""
        self.calls += 1
        self.begun.set()
        await self.may_go_on.wait()
        return "done"


def reply(prompt: Prompt) -> Any:
    """Call the tool once, whichever session asks."""
    if isinstance(prompt.messages[-1], ToolResults):
        return say("Done.")
    return call("work")


def make_agent(
    bench: Bench, name: str = "clerk", effect: Effect = "read", **options: Any
) -> Agent[str]:
    work = tool(bench.work, name="work", effect=effect)
    return Agent(ScriptedModel([reply] * 40), tools=[work], name=name, **options)


class Fleet:
    """An engine, a journal, and workers of this process that share them."""

    def __init__(self, engine: TemporalEngine, address: str, journal: PostgresJournal) -> None:
        self.engine = engine
        self.address = address
        self.journal = journal

    @asynccontextmanager
    async def working(
        self,
        *agents: Agent[Any],
        rules: TakingRules | None = None,
        address: str = "",
        **limits: Any,
    ) -> AsyncGenerator[TemporalWorker]:
        """A worker for as long as the block lasts."""
        kept = [agent.with_journal(self.journal) for agent in agents]
        worker = TemporalWorker(
            address or self.address, kept, WorkLimits(**{"sweep_s": 0.3, **limits}), rules
        )
        task = asyncio.create_task(worker.run())
        try:
            # Before that it drives by itself what it finds, and the engine never hears of it.
            while not (address or task.done() or worker.is_connected):  # noqa: ASYNC110 - it only says so
                await asyncio.sleep(0.01)
            yield worker
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await asyncio.gather(*(agent.aclose() for agent in kept))

    async def start(self, agent: Agent[Any], prompt: str = "Go.", **options: Any) -> Any:
        """Start a run by the engine."""
        kept = agent.with_journal(self.journal)
        handle = await kept.start(prompt, drive=False, **options)
        await self.engine.wake(
            handle.session, parts_of(kept).world.agent, options.get("caller", "")
        )
        return handle

    async def describe(self, session: str) -> Any:
        handle = self.engine.client.get_workflow_handle(self.engine.address.workflow_id(session))
        return (await handle.describe()).raw_description

    async def result(self, session: str) -> str:
        """Wait for the end of a session's workflow, and return the state that it tells."""
        handle = self.engine.client.get_workflow_handle(self.engine.address.workflow_id(session))
        async with asyncio.timeout(WAIT_S):
            return await handle.result()

    async def list_waiting_on(self, agent: Agent[Any], session: str) -> list[Any]:
        """Return the activities of a session that wait for a worker with an agent's set-up."""
        parts = parts_of(agent)
        configuration = digest_configuration(parts.setup)
        queue = self.engine.address.task_queue(parts.world.agent, configuration)
        found = (await self.describe(session)).pending_activities
        return [each for each in found if each.activity_options.task_queue.name == queue]

    async def wait_for(self, is_true: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not await is_true():  # noqa: ASYNC110 - only the engine knows it
                await asyncio.sleep(0.1)


@asynccontextmanager
async def open_fleet(folder: Path) -> AsyncGenerator[Fleet]:
    """An engine and a journal for one test, apart from those of others."""
    name = schema_of(folder)
    address = start_temporal().address(name)
    journal = PostgresJournal(start_server().get_uri(), schema=name)
    try:
        yield Fleet(await connect_engine(address), address, journal)
    finally:
        await journal.aclose()
