"""What the engine asks a worker for: to drive a session, to end its run, to begin a scheduled one.

Invariant: a run is a task beside the activity that waits for it. It is cancelled only on
request; if the engine gives up on the activity, or the worker stops, the run is released,
and any worker resumes it. What goes back to the engine are states and names of errors.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from msgspec.structs import replace
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from windlass.agent.agent import Agent
from windlass.agent.options import parts_of
from windlass.agent.sweeping import AcceptsStart, VisitOutcome
from windlass.agent.work_items import WorkItem
from windlass.agent.working import SessionWorker
from windlass.core.errors import (
    NothingToDo,
    SessionBusy,
    SetupDrifted,
    WindlassError,
    WorkspaceMissing,
)
from windlass.core.events import RunStarted
from windlass.core.mail import PromptMail
from windlass.core.setup import Setup, digest_configuration
from windlass.core.state import State
from windlass.fleet.engine import TemporalEngine
from windlass.fleet.schedules import queue_scheduled_prompt
from windlass.fleet.session_workflow import (
    CANCEL_ACTIVITY,
    DRIVE_ACTIVITY,
    SCHEDULED_ACTIVITY,
    DriveReport,
)
from windlass.logs import get_logger
from windlass.ports import Journal

DriftPolicy = Literal["refuse", "same-digest-only", "consent"]
"""What to do with a run whose configuration no worker has any more: pause it, so that a person
decides; leave it until such a worker comes; or resume with the configuration of this worker."""
HEARTBEATS = 4
"""Signs of life within the time after which the engine gives up: some may be lost."""
BUSY_WAIT_S = 0.5
BUSY_WAIT_MAX_S = 15.0
RELEASED_WAIT_S = 0.1
FOLDER_WAIT_S = 5.0
"""Until another worker is asked to drive a session whose folder this one does not have."""
CANCEL_REASON = "cancelled in the engine"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakingRules:
    """Which sessions a worker takes."""

    accepts: AcceptsStart | None = None
    """Leaves runs alone that it refuses by their start."""
    tries_max: int = 5
    drift: DriftPolicy = "same-digest-only"


class SessionActivities:
    """The activities of one agent in one worker."""

    def __init__(
        self,
        engine: TemporalEngine,
        agent: Agent[Any],
        sessions: SessionWorker,
        rules: TakingRules,
    ) -> None:
        self._engine = engine
        self._agent = agent
        self._sessions = sessions
        self._rules = rules

    @property
    def _journal(self) -> Journal:
        return parts_of(self._agent).world.journal

    @property
    def agent_name(self) -> str:
        return parts_of(self._agent).world.agent

    @property
    def configuration(self) -> str:
        """The name of the configuration that this worker has of the agent."""
        return self._name_configuration(parts_of(self._agent).setup)

    def _name_configuration(self, setup: Setup) -> str:
        if parts_of(self._agent).instructions is not None:
            # Instructions that are computed for each run are not part of a configuration.
            setup = replace(setup, instructions="")
        return digest_configuration(setup)

    def list_functions(self) -> list[Callable[..., Any]]:
        """Return the activities, for the engine's worker."""
        return [self.drive, self.cancel, self.start_scheduled]

    @activity.defn(name=DRIVE_ACTIVITY)
    async def drive(self, session: str) -> DriveReport:
        """Do what a session needs now, and return what state that left it in."""
        async with _send_heartbeats():
            with _hide_reasons(session):
                item = await self._sessions.describe(session, self.agent_name)
                if self._sessions.is_driving(session) or not self._sessions.has_room(item):
                    raise SessionBusy(f"session {session}: this worker has no room for it")
                return await self._drive(item)

    async def _drive(self, item: WorkItem) -> DriveReport:
        try:
            outcome = await self._wait_for_run(item, consent=False)
        except NothingToDo:
            return DriveReport("gone")
        except SetupDrifted as error:
            return await self._on_drift(item, error)
        except WorkspaceMissing:
            if await self._agent.sweeper.park_without_folder(item.session):
                return DriveReport("paused")
            raise _come_back_later("WorkspaceMissing", FOLDER_WAIT_S) from None
        return await self._report(item.session, outcome)

    async def _wait_for_run(self, item: WorkItem, *, consent: bool) -> VisitOutcome:
        """Drive a session in its own task, which only a cancel that was asked for ends."""
        rules = self._rules
        work = self._agent.sweeper.drive_own(
            item.session, rules.tries_max, rules.accepts, consent=consent
        )
        driving = self._sessions.begin(item, work)
        try:
            return await asyncio.shield(driving)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:
                self._agent.cancel(item.session, CANCEL_REASON)
                await asyncio.wait({driving})
                raise
            # The engine gave up on this attempt, or the worker stops: another worker resumes the
            # run.
            driving.cancel()
            await asyncio.wait({driving})
            raise _come_back_later("Released", RELEASED_WAIT_S) from None

    async def _on_drift(self, item: WorkItem, error: SetupDrifted) -> DriveReport:
        """Leave a run to workers that have its configuration; without any, follow the policy."""
        state = await self._agent.sweeper.read_state(item.session)
        recorded = state.setup
        if recorded is None:
            return await self._report(item.session, "skipped")
        queue = self._engine.address.task_queue(self.agent_name, self._name_configuration(recorded))
        policy = self._rules.drift
        if policy == "same-digest-only" or await self._engine.has_pollers(queue):
            return DriveReport("moved", queue)
        if policy == "refuse":
            changes = "; ".join(error.drift)
            why = f"no worker has the configuration that it was started with ({changes})"
            await self._agent.sweeper.park(item.session, why)
            return DriveReport("paused")
        return await self._report(item.session, await self._wait_for_run(item, consent=True))

    async def _report(self, session: str, outcome: VisitOutcome) -> DriveReport:
        """Return what is left to do in a session that this worker does not drive any more."""
        state = await self._agent.sweeper.read_state(session)
        if outcome == "skipped" or not state.is_active or state.is_queued:
            owner = await self._find_owner(state)
            if owner != self.agent_name:
                return DriveReport("moved", self._engine.address.task_queue(owner))
        if state.is_waiting:
            return DriveReport("waiting")
        if state.is_paused:
            return DriveReport("paused")
        if state.is_active and outcome == "driven":
            # Its driver was asked to release it.
            raise _come_back_later("Released", RELEASED_WAIT_S)
        outcome_of_run = state.run.outcome if state.run is not None else None
        return DriveReport(outcome_of_run or "open")

    async def _find_owner(self, state: State) -> str:
        """Return the agent whose turn it is: that of the open run, or of the next prompt."""
        journal = self._journal
        if state.is_queued:
            return state.agent or self.agent_name
        if state.is_active:
            facts = await journal.read(state.session)
            starts = [fact.agent for fact in facts if isinstance(fact, RunStarted)]
            return starts[-1]
        for letter in await journal.read_mail(state.session, "prompts", state.prompts_taken):
            if isinstance(letter.message, PromptMail) and letter.message.agent:
                return letter.message.agent
            break
        return self.agent_name

    @activity.defn(name=CANCEL_ACTIVITY)
    async def cancel(self, session: str) -> None:
        """End the open run of a session, if there is one, and refuse the prompts in its queue."""
        with _hide_reasons(session):
            await self._agent.sweeper.cancel_all(session, CANCEL_REASON)

    @activity.defn(name=SCHEDULED_ACTIVITY)
    async def start_scheduled(self, session: str, schedule: str) -> str:
        """Put the prompt of a schedule into the queue of its session; returns the session."""
        with _hide_reasons(session):
            return await queue_scheduled_prompt(self._agent, session, schedule)


@asynccontextmanager
async def _send_heartbeats() -> AsyncGenerator[None]:
    """Tell the engine again and again that this worker lives, whatever the run does."""
    timeout = activity.info().heartbeat_timeout or timedelta(seconds=10)

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(timeout.total_seconds() / HEARTBEATS)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()


@contextmanager
def _hide_reasons(session: str) -> Generator[None]:
    """Tell the engine the kind of an error alone: its text may quote what was said."""
    try:
        yield
    except SessionBusy:
        attempt = activity.info().attempt
        wait_s = min(BUSY_WAIT_MAX_S, BUSY_WAIT_S * 2 ** min(attempt - 1, 10))
        raise _come_back_later("SessionBusy", wait_s) from None
    except WindlassError as error:
        _log.warning("session %s cannot be driven: %s", session, error)
        raise ApplicationError("see the worker's log", type=type(error).__name__) from None
    except (ApplicationError, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - the engine must not get its text
        _log.exception("session %s cannot be driven", session)
        raise ApplicationError("see the worker's log", type=type(error).__name__) from None


def _come_back_later(why: str, wait_s: float) -> ApplicationError:
    """Return what has the engine try again after a while, on whichever worker has room."""
    return ApplicationError(
        "to be tried again",
        type=why,
        next_retry_delay=timedelta(seconds=wait_s),
        category=ApplicationErrorCategory.BENIGN,
    )
