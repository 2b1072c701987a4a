"""A worker of a fleet: it drives what the engine gives it, and what the journal shows abandoned.

Invariant: the engine says where and when, the journal and its lease say what is true. When a worker
dies, others see its runs abandoned long before the engine misses it; without the engine, workers
continue by the journal alone.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from temporalio.worker import PollerBehaviorSimpleMaximum, UnsandboxedWorkflowRunner, Worker

from windlass.agent.agent import Agent
from windlass.agent.options import parts_of
from windlass.agent.work_items import WorkItem
from windlass.agent.working import SessionWorker, WorkLimits
from windlass.fleet.activities import HEARTBEATS, SessionActivities, TakingRules
from windlass.fleet.engine import EngineUnreachable, TemporalEngine, connect_engine
from windlass.fleet.engine_address import EngineAddress, parse_engine_address
from windlass.fleet.session_workflow import SessionWorkflow
from windlass.logs import get_logger

STICKY_S = 2.0
"""How long a workflow waits for the worker that knows it, which may be dead."""
CONNECT_WAIT_S = 5.0
AWAY_S = 5.0
SEEN_MAX = 10_000
OWN_POLLS = 2
"""Requests for work at a time to the queue of one configuration, which has little of it."""
_log = get_logger(__name__)


class TemporalWorker:
    """Drives sessions of some agents that share a journal, as one of any number of workers."""

    def __init__(
        self,
        address: EngineAddress | str,
        agents: Iterable[Agent[Any]],
        limits: WorkLimits | None = None,
        rules: TakingRules | None = None,
    ) -> None:
        """Work for agents by their names, for the engine at an address.

        Raises ConfigError if the address cannot be used or the agents' journals differ.
        """
        self._address = parse_engine_address(address) if isinstance(address, str) else address
        self._agents = {parts_of(agent).world.agent: agent for agent in agents}
        self._limits = limits or WorkLimits()
        self._rules = rules or TakingRules()
        self._engine: TemporalEngine | None = None
        self._away_until = 0.0
        self._seen: set[str] = set()
        """Sessions that had messages at an earlier look."""
        self._sessions = SessionWorker(
            self._agents.values(), self._limits, self._rules.accepts, placer=self
        )

    @property
    def driving(self) -> Sequence[WorkItem]:
        """The sessions that this worker drives now."""
        return self._sessions.driving

    def release_at_once(self) -> None:
        """Release all runs without waiting for replies and calls."""
        self._sessions.release_at_once()

    @property
    def is_connected(self) -> bool:
        """Whether the engine is there to place sessions. Until it is, this worker drives them."""
        return self._find_engine() is not None

    async def run(self) -> None:
        """Work until the caller is cancelled; then all runs are released.

        An engine that cannot be reached is waited for. Meanwhile the journal is swept, and what
        would be the engine's to place is driven here.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sessions.run())
            group.create_task(self._serve_engine())

    async def _serve_engine(self) -> None:
        while True:
            try:
                engine = await connect_engine(self._address)
                agents = self._agents.values()
                workers = [each for agent in agents for each in self.open_queues(engine, agent)]
                self._engine = engine
                tasks = [asyncio.create_task(worker.run()) for worker in workers]
                try:
                    await asyncio.gather(*tasks)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            except (EngineUnreachable, RuntimeError) as error:
                _log.warning("working without the engine: %s", error)
            finally:
                self._engine = None
            await asyncio.sleep(CONNECT_WAIT_S)

    def open_queues(self, engine: TemporalEngine, agent: Agent[Any]) -> list[Worker]:
        """Return the workers of two queues: one of the agent, one of its configuration here.

        Runs of this configuration come by the second one when a worker with another had to leave
        them.
        """
        activities = SessionActivities(engine, agent, self._sessions, self._rules)
        runs = min(self._limits.runs, self._limits.runs_per_agent or self._limits.runs)
        address = self._address
        beat = timedelta(seconds=address.heartbeat_s / HEARTBEATS)
        shared: dict[str, Any] = {
            "activities": activities.list_functions(),
            "max_concurrent_activities": runs,
            # Without these, the engine hears of a run only after most of its time-out has passed.
            "max_heartbeat_throttle_interval": beat,
            "default_heartbeat_throttle_interval": beat,
        }
        own = address.task_queue(activities.agent_name, activities.configuration)
        return [
            Worker(
                engine.client,
                task_queue=address.task_queue(activities.agent_name),
                workflows=[SessionWorkflow],
                # The workflow is ours and imports nothing that a sandbox would have to guard.
                workflow_runner=UnsandboxedWorkflowRunner(),
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_S),
                **shared,
            ),
            Worker(
                engine.client,
                task_queue=own,
                activity_task_poller_behavior=PollerBehaviorSimpleMaximum(OWN_POLLS),
                **shared,
            ),
        ]

    async def place(self, item: WorkItem) -> bool:
        """See to it that the engine has a session with messages driven; False if it cannot."""
        engine = self._find_engine()
        if engine is None:
            return False
        if item.session not in self._seen:
            # The process that posted the message is about to notify the engine.
            self._seen.add(item.session)
            if len(self._seen) > SEEN_MAX:
                self._seen = {item.session}
            return True
        try:
            if not await engine.is_seen_to(item.session):
                await engine.wake(item.session, item.agent, item.caller, priority=item.priority)
        except EngineUnreachable as error:
            self._leave_engine(error)
            return False
        return True

    async def note_visit(self, item: WorkItem) -> None:
        """Have the workflow of a session look at what was done without it."""
        engine = self._find_engine()
        if engine is not None:
            try:
                await engine.nudge(item.session)
            except EngineUnreachable as error:
                self._leave_engine(error)

    def _find_engine(self) -> TemporalEngine | None:
        """Return the engine; None while it is away."""
        is_away = asyncio.get_running_loop().time() < self._away_until
        return None if is_away else self._engine

    def _leave_engine(self, error: EngineUnreachable) -> None:
        """Do without the engine for a while: each look would wait for its answer in vain."""
        if self._find_engine() is not None:
            self._away_until = asyncio.get_running_loop().time() + AWAY_S
            _log.warning("working without the engine: %s", error)
