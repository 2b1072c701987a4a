"""What operators see of a fleet: its workers, its runs that a person must look at, its queues."""

import msgspec

from windlass.agent.options import build_mask
from windlass.core.errors import JournalCorrupt
from windlass.core.fold.run import fold
from windlass.ports import Journal
from windlass.ports.fleet import SESSIONS_SHOWN, FleetRows, WorkerRow

PAUSED_SHOWN = 50
"""How many paused runs are described: the latest ones."""
FILE_NOTE = (
    "This journal does not know its processes: the kernel keeps the locks of a file, and reports "
    "which sessions are driven, but not by whom."
)


class FleetWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that drives runs."""

    name: str
    host: str
    process: int
    version: str
    state: str
    """`alive`, `late` (its lease has expired: others may take its runs) or `dead`."""
    age_s: float
    """Since it first took a lease."""
    heartbeat_s: float
    """Since its last sign of life."""
    is_direct: bool
    """It is connected to the server itself, so that its death is noticed within two seconds."""
    runs: int
    sessions: list[str]
    """The latest sessions that it drives."""


class PausedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that does not go further by itself."""

    session: str
    agent: str
    caller: str
    cause: str
    """`asked`, `budget`, `deaths` (a call took its process down) or `rewound` (the database may
    have lost what the run did last)."""
    reason: str
    by: str
    since: float
    """Seconds since the epoch."""


class QueuedPrompts(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts of one caller that have not begun a run."""

    caller: str
    prompts: int
    longest_wait_s: float


class FleetFailover(msgspec.Struct, frozen=True, kw_only=True):
    """The database lost records that it had acknowledged, or may have."""

    at: float
    reason: str
    is_settled: bool
    """Each session in doubt was restored, or its run is paused."""
    restored: int
    """Sessions that got back what they had lost."""
    paused: int
    """Runs that were paused as possibly rewound."""


class FleetReply(msgspec.Struct, frozen=True, kw_only=True):
    """The processes, paused runs and queues of a journal."""

    journal: str
    at: float
    """Seconds since the epoch, by the clock of the journal."""
    workers: list[FleetWorker]
    driven: list[str]
    """Sessions that a process drives, if the journal cannot tell which one."""
    paused: list[PausedRun]
    """The latest ones."""
    queues: list[QueuedPrompts]
    """The longest wait comes first."""
    failovers: list[FleetFailover] = []
    """Of the last seven days; the latest come first."""
    replication: str = ""
    """Whether a failover can lose what was acknowledged."""
    note: str = ""
    """What the journal does not know."""


async def read_fleet_status(journal: Journal) -> FleetReply:
    """Return what a journal knows of the processes that work on it. Raises JournalFailed."""
    rows = await journal.read_fleet()
    workers = [_describe_worker(row, rows) for row in rows.workers or ()]
    driven = [] if rows.workers is not None else await _find_driven(journal)
    queues = [
        QueuedPrompts(
            caller=queue.caller,
            prompts=queue.prompts,
            longest_wait_s=max(0.0, rows.at - queue.oldest_at),
        )
        for queue in rows.queues
    ]
    return FleetReply(
        journal=journal.name,
        at=rows.at,
        workers=workers,
        driven=driven,
        paused=await _list_paused(journal),
        queues=queues,
        failovers=[
            FleetFailover(
                at=one.noticed,
                reason=one.reason,
                is_settled=one.is_settled,
                restored=one.restored,
                paused=one.paused,
            )
            for one in rows.failovers
        ],
        replication=rows.replication,
        note="" if rows.workers is not None else FILE_NOTE,
    )


def _describe_worker(row: WorkerRow, rows: FleetRows) -> FleetWorker:
    state = "dead" if row.is_dead else "alive" if row.expires > rows.at else "late"
    return FleetWorker(
        name=row.name,
        host=row.host,
        process=row.process,
        version=row.version,
        state=state,
        age_s=max(0.0, rows.at - row.started),
        heartbeat_s=max(0.0, rows.at - row.renewed),
        is_direct=row.is_direct,
        runs=row.runs,
        sessions=list(row.sessions),
    )


async def _find_driven(journal: Journal) -> list[str]:
    page = await journal.sessions(state="open", parent="", limit=10 * SESSIONS_SHOWN)
    return [one.session for one in page if await journal.is_leased(one.session)]


async def _list_paused(journal: Journal) -> list[PausedRun]:
    page = await journal.sessions(state="paused", parent="", limit=PAUSED_SHOWN)
    # The secrets of the agents are not known here: what looks like one is masked.
    mask = build_mask(None)
    found: list[PausedRun] = []
    for summary in page:
        try:
            run = fold(summary.session, await journal.read(summary.session)).run
        except JournalCorrupt:
            continue  # `windlass sessions verify` names it.
        if run is None or run.pause is None:
            continue
        found.append(
            PausedRun(
                session=summary.session,
                agent=summary.agent,
                caller=summary.caller,
                cause=run.pause.cause,
                reason=mask.mask_text(run.pause.reason),
                by=run.pause.by,
                since=run.pause.at,
            )
        )
    return found
