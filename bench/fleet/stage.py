"""Servers and workers to be measured, and the runs that they are given."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proof.fleet.app import AGENT
from proof.fleet.provider import FleetProvider, write_prompt
from proof.fleet.servers import EngineServer, PostgresServer
from proof.fleet.workers import FleetPlace, WorkerSlot
from windlass.core.events import RunEnded
from windlass.core.mail import PromptMail
from windlass.core.messages import TextPart
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.fault_server import serve_in_thread

WAIT_S = 240.0


@dataclass(slots=True)
class FleetStage:
    """A database, maybe an engine, a provider, and the workers of one measure."""

    place: FleetPlace
    provider: FleetProvider
    journal: PostgresJournal
    slots: list[WorkerSlot]

    async def start_workers(self, count: int) -> None:
        """Start workers, and wait until each has done something."""
        for number in range(count):
            self.slots.append(WorkerSlot(self.place, number))
            self.slots[-1].start()
        log = self.place.folder / "workers.log"
        ends_at = time.monotonic() + WAIT_S
        while log.read_text("utf-8").count("Working for") < len(self.slots):
            assert time.monotonic() < ends_at, "the workers did not start"
            await asyncio.sleep(0.1)
        names = [f"warm {number}" for number in range(4 * count)]
        await self.post_runs(names)
        await self.wait_for_ends(names)

    def find_driver(self, session: str) -> str:
        """Return the worker that asked the provider last for a session."""
        asked = self.provider.requests_of(session)
        return asked[-1].worker if asked else ""

    async def post_runs(self, sessions: Iterable[str], calls: int = 5) -> None:
        """Leave a run in the queue of each session, for any worker to begin."""

        async def post(session: str) -> None:
            prompt = (TextPart(write_prompt(session, calls)),)
            await self.journal.post_mail(session, PromptMail(prompt=prompt, agent=AGENT))

        await asyncio.gather(*map(post, sessions))

    async def wait_for_ends(self, sessions: Iterable[str]) -> float:
        """Wait until all runs have ended. Returns when the last one did."""
        last = 0.0
        ends_at = time.monotonic() + WAIT_S
        for session in sessions:
            while True:
                facts = await self.journal.read(session)
                if facts and isinstance(facts[-1], RunEnded):
                    last = max(last, facts[-1].at)
                    break
                assert time.monotonic() < ends_at, f"{session} does not end"
                await asyncio.sleep(0.1)
        return last


@asynccontextmanager
async def open_stage(
    folder: Path, *, latency_s: float, runs_at_once: int, engine: bool = False, sweep_s: float = 0.5
) -> AsyncGenerator[FleetStage]:
    """Start the servers of a measure, without workers yet."""
    (folder / "effects").mkdir(parents=True)
    (folder / "workers.log").touch()
    provider = FleetProvider(latency_s=latency_s, requests_per_s=1e6)
    with ExitStack() as stack:
        server = stack.enter_context(serve_in_thread(provider.server))
        database = PostgresServer(folder / "postgres")
        stack.callback(database.stop)
        temporal = EngineServer(folder) if engine else None
        if temporal is not None:
            stack.callback(temporal.stop)
        place = FleetPlace(folder, server.url, database, temporal, None, runs_at_once, sweep_s)
        async with PostgresJournal(database.uri) as journal:
            await journal.sessions(limit=1)
            stage = FleetStage(place, provider, journal, [])
            try:
                yield stage
            finally:
                for slot in stage.slots:
                    slot.stop()
