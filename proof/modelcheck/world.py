"""The state that is explored: the store, two processes, and what may still go wrong."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from proof.modelcheck.letters import LaneState, PostedLetter
from proof.modelcheck.plants import PlantedBug
from windlass.core.verdicts import AnswerKind, QuestionRow

DriverPlace = Literal["idle", "leased", "opening", "driving", "leaving", "lingering", "dead"]
"""`leaving` still has the lease; `lingering` too, because a call of it runs on."""
CallPlace = Literal["", "recorded", "inside", "done", "not_started", "was_done", "was_not_done"]
NOBODY = -1
DRIVER_NAMES = ("driver A", "driver B")


class DriverState(NamedTuple):
    """What one process knows."""

    place: DriverPlace = "idle"
    is_connected: bool = True
    has_epoch: bool = False
    """On a server: whether the epoch of its lease is the one in the row of the session."""
    has_expired: bool = False
    """On a server: whether its lease time is over: another process may claim the session."""
    log: int = 0
    """The session as this driver last saw it: a node of the log."""
    letters: tuple[PostedLetter, ...] = ()
    """The message that a planted bug has removed, and not written down yet."""
    call: CallPlace = ""
    """How far its call is, or what a reconcile said, until that is on record."""
    token: int = 0
    """The fencing token that the call was given."""
    must_take: int = 0
    """The last message that waited when the run was opened: nothing is decided before it."""
    must_release: bool = False


class WorldState(NamedTuple):
    """The store, the processes, and what may still go wrong."""

    drivers: tuple[DriverState, DriverState]
    log: int
    lock: int = NOBODY
    opener: int = NOBODY
    """Whose opening is the last one, until that driver lets go on record. Only the rules look."""
    control: LaneState = LaneState()
    prompts: LaneState = LaneState()
    posted: tuple[int, ...] = ()
    """How many messages each poster has posted."""
    question: QuestionRow | None = None
    """The row of the question about the call."""
    told: tuple[AnswerKind, ...] = ()
    """The decisions that posters of answers were told. Only the rules look at it."""
    effects: int = 0
    token: int = 0
    """The highest fencing token that the tool has seen."""
    taken_down: int = 0
    """Drivers that the call has taken down, since somebody last continued the run."""
    crashes: int = 0
    cuts: int = 0
    stops: int = 0
    outages: int = 0
    is_quiet: bool = False
    """Whether the server is back for less than a lease time: what has expired is not taken."""
    lost_tails: int = 0
    rewound: int = NOBODY
    """After a failover: the session as it was acknowledged, until it is restored or paused."""
    releases: int = 0
    forks: int = 0
    forgeries: int = 0
    is_forged: bool = False
    """Whether an answer is on record that no person gave, and no driver has looked at it yet."""

    def with_driver(self, number: int, driver: DriverState) -> "WorldState":
        """Return the same with one driver changed."""
        first, second = self.drivers
        return self._replace(drivers=(driver, second) if number == 0 else (first, driver))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What can happen in an exploration, and how often."""

    store: Literal["file", "server"] = "server"
    """A lock of the kernel dies with the process; a lease of a server expires as well."""
    has_call: bool = True
    asks: bool = False
    """Whether a person has to be asked about the call."""
    posters: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """For each poster, and each message that it posts: the kinds that it chooses from."""
    crashes: int = 0
    cuts: int = 0
    stops: int = 0
    """How often a process is stopped until its lease has expired, and continues later."""
    outages: int = 0
    """How often the server is away for longer than a lease time, for everybody."""
    lost_tails: int = 0
    """How often a standby takes over that lacks any number of the last records."""
    releases: int = 0
    forks: int = 0
    forgeries: int = 0
    """How often somebody with the database alone writes that the call is allowed."""
    can_stop_in_call: bool = True
    """Whether anything can happen between the last check of a call and its effect."""
    checks_token: bool = False
    """Whether the tool refuses a token that is lower than one that it has seen."""
    reconcile_shows_token: bool = True
    """Whether `reconcile` hands its token to the service, as `run` does."""
    can_reconcile: bool = True
    """Whether the tool can find out what became of a call."""
    is_queued: bool = False
    """Whether the run was accepted and no driver has begun it; else its first driver is dead."""
    has_budget: bool = False
    """Whether the run draws on a budget that another run holds until `freed` is posted."""
    is_poison: bool = False
    """Whether the call, which may be repeated, takes its process down each time it runs."""
    bug: PlantedBug | None = None


def is_freed(scenario: Scenario, state: WorldState) -> bool:
    """Whether the other run has given its budget back: then it has posted so."""
    kinds = zip(scenario.posters, state.posted, strict=True)
    return any(("freed",) in messages[:posted] for messages, posted in kinds)
