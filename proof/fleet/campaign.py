"""A campaign: real servers, workers and clients, some minutes of faults, and then the reckoning."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from proof.fleet.app import CALLS, build_agent
from proof.fleet.clients import FleetClients
from proof.fleet.effects import EffectService
from proof.fleet.faults import FaultMaker
from proof.fleet.history import SessionHistory, Violation, check_history
from proof.fleet.provider import FleetProvider, write_prompt
from proof.fleet.proxy import ProxyThread
from proof.fleet.servers import EngineServer, PostgresServer
from proof.fleet.workers import FleetPlace, WorkerSlot
from windlass.core.events import RunEnded
from windlass.core.fold.run import fold
from windlass.journals.memory import MemoryJournal
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing.fault_server import serve_in_thread

TWINS_AT_ONCE = 40
TWINS_MAX = 300
SETTLE_S = 180.0
"""How long the runs may take to finish once nothing disturbs them any more."""
START_S = 60.0
"""How long the workers get to start before the first run."""


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """How long, how many, and with which engine."""

    seconds: float
    workers: int
    runs_per_s: float
    seed: int
    engine: bool = False


@dataclass(slots=True)
class CampaignReport:
    """What a campaign found."""

    plan: CampaignPlan
    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    violations: list[Violation] = field(default_factory=list[Violation])
    twins: int = 0
    messages: int = 0
    requests: int = 0
    refused_requests: int = 0
    refused_effects: int = 0
    repeated_requests: int = 0
    parked: int = 0
    """Runs in which so many drivers died in a row that a person had to resume them."""
    take_overs_s: list[float] = field(default_factory=list[float])

    def count(self, kind: str) -> int:
        """Return how many violations of a kind there are."""
        return sum(violation.kind == kind for violation in self.violations)


async def run_campaign(plan: CampaignPlan, folder: Path) -> CampaignReport:
    """Run a campaign in a folder, and check everything that came of it."""
    (folder / "effects").mkdir(parents=True)
    provider = FleetProvider()
    with ExitStack() as stack:
        server = stack.enter_context(serve_in_thread(provider.server))
        proxies = ProxyThread()
        stack.callback(proxies.stop)
        database = PostgresServer(folder / "postgres")
        stack.callback(database.stop)
        engine = EngineServer(folder) if plan.engine else None
        if engine is not None:
            stack.callback(engine.stop)
        place = FleetPlace(folder, server.url, database, engine, proxies)
        async with PostgresJournal(database.uri) as journal:
            # The tables are made here, before the workers meet.
            await journal.sessions(limit=1)
            slots = [WorkerSlot(place, number) for number in range(plan.workers)]
            for slot in slots:
                stack.callback(slot.stop)
                slot.start()
            clients = FleetClients(journal, plan.seed)
            faults = FaultMaker(place, slots, plan.seed, provider.has_heard_of)
            await _wait_for_workers(place, len(slots))
            await _disturb(plan, clients, faults, slots)
            await _settle(journal, clients)
            report = CampaignReport(plan, len(clients.histories), faults.made)
            report.parked = len(clients.parked)
            await _reckon(report, journal, clients, provider, slots)
            await _compare_twins(report, clients, folder)
    return report


async def _wait_for_workers(place: FleetPlace, count: int) -> None:
    """Wait until the first workers are up; each says so in the log."""
    log = place.folder / "workers.log"
    ends_at = time.monotonic() + START_S
    while time.monotonic() < ends_at:
        if log.exists() and log.read_text("utf-8").count("Working for") >= count:
            return
        await asyncio.sleep(0.1)


async def _disturb(
    plan: CampaignPlan, clients: FleetClients, faults: FaultMaker, slots: Sequence[WorkerSlot]
) -> None:
    """Let clients and faults at the fleet; in the middle of it, upgrade half of the workers."""
    loading = asyncio.create_task(clients.run(plan.seconds, plan.runs_per_s))
    disturbing = asyncio.create_task(faults.run())
    await asyncio.sleep(plan.seconds / 3)
    for slot in slots[1::2]:
        await faults.upgrade(slot, "2")
    await loading
    disturbing.cancel()
    await asyncio.gather(disturbing, return_exceptions=True)


async def _settle(journal: PostgresJournal, clients: FleetClients) -> None:
    """Wait until every run has ended and every message was taken; but not for ever.

    A run in which many drivers died in a row waits for a person, who has it go on.
    """
    waiting = set(clients.histories)
    ends_at = time.monotonic() + SETTLE_S
    while waiting and time.monotonic() < ends_at:
        for session in sorted(waiting):
            facts = await journal.read(session)
            if any(isinstance(fact, RunEnded) for fact in facts):
                waiting.discard(session)
            elif fold(session, facts).is_paused:
                await clients.resume_parked(session)
        if not waiting and not await journal.list_mailed():
            return
        await asyncio.sleep(0.3)


async def _reckon(
    report: CampaignReport,
    journal: PostgresJournal,
    clients: FleetClients,
    provider: FleetProvider,
    slots: Sequence[WorkerSlot],
) -> None:
    excused = frozenset[str]().union(*(slot.excused for slot in slots))
    versions = {name: version for slot in slots for name, version in slot.versions.items()}
    for session, history in clients.histories.items():
        history.facts = tuple(await journal.read(session))
        history.effects = tuple(EffectService(slots[0].place.effects, session).read())
        history.requests = tuple(provider.requests_of(session))
        history.excused = excused
        history.versions = versions
        report.violations += check_history(history, CALLS)
        problems = list(await journal.verify(session))
        report.violations += [
            Violation("record not sound", session, str(problem)) for problem in problems
        ]
        report.messages += len(history.posted)
        report.requests += len(history.requests)
        report.refused_effects += sum(line.kind == "refused" for line in history.effects)
        steps = {asked.step for asked in history.requests}
        report.repeated_requests += len(history.requests) - len(steps)
    report.refused_requests = provider.limits.rejected
    report.take_overs_s = sorted(measure_take_overs(clients.histories.values(), slots))


def measure_take_overs(
    histories: Iterable[SessionHistory], slots: Sequence[WorkerSlot]
) -> Iterator[float]:
    """Yield how long after a kill another worker asked or acted for a session of the dead one."""
    deaths = {killed.name: killed.at for slot in slots for killed in slot.killed}
    for history in histories:
        acts = [(asked.at, asked.worker) for asked in history.requests]
        acts += [(line.at, line.worker) for line in history.effects]
        acts.sort()
        for (_, worker), (at, other) in pairwise(acts):
            died_at = deaths.get(worker)
            if died_at is not None and other != worker and at >= died_at:
                yield at - died_at


async def _compare_twins(report: CampaignReport, clients: FleetClients, folder: Path) -> None:
    """Run sessions once more without any trouble: the transcripts must be the same.

    Those that somebody spoke to are left out: when the words come in depends on time.
    """
    effects = folder / "twins"
    effects.mkdir()
    sessions = [name for name in clients.histories if name not in clients.spoken_to][:TWINS_MAX]
    slots = asyncio.Semaphore(TWINS_AT_ONCE)
    async with FleetProvider(latency_s=0.0, requests_per_s=1e6).server as server:
        store = MemoryJournal()
        agent = build_agent(url=server.url, effects=effects, worker="twin", journal=store)

        async def compare(session: str) -> None:
            async with slots:
                await agent.run(write_prompt(session), session=session)
            twin = fold(session, await store.read(session))
            disturbed = fold(session, clients.histories[session].facts)
            report.twins += 1
            if list(disturbed.transcript) != list(twin.transcript):
                words = "its transcript differs from that of its undisturbed twin"
                report.violations.append(Violation("transcript differs", session, words))

        await asyncio.gather(*(compare(session) for session in sessions))
