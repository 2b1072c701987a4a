"""What a journal knows of the processes that work on it, and of the work that waits for them.

A store keeps a small row for each session that needs a driver, and for no other one. The row is
written and removed in the same transaction as what makes it necessary: a message that is posted,
or facts that change the state of the session. So no crash loses it, and a look for work never reads
sessions that need nothing.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

SESSIONS_SHOWN = 20
"""How many sessions of each process are named: the latest ones."""
LANES_MAX = 400
"""Lanes that one look lists; the next look begins behind them."""


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


class WorkWanted(NamedTuple):
    """Which work a worker may take."""

    agents: Sequence[str]
    """The names of its agents. Work that any agent may do is always listed, as that of ""."""
    now: float
    """Seconds since the epoch: what is due later is left alone."""
    without: Collection[str] = ()
    """Sessions that it leaves alone for now."""
    behind: str = ""
    """Only callers whose names come behind this one."""
    checks_drivers: bool = False
    """Find out at once whose drivers have died, even if that takes a second. A worker that looks
    again and again learns it anyway."""


class WorkLane(NamedTuple):
    """The sessions of one caller and agent that need a driver and have none."""

    agent: str
    """Empty if any agent may drive them."""
    caller: str
    is_begun: bool
    """Whether their runs were begun. Otherwise they have messages that no driver has taken."""
    priority: int = 0
    """Of the first of them: the most urgent, then the oldest."""
    since: float = 0.0


class WorkShare(NamedTuple):
    """How many sessions to take from a lane."""

    lane: WorkLane
    sessions: int


class ClaimedWork(NamedTuple):
    """A session that this process has leased, until it is driven or `release_work` is called."""

    session: str
    agent: str
    caller: str
    is_begun: bool
    priority: int = 0
