"""The workflow of a session: it has the session driven, and waits while a person is asked.

Invariant: the engine learns names and states, and never what is said. One activity drives all there
is to do, no matter how many steps that takes, so the history of a run has the same length for any
conversation; after some rounds the workflow starts over. No activity is held while a run waits.

Histories of earlier versions are replayed by this code: a change to the order of what `run`
asks for must do so behind `workflow.patched`.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeout

WORKFLOW_NAME = "windlass-session"
WAKE_SIGNAL = "wake"
DRIVE_ACTIVITY = "windlass-drive"
CANCEL_ACTIVITY = "windlass-cancel"
SCHEDULED_ACTIVITY = "windlass-scheduled"

AGENT_ATTRIBUTE = SearchAttributeKey.for_keyword("WindlassAgent")
STATE_ATTRIBUTE = SearchAttributeKey.for_keyword("WindlassState")
CALLER_ATTRIBUTE = SearchAttributeKey.for_keyword("WindlassCaller")

ROUNDS_MAX = 20
"""Activities of one history. Then the workflow starts over, with an empty one."""
LOOK_MIN_S = 30.0
LOOK_MAX_S = 600.0
"""How often to look at a session that waits: a program that answers may not signal the workflow."""
UNCLAIMED_S = 20.0
"""How long workers with the configuration of a run have to take it, before others look at it."""
RUN_DAYS_MAX = 365
"""The engine wants to know how long a run may take."""
RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=30),
)
"""Without end: a run that leads nowhere is parked by the facts of its session."""


@dataclass
class DriveOrder:
    """Which session, and how soon the engine must hear from its driver."""

    session: str
    schedule: str = ""
    """The schedule that began it, by name, if one did."""
    heartbeat_s: float = 10.0
    queue: str = ""
    """Where it must be driven, if that is not the queue of the workflow."""


@dataclass
class DriveReport:
    """What driving a session came to."""

    state: str
    """That of the session, or `moved` if another queue must take it."""
    queue: str = ""


@workflow.defn(name=WORKFLOW_NAME)
class SessionWorkflow:
    """Sees to one session until its last run has ended."""

    def __init__(self) -> None:
        self._is_woken = False

    @workflow.signal(name=WAKE_SIGNAL)
    def wake(self) -> None:
        """Look at the session at once."""
        self._is_woken = True

    @workflow.run
    async def run(self, order: DriveOrder) -> str:
        """Drive the session until there is nothing left to do. Returns its last state."""
        if not order.session:
            # A schedule adds the time to the id, so that each firing has its own session.
            order.session = workflow.info().workflow_id.partition("/")[2]
        try:
            return await self._see_through(order)
        except BaseException as error:
            # A workflow that leaves the memory of a worker is cancelled too, but not on request.
            if is_cancelled_exception(error) and workflow.cancellation_reason() is not None:
                await self._cancel(order)
            raise

    async def _see_through(self, order: DriveOrder) -> str:
        if order.schedule:
            order.session = await workflow.execute_activity(
                SCHEDULED_ACTIVITY,
                args=[order.session, order.schedule],
                result_type=str,
                start_to_close_timeout=timedelta(seconds=60),
                retry_policy=RETRIES,
            )
        quiet_rounds = 0
        for number in range(ROUNDS_MAX):
            self._is_woken = False
            report = await self._drive(order, UNCLAIMED_S * 2**number)
            order.queue = report.queue
            self._show_state(report.state)
            if report.state == "moved":
                _check_cancelled()
                continue
            if report.state not in ("waiting", "paused", "open"):
                if not self._is_woken:
                    return report.state
                continue
            _check_cancelled()
            quiet_rounds += 1
            await self._rest(min(LOOK_MAX_S, LOOK_MIN_S * 2 ** (quiet_rounds - 1)))
        order.schedule = ""
        return workflow.continue_as_new(order)

    async def _drive(self, order: DriveOrder, unclaimed_s: float) -> DriveReport:
        """Have the session driven where it belongs, or else by any worker of its agent."""
        try:
            report = await self._ask_driver(order, unclaimed_s)
        except ActivityError as error:
            cause = error.cause
            if not (
                isinstance(cause, ActivityTimeout) and cause.type == TimeoutType.SCHEDULE_TO_START
            ):
                raise
            # No worker with this configuration came: another one decides by its policy.
            order.queue = ""
            return await self._ask_driver(order, unclaimed_s)
        if report.state == "moved" and report.queue == order.queue:
            # It was sent back to where it was: look again later, instead of on and on.
            return DriveReport("open")
        return report

    async def _ask_driver(self, order: DriveOrder, unclaimed_s: float) -> DriveReport:
        """Have the session driven by any worker of its agent, or by those of its queue."""
        unclaimed = timedelta(seconds=min(LOOK_MAX_S, unclaimed_s))
        return await workflow.execute_activity(
            DRIVE_ACTIVITY,
            order.session,
            result_type=DriveReport,
            task_queue=order.queue or None,
            schedule_to_start_timeout=unclaimed if order.queue else None,
            start_to_close_timeout=timedelta(days=RUN_DAYS_MAX),
            heartbeat_timeout=timedelta(seconds=order.heartbeat_s),
            retry_policy=RETRIES,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    async def _rest(self, seconds: float) -> None:
        """Wait until the session is spoken to, or for a while."""
        try:
            await workflow.wait_condition(
                lambda: self._is_woken, timeout=timedelta(seconds=seconds)
            )
        except TimeoutError:
            return

    async def _cancel(self, order: DriveOrder) -> None:
        """End the run on record: it may have had no driver when the cancel came."""
        await workflow.execute_activity(
            CANCEL_ACTIVITY,
            order.session,
            start_to_close_timeout=timedelta(seconds=60),
            retry_policy=RETRIES,
        )
        self._show_state("cancelled")

    def _show_state(self, state: str) -> None:
        """Let the engine's lists show the state, where they know the attribute."""
        known = workflow.info().typed_search_attributes
        if AGENT_ATTRIBUTE in known and known.get(STATE_ATTRIBUTE) != state:
            update: list[SearchAttributeUpdate[Any]] = [STATE_ATTRIBUTE.value_set(state)]
            workflow.upsert_search_attributes(update)  # pyright: ignore[reportUnknownMemberType]


def _check_cancelled() -> None:
    """Raise CancelledError if the workflow was cancelled.

    An activity that was about to end anyway returns its result, and swallows the cancel.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError
