"""What a running tool may know of its run: the first parameter of a tool that asks for it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, final

from typing_extensions import TypeVar

from windlass.ports import BlobStore, CallContext

DepsT_co = TypeVar("DepsT_co", covariant=True, default=object)


def discard_report(_text: str) -> None:
    """Ignore a report: nobody watches."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext(Generic[DepsT_co]):
    """The run that a call belongs to. In a unit test, `RunContext(deps=...)` is enough."""

    deps: DepsT_co
    session_id: str = ""
    run: int = 0
    call_id: str = ""
    tool_name: str = ""
    idempotency_key: str = ""
    """Names this effect: the same each time this call is tried, and no other call's."""
    attempt: int = 1
    """Counts the tries of this call, from 1."""
    report: Callable[[str], None] = field(default=discard_report, repr=False)
    """Show progress to whoever watches. May be called from any thread."""
    stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set once the tool should stop: what `cancelled` looks at."""
    call: CallContext | None = field(default=None, repr=False)
    """What the runtime itself knows of the call; None in a unit test."""

    @property
    def cancelled(self) -> bool:
        """Whether the tool should stop. An async tool is also cancelled; a sync one must look."""
        return self.stopping.is_set()

    @property
    def blobs(self) -> BlobStore | None:
        """Where results that are too long to be shown are kept with the session, if anywhere."""
        return self.call.blobs if self.call else None

    def wait(self, seconds: float) -> bool:
        """Sleep in a sync tool, until the time is over or the tool should stop (then True)."""
        return self.stopping.wait(seconds)
