"""A Temporal server as the engine of a fleet: it knows which sessions need a driver, not why.

Invariant: what is to be done is in the journal before the engine learns of it. So an engine that
cannot be reached delays a run, and loses none: the workers' own look finds what the engine did not
get.
"""

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import Priority, SearchAttributePair, TypedSearchAttributes
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from windlass.core.errors import ForOperator
from windlass.fleet.engine_address import EngineAddress, parse_engine_address
from windlass.fleet.session_workflow import (
    AGENT_ATTRIBUTE,
    CALLER_ATTRIBUTE,
    STATE_ATTRIBUTE,
    WAKE_SIGNAL,
    WORKFLOW_NAME,
    DriveOrder,
)
from windlass.logs import get_logger

RPC_TIMEOUT = timedelta(seconds=5)
CONNECT_TIMEOUT = timedelta(seconds=10)
POLLER_FRESH_S = 90.0
"""A worker asks its queue for work at least once a minute."""
RANKS = 5
RANK_DEFAULT = 3
FAIRNESS_CHARS_MAX = 64
_ATTRIBUTES = (AGENT_ATTRIBUTE, STATE_ATTRIBUTE, CALLER_ATTRIBUTE)
_log = get_logger(__name__)


class EngineUnreachable(ForOperator):
    """The engine does not answer, or refuses what it is asked for."""


class TemporalEngine:
    """A connection to a Temporal server. Made by `connect_engine`."""

    def __init__(self, address: EngineAddress, client: Client, *, has_attributes: bool) -> None:
        self.address = address
        self.client = client
        self.has_attributes = has_attributes
        """Whether the server knows the search attributes of sessions."""

    async def wake(self, session: str, agent: str, caller: str = "", *, priority: int = 0) -> None:
        """Have a session driven: start its workflow, or tell the one that runs to look at once.

        Where the engine can, a higher priority comes first, and callers are served in turns. Raises
        EngineUnreachable.
        """
        order = DriveOrder(session, heartbeat_s=self.address.heartbeat_s)
        try:
            await self.client.start_workflow(
                WORKFLOW_NAME,
                order,
                id=self.address.workflow_id(session),
                task_queue=self.address.task_queue(agent),
                search_attributes=self.describe_session(agent, caller),
                start_signal=WAKE_SIGNAL,
                priority=_rank_session(caller, priority),
                rpc_timeout=RPC_TIMEOUT,
            )
        except RPCError as error:
            raise explain_failure(self.address, error) from None

    async def nudge(self, session: str) -> bool:
        """Tell the workflow of a session to look at once; returns whether one runs.

        Raises EngineUnreachable.
        """
        handle = self.client.get_workflow_handle(self.address.workflow_id(session))
        try:
            await handle.signal(WAKE_SIGNAL, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise explain_failure(self.address, error) from None
        return True

    async def cancel(self, session: str) -> bool:
        """Cancel the workflow of a session, and so its run; returns whether one runs.

        Raises EngineUnreachable.
        """
        handle = self.client.get_workflow_handle(self.address.workflow_id(session))
        try:
            await handle.cancel(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise explain_failure(self.address, error) from None
        return True

    async def is_seen_to(self, session: str) -> bool:
        """Return whether an activity is under way or queued for a session.

        Raises EngineUnreachable.
        """
        handle = self.client.get_workflow_handle(self.address.workflow_id(session))
        try:
            found = await handle.describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise explain_failure(self.address, error) from None
        is_running = found.status == WorkflowExecutionStatus.RUNNING
        raw = found.raw_description
        return is_running and bool(raw.pending_activities or raw.HasField("pending_workflow_task"))

    async def has_pollers(self, queue: str) -> bool:
        """Return whether workers ask for the activities of a queue. Raises EngineUnreachable."""
        request = DescribeTaskQueueRequest(
            namespace=self.address.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        try:
            found = await self.client.workflow_service.describe_task_queue(
                request, timeout=RPC_TIMEOUT
            )
        except RPCError as error:
            raise explain_failure(self.address, error) from None
        oldest = time.time() - POLLER_FRESH_S
        return any(poller.last_access_time.seconds >= oldest for poller in found.pollers)

    def describe_session(self, agent: str, caller: str) -> TypedSearchAttributes:
        """Return what the lists of the engine show of a new workflow, if they can show it."""
        if not self.has_attributes:
            return TypedSearchAttributes([])
        pairs: list[SearchAttributePair[Any]] = [
            SearchAttributePair(AGENT_ATTRIBUTE, agent),
            SearchAttributePair(STATE_ATTRIBUTE, "open"),
            SearchAttributePair(CALLER_ATTRIBUTE, caller),
        ]
        return TypedSearchAttributes(pairs)


class LateEngine:
    """An engine that is connected to when it is first needed: it may not be there yet."""

    def __init__(self, address: EngineAddress | str) -> None:
        """Note an address. Raises ConfigError if it cannot be used."""
        self._address = parse_engine_address(address) if isinstance(address, str) else address
        self._engine: TemporalEngine | None = None
        self._connecting = asyncio.Lock()

    async def wake(self, session: str, agent: str, caller: str = "", *, priority: int = 0) -> None:
        """Have a session driven. Raises EngineUnreachable; then the workers' own look finds it."""
        async with self._connecting:
            if self._engine is None:
                self._engine = await connect_engine(self._address)
        await self._engine.wake(session, agent, caller, priority=priority)


async def connect_engine(address: EngineAddress | str) -> TemporalEngine:
    """Connect to a Temporal server, and register the search attributes of sessions if it can be.

    Raises ConfigError if the address cannot be used, and EngineUnreachable.
    """
    if isinstance(address, str):
        address = parse_engine_address(address)
    tls: TLSConfig | bool = address.tls
    if address.tls and (address.server_name or address.ca or address.cert):
        tls = TLSConfig(
            server_root_ca_cert=address.read_file("ca"),
            domain=address.server_name or None,
            client_cert=address.read_file("cert"),
            client_private_key=address.read_file("key"),
        )
    _quiet_sdk()
    try:
        client = await Client.connect(
            address.host,
            namespace=address.namespace,
            tls=tls,
            api_key=address.read_api_key(),
            connect_timeout=CONNECT_TIMEOUT,
        )
        has_attributes = await _register_attributes(client, address.namespace)
    except (RPCError, RuntimeError) as error:
        raise explain_failure(address, error) from None
    return TemporalEngine(address, client, has_attributes=has_attributes)


@cache
def _quiet_sdk() -> None:
    """Let the SDK report only errors, unless the program has chosen otherwise.

    By itself, it writes each try to reach a server that is away to standard error. What is set is
    the default: the threads of another runtime can keep a program from exiting.
    """
    errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    telemetry = TelemetryConfig(logging=LoggingConfig(errors))
    with suppress(RuntimeError):
        Runtime.set_default(Runtime(telemetry=telemetry))


def _rank_session(caller: str, priority: int) -> Priority:
    """Return the place in the engine's queues, which has five ranks; the first one is the best."""
    rank = min(RANKS, max(1, RANK_DEFAULT - priority))
    return Priority(priority_key=rank, fairness_key=caller[:FAIRNESS_CHARS_MAX] or None)


async def _register_attributes(client: Client, namespace: str) -> bool:
    """Make the attributes known to the server; returns whether it knows them now.

    A managed server lets only its administrators do so. Then sessions are only listed by their ids.
    """
    wanted = {key.name for key in _ATTRIBUTES}
    operator = client.operator_service
    try:
        listed = await operator.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace), timeout=RPC_TIMEOUT
        )
        missing = wanted - set(listed.custom_attributes)
        if missing:
            kind = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            await operator.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=namespace, search_attributes=dict.fromkeys(missing, kind)
                ),
                timeout=RPC_TIMEOUT,
            )
    except RPCError as error:
        if error.status == RPCStatusCode.ALREADY_EXISTS:
            return True
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED):
            raise
        _log.warning(
            "the engine does not know the search attributes %s, and they cannot be added: %s",
            ", ".join(sorted(wanted)),
            error.message,
        )
        return False
    return True


def explain_failure(address: EngineAddress, error: Exception) -> EngineUnreachable:
    """Return the error of a request to the engine in the words of this package."""
    reason = error.message if isinstance(error, RPCError) else str(error)
    return EngineUnreachable(f"the engine at {address.host} cannot be used: {reason}")
