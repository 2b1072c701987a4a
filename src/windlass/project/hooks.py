"""Hooks: observers and gates that installed packages bring, as entry points.

    [project.entry-points."windlass_observers"]
    audit = "my_package:audit"            # def audit(session: str, event: Event) -> None
    [project.entry-points."windlass_gates"]
    office_hours = "my_package:make_gate"  # def make_gate() -> Gate

Invariant: a hook breaks nothing. An observer runs in its own thread, behind a queue: one that
raises, hangs or is slow loses events of its own, and nothing else. A gate can only forbid more, and
one that raises or takes too long has denied. Only hooks that a person named are loaded.
"""

import asyncio
import atexit
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from windlass.agent.event_stream import RunObserver, TraceSink
from windlass.core.errors import ConfigError
from windlass.core.events import Event
from windlass.core.state import State
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import Allow, Deny, Verdict
from windlass.logs import get_logger
from windlass.ports import Gate, GateRequest

OBSERVERS = "windlass_observers"
GATES = "windlass_gates"
QUEUE_EVENTS_MAX = 10_000
"""Events that may wait for an observer; what comes then is lost to it."""
CLOSE_S = 2.0
"""How long the events of a run may take to reach an observer once the run has ended."""
JUDGE_S = 10.0

_log = get_logger(__name__)
EventHook = Callable[[str, Event], None]


@dataclass(frozen=True, slots=True)
class InstalledHook:
    """A hook that a package brings, whether or not it is used."""

    name: str
    group: str
    package: str
    """The package and its version."""


def list_hooks() -> list[InstalledHook]:
    """Return the hooks of all installed packages. None of them is loaded."""
    return [
        InstalledHook(point.name, group, _describe_package(point))
        for group in (OBSERVERS, GATES)
        for point in entry_points(group=group)
    ]


def _describe_package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module


def hook_gates(names: Sequence[str]) -> Iterator[Gate]:
    """Yield the gates among the hooks of these names. Raises ConfigError if one is not installed.

    A gate that is missing must not let pass what it would have forbidden.
    """
    known = [hook.name for hook in list_hooks()]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"hooks: no installed package provides a hook {name!r}.{suggest_names(name, known)}"
            )
    for name, make_gate in _load_hooks(GATES, names):
        yield HookGate(name, make_gate)


def hook_observer(names: Sequence[str]) -> RunObserver | None:
    """Return what notifies the observers of these names of each run; None if there are none."""
    hooks = list(_load_hooks(OBSERVERS, names))
    return HookObserver(hooks) if hooks else None


def _load_hooks(group: str, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for point in entry_points(group=group):
        if point.name not in names:
            continue
        try:
            yield point.name, point.load()
        except Exception as error:
            raise ConfigError(
                f"hooks: {point.name!r} of {_describe_package(point)} cannot be loaded: {error}"
            ) from error


class HookGate:
    """A gate of a package: it may forbid and ask, and it may not break."""

    def __init__(self, name: str, make_gate: Callable[[], Gate]) -> None:
        self.name = f"hook:{name}"
        try:
            self._gate = make_gate()
        except Exception as error:
            raise ConfigError(f"hooks: {name!r} makes no gate: {error}") from error

    @property
    def judges_replies(self) -> bool:
        return self._gate.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        """Return the verdict of the hook. One that raises or takes too long denies."""
        try:
            async with asyncio.timeout(JUDGE_S):
                return await self._gate.judge(request)
        except Exception as error:  # noqa: BLE001 - whatever a hook does wrong, it has denied
            _log.warning("%s failed, so the call is denied", self.name, exc_info=True)
            return Deny(f"{self.name} failed: {type(error).__name__}", self.name)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        """Return the verdict of the hook on a final reply; see `judge`."""
        try:
            async with asyncio.timeout(JUDGE_S):
                return await self._gate.judge_reply(session, text)
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("%s failed, so the reply is denied", self.name, exc_info=True)
            return Deny(f"{self.name} failed: {type(error).__name__}", self.name)


class HookObserver:
    """Notifies observers of events, each behind its own queue."""

    def __init__(self, hooks: Iterable[tuple[str, EventHook]]) -> None:
        self._threads = [_HookThread(name, hook) for name, hook in hooks]
        # Observers get the end of a run before the program ends.
        atexit.register(self.close)

    def begin_run(self, agent: str, session: str, now: Callable[[], float]) -> TraceSink:  # noqa: ARG002 - events have a time of their own
        return _HookSink(self._threads, session)

    def close(self) -> None:
        """Wait a moment until observers have got what has happened."""
        for thread in self._threads:
            thread.close()


class _HookSink:
    def __init__(self, threads: Sequence["_HookThread"], session: str) -> None:
        self._threads = threads
        self._session = session

    def record_event(self, event: Event) -> None:
        for thread in self._threads:
            thread.put(self._session, event)

    def add_session(self, session: str, read_state: Callable[[], State]) -> None:
        """Do nothing: events of sub-agents come nested in those of their caller."""

    def enter_call(self, session: str, call_id: str) -> AbstractContextManager[None]:  # noqa: ARG002 - nothing is measured
        return nullcontext()


class _HookThread:
    """Calls one observer, event by event, away from everything else."""

    def __init__(self, name: str, hook: EventHook) -> None:
        self._name = name
        self._hook = hook
        self._queue: queue.Queue[tuple[str, Event] | None] = queue.Queue(QUEUE_EVENTS_MAX)
        self._has_lost = False
        # A daemon: an observer that hangs does not keep the program from ending.
        self._thread = threading.Thread(target=self._work, name=f"hook-{name}", daemon=True)
        self._thread.start()

    def put(self, session: str, event: Event) -> None:
        try:
            self._queue.put_nowait((session, event))
        except queue.Full:
            if not self._has_lost:
                self._has_lost = True
                _log.warning("the observer %s is too slow, and loses events", self._name)

    def close(self) -> None:
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while (told := self._queue.get()) is not None:
            try:
                self._hook(*told)
            except Exception:  # noqa: BLE001 - an observer that fails must change nothing
                _log.warning("the observer %s failed", self._name, exc_info=True)
