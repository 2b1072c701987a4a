"""What a running tool knows about its run: the first parameter of a tool that asks for it."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, final

from typing_extensions import TypeVar

from windlass.core.context_facts import UndoneCall
from windlass.ports import BlobStore, CallContext

DepsT_co = TypeVar("DepsT_co", covariant=True, default=object)


def discard_report(_text: str) -> None:
    """Ignore a report, because the call is not watched."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(Generic[DepsT_co]):
    """The run that a call belongs to. In a unit test, `RunContext(deps=...)` is enough.

    `deps` is what the `Toolbox` was given for its tools.
    """

    deps: DepsT_co
    session_id: str = ""
    run: int = 0
    call_id: str = ""
    tool_name: str = ""
    idempotency_key: str = ""
    """Identifies this call: the same in each attempt, also after a crash, and unique to it."""
    attempt: int = 1
    """The number of this attempt, from 1."""
    report: Callable[[str], None] = field(default=discard_report, repr=False)
    """Shows progress to the watchers of the run. May be called from any thread."""
    stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set once the tool should stop; `cancelled` reads it."""
    call: CallContext | None = field(default=None, repr=False)
    """What the runtime itself knows of the call; None in a unit test."""
    loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)
    """The event loop of the run; None in a unit test."""

    @property
    def cancelled(self) -> bool:
        """Whether the tool should stop. A sync tool must check it; an async one is cancelled."""
        return self.stopping.is_set()

    @property
    def blobs(self) -> BlobStore | None:
        """Where results that are too long to be shown are kept with the session, if anywhere."""
        return self.call.blobs if self.call else None

    @property
    def undoes(self) -> UndoneCall | None:
        """The earlier call that this one takes back, in a function given as `@tool(undo=…)`."""
        return self.call.undoes if self.call else None

    @property
    def folder(self) -> Path | None:
        """The folder of the caller's own that the run works in.

        None: the run has none, and works where the agent's tools were built to.
        """
        return self.call.folder if self.call else None

    def wait(self, seconds: float) -> bool:
        """Sleep in a sync tool. Returns True at once when the tool should stop."""
        return self.stopping.wait(seconds)

    @property
    def fencing_token(self) -> int:
        """A number that grows with each process that drives the session.

        A service that remembers the highest one for an `idempotency_key`, and refuses lower ones,
        cannot be called by a process that was stopped, replaced and woken. It is the epoch of the
        lease on Postgres, and else the number of the fact by which this driver opened the run.
        """
        return self.call.fencing_token if self.call else 0

    async def still_driving(self) -> bool:
        """Ask the journal whether this process still has the session; False if it cannot tell.

        For an async tool that runs for long: ask right before each effect.
        """
        return self.call is None or await self.call.still_driving()

    def check_driving(self) -> bool:
        """Do the same as `still_driving` for a sync tool, from its thread."""
        if self.loop is None:
            return True
        return asyncio.run_coroutine_threadsafe(self.still_driving(), self.loop).result()


class ProgressRelay:
    """Passes a tool's reports to the event loop, from any thread, until the call is over."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._open = True

    def __call__(self, text: str) -> None:
        if threading.get_ident() == self._loop_thread:
            self._relay_report(text)
            return
        with suppress(RuntimeError):  # The loop is closed, so no watcher is left.
            self._loop.call_soon_threadsafe(self._relay_report, text)

    def _relay_report(self, text: str) -> None:
        if self._open:
            self._report(text)

    def close(self) -> None:
        self._open = False
