"""A run that a caller wants, whichever protocol asks for it."""

from typing import Protocol

import msgspec

from windlass.agent.options import EarlierMessage, OnBusy, RunOptions
from windlass.core.events import RunStarted
from windlass.core.limits import Limits
from windlass.core.messages import ContentPart, Label

SERVICE_KEY = "windlass_service"
"""The key in the context of a run that says that a service began it."""


class RunEngine(Protocol):
    """Something that finds a driver for a session: an engine with workers of its own."""

    async def wake(self, session: str, agent: str, caller: str = "", *, priority: int = 0) -> None:
        """Have a session driven. What is to be done there is on record already."""
        ...


def is_served_run(start: RunStarted) -> bool:
    """Return whether a service began a run."""
    return bool(start.context.get(SERVICE_KEY))


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a caller wants."""

    prompt: str | tuple[ContentPart, ...]
    agent: str = ""
    """The name of the agent; by default the session's, or the first one."""
    session: str = ""
    """The session to continue, or a new name; by default a new session."""
    key: str = ""
    """The caller's own name for this start: the same key never begins a second run."""
    on_busy: OnBusy = "refuse"
    labels: tuple[Label, ...] = ()
    """What the prompt brings along: `untrusted` text, `private` data."""
    earlier: tuple[EarlierMessage, ...] = ()
    """A conversation from elsewhere that a new session continues."""
    limits: Limits | None = None
    """Stricter limits than the agent's; those that are not stricter change nothing."""
    pinned: bool = False
    priority: int = 0
    """A higher one begins first, and its requests go first."""
    trace: str = ""
    """The trace that the run belongs to, as in a `traceparent` header."""

    def to_options(self) -> RunOptions:
        """Return what the caller asked for as options of the run."""
        options: RunOptions = {
            "key": self.key,
            "on_busy": self.on_busy,
            "labels": self.labels,
            "pinned": self.pinned,
            "priority": self.priority,
            "trace": self.trace,
        }
        if self.earlier:
            options["messages"] = self.earlier
        if self.limits is not None:
            options["limits"] = self.limits
        return options
