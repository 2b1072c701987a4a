"""What a journal knows of the processes that work on it, and of the prompts that wait."""

from collections.abc import Sequence

import msgspec

SESSIONS_SHOWN = 20
"""How many sessions of each process are named: the latest ones."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process that leases sessions. Times are seconds since the epoch, by the store's clock."""

    name: str
    """Random; a process that was taken for dead and comes back has another one."""
    host: str
    process: int
    version: str
    """Of Windlass; empty if it is not known."""
    started: float
    renewed: float
    """Its last sign of life."""
    expires: float
    """Others may take its sessions after this time."""
    is_dead: bool
    """It was found dead: its sessions are free."""
    is_direct: bool
    """It is connected to the server itself, so that its death is noticed at once."""
    runs: int
    """Runs that it drives, without those of sub-agents."""
    sessions: Sequence[str]
    """The latest of them."""


class CallerQueue(msgspec.Struct, frozen=True):
    """The prompts of one caller that have not begun a run."""

    caller: str
    prompts: int
    oldest_at: float
    """When the store accepted the first of them."""


class FailoverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which the store turned out to be behind what it had acknowledged, or may be."""

    noticed: float
    """By the store's clock."""
    reason: str
    is_settled: bool
    """Each session in doubt was restored or paused."""
    restored: int
    """Sessions whose lost records a process wrote again."""
    paused: int
    """Runs that were paused as possibly rewound."""


class FleetRows(msgspec.Struct, frozen=True, kw_only=True):
    """The processes and the queues of a journal, as they are at one moment."""

    at: float
    """Now, by the store's clock."""
    workers: Sequence[WorkerRow] | None
    """The latest come first. None if the journal does not know its processes, as a file does not.
    """
    queues: Sequence[CallerQueue]
    """The longest wait comes first."""
    failovers: Sequence[FailoverRow] = ()
    """Of the last seven days; the latest come first."""
    replication: str = ""
    """Whether what was acknowledged survives the loss of the server, in words; empty for a file.
    """
