"""The plan of a simulated session: everything random is drawn here, before it starts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Literal, TypeVar

from proof.simulate.plan_calls import (
    CODE,
    EFFECTS,
    HELPER,
    CallPlan,
    ReplyPlan,
    ScriptTraits,
    add_code,
    plan_helped_write,
)
from proof.simulate.plan_calls import draw_lookup as _lookup
from proof.simulate.plan_calls import draw_reply as _reply
from proof.simulate.plan_control import LEFT_ALONE, ControlPlan, draw_control
from windlass.core.errors import FaultKind
from windlass.core.messages import Effect

__all__ = [
    "CODE",
    "EFFECTS",
    "HELPER",
    "CallPlan",
    "Effect",
    "ReplyPlan",
    "RequestTrouble",
    "SessionPlan",
    "draw_plan",
]

T = TypeVar("T")
RequestTrouble = FaultKind | Literal["drop", "cut", "stall", "slow", "restart", "refused_call"]
CrashPoint = tuple[int, Literal["before", "after"]]
KNOWLEDGE_KINDS = ("something", "something", "nothing", "fails", "denied")
UNDOING_SHARE = 0.15
"""How many of the sessions undo a run that does not complete."""
HELPED_WRITE_SHARE = 0.05
"""How many of the sessions begin with a write and a helper that writes as well."""
ODD_REPLY_SHARE = 0.1
"""How many of the sessions with troubles get a reply that starts over, or a refused call."""
KEYED_SHARE = 0.3
"""How many of the sessions are in a journal whose answers are signed."""
POISON_SHARE = 0.15
"""How many of the sessions have a call that takes its process down."""
IntrusionKind = Literal["resume", "run", "steer", "abandon"]


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """A session with one or two runs, and the world around it."""

    seed: int
    runs: int
    replies: tuple[ReplyPlan, ...]
    troubles: dict[int, RequestTrouble]
    """What goes wrong with a request, by its number."""
    crashes: tuple[CrashPoint, ...]
    """For each process that dies: at which of its writes, and before or after it."""
    cancel_after_s: float | None
    outer_cancel: bool
    """The task of the caller is cancelled, instead of `agent.cancel`."""
    journal_wait_s: float
    watched: bool
    on_partial: Literal["fail", "restart"]
    on_limit: Literal["stop", "answer"]
    on_unknown: Literal["tell", "ask"]
    reconciles: bool
    usage_reported: bool
    steps_max: int
    usd_max: Decimal | None
    seconds_max: float | None
    more: "PlanExtras"
    session: str = "sim"
    beside: tuple["SessionPlan", ...] = ()
    """Sessions that run at the same time, with the same journal and the same budget."""
    control: ControlPlan = LEFT_ALONE

    @property
    def calls(self) -> dict[int, CallPlan]:
        """Every call that can happen, by its number."""
        own = [call for reply in self.replies for call in reply.calls]
        by_helpers = [inner for call in own for reply in call.task for inner in reply.calls]
        return {call.number: call for call in (*self.more.lookups, *own, *by_helpers)}

    @property
    def depends_on_time(self) -> bool:
        """Whether the outcome depends on when something happens."""
        more = self.more
        calls = self.calls.values()
        money = self.usd_max is not None or more.session_usd or more.budget_usd
        moments = self.cancel_after_s is not None or self.seconds_max is not None or more.steers
        expiring = any(call.expires_s is not None for call in calls)
        moments = moments or more.steers_between or self.control.changes_outcome
        return bool(self.troubles or money or moments or expiring)


@dataclass(frozen=True, slots=True)
class PlanExtras:
    """The part of a plan that only some sessions have."""

    judges_replies: bool = False
    denies_last: bool = False
    """The reply after the end of the script is denied too, so that the run ends by denials."""
    attended: bool = False
    """An approver is present while the run goes on."""
    answers_apart: bool = False
    """Answers are written by a process with the journal but without an agent."""
    picks: tuple[int, ...] = (0,)
    """Which of the open questions is answered first."""
    steers: tuple[tuple[int, float], ...] = ()
    """In which process, and after how many seconds, a person steers the run."""
    steers_between: tuple[int, ...] = ()
    """Before which process a person steers the run while no process drives it."""
    intrusions: tuple[tuple[int, float, IntrusionKind], ...] = ()
    """In which process, when and how a second process tries to take the session."""
    window: int | None = None
    """The context window for compaction, in tokens."""
    provider_window: int | None = None
    """The provider refuses longer prompts than this, in tokens."""
    summaries: tuple[Literal["good", "empty", "fails"], ...] = ("good",)
    pinned: tuple[bool, ...] = (False, False)
    knowledge: Literal["none", "something", "nothing", "fails", "denied"] = "none"
    lookups: tuple[CallPlan, ...] = ()
    """The calls that hydration makes for the prompts."""
    session_steps: int | None = None
    session_usd: Decimal | None = None
    budget_usd: Decimal | None = None
    """The shared budget of all sessions on the journal."""
    helped: bool = False
    """The agent has a sub-agent."""
    hidden_tokens: int = 0
    """Tokens that are billed for a whole reply but not shown, as for reasoning."""
    coded: bool = False
    """The agent has a tool whose code makes calls."""
    searched: bool = False
    """The model must search for its tools."""
    masked: bool = False
    """The agent masks secrets as it does by default."""
    on_failure: Literal["keep", "undo"] = "keep"
    """Whether a run that does not complete is undone."""
    requests_burst: int | None = None
    """The provider limits requests: so many at once, and as many again within five seconds."""
    poison: int | None = None
    """The number of a call that takes its process down."""
    doses: int = 0
    """How often it does, before somebody has repaired it."""
    has_keys: bool = False
    """A driver believes no recorded permission that no signature proves."""


def draw_plan(seed: int) -> SessionPlan:
    """Draw the session of a seed."""
    plan = _add_odd_replies(_add_poison(Random(f"{seed} poison"), _draw_failure(seed)))
    beside = (_add_poison(Random(f"{seed} poison of {one.session}"), one) for one in plan.beside)
    has_keys = Random(f"{seed} keys").random() < KEYED_SHARE
    return replace(plan, beside=tuple(beside), more=replace(plan.more, has_keys=has_keys))


def _add_poison(random: Random, plan: SessionPlan) -> SessionPlan:
    """Sometimes let a call take its process down. No rival drives such a session."""
    numbers = sorted(call.number for call in plan.calls.values() if call.tool in EFFECTS)
    if not numbers or random.random() > POISON_SHARE:
        return plan
    more = replace(plan.more, poison=random.choice(numbers), doses=random.choice((1, 2, 2, 3, 4)))
    return replace(plan, more=more, control=replace(plan.control, rivals=()))


def _add_odd_replies(plan: SessionPlan) -> SessionPlan:
    """Sometimes let a provider start its reply over, or refuse the call that its model wrote."""
    random = Random(f"{plan.seed} odd replies")
    if not plan.troubles or random.random() > ODD_REPLY_SHARE:
        return plan
    odd: dict[int, RequestTrouble] = {
        at: random.choice(("restart", "restart", "refused_call"))
        for at in range(8)
        if _has_luck(random, 0.4)
    }
    return replace(plan, troubles=plan.troubles | odd)


def _draw_failure(seed: int) -> SessionPlan:
    """Draw a session, and whether it is undone if it fails."""
    plan = _draw_sessions(seed)
    helping = Random(f"{seed} helped write")
    if helping.random() < HELPED_WRITE_SHARE:
        replies = (plan_helped_write(helping), *plan.replies[1:])
        plan = replace(plan, replies=replies, more=replace(plan.more, helped=True))
    if Random(f"{seed} on failure").random() > UNDOING_SHARE:
        return plan
    # What comes behind its one run is what undoes it, and nobody else meddles with that.
    more = replace(plan.more, on_failure="undo", intrusions=(), steers_between=())
    return replace(plan, runs=1, more=more, control=LEFT_ALONE)


def _draw_sessions(seed: int) -> SessionPlan:
    random = Random(seed)
    share = Random(f"{seed} beside")
    budget = share.choice(("0.01", "0.03", "0.06", "0.3")) if share.random() < 0.25 else None  # noqa: PLR2004
    money = Decimal(budget) if budget else None
    count = share.choice((0, 1, 1, 2)) if budget else 0
    others = tuple(
        _draw_session(Random(f"{seed} {at}"), seed, money, f"sim-{at}") for at in range(count)
    )
    return _draw_session(random, seed, money, "sim", others)


def _draw_session(
    random: Random,
    seed: int,
    budget: Decimal | None,
    session: str,
    beside: tuple[SessionPlan, ...] = (),
) -> SessionPlan:
    # Some sessions have no provider faults: exact totals can only be checked on those.
    calm = random.random() < 0.3  # noqa: PLR2004
    extra = Random(f"{seed} more of {session}")
    helped = extra.random() < 0.2  # noqa: PLR2004
    code = Random(f"{seed} code of {session}")
    coded = code.random() < 0.12  # noqa: PLR2004
    runs = random.choice((1, 1, 2))
    replies = _draw_replies(random, extra, helped=helped)
    return SessionPlan(
        seed=seed,
        runs=runs,
        replies=add_code(code, replies) if coded else replies,
        troubles={} if calm else _draw_troubles(random, extra),
        crashes=_draw_crashes(random),
        cancel_after_s=random.choice((None, None, round(random.uniform(0.0, 6.0), 3))),
        outer_cancel=random.random() < 0.3,  # noqa: PLR2004
        journal_wait_s=random.choice((0.0, 0.001, 0.01)),
        watched=random.random() < 0.7,  # noqa: PLR2004
        on_partial=random.choice(("fail", "restart", "restart")),
        on_limit=random.choice(("stop", "answer")),
        on_unknown=random.choice(("tell", "tell", "ask")),
        reconciles=random.random() < 0.5,  # noqa: PLR2004
        usage_reported=random.random() < 0.8,  # noqa: PLR2004
        steps_max=random.choice((1, 2, 3, 25, 25, 25)),
        usd_max=random.choice((None, None, *map(Decimal, ("0.002", "0.01", "0.02", "0.5")))),
        seconds_max=random.choice((None, None, None, 3.0, 30.0)),
        more=replace(
            _draw_extras(extra, budget, helped=helped),
            coded=coded,
            requests_burst=_draw_burst(Random(f"{seed} limit of {session}")),
            searched=Random(f"{seed} search of {session}").random() < 0.15,  # noqa: PLR2004
        ),
        session=session,
        beside=beside,
        control=draw_control(Random(f"{seed} control of {session}")),
    )


def _draw_extras(random: Random, budget: Decimal | None, *, helped: bool) -> PlanExtras:
    judges = _has_luck(random, 0.15)
    tight = _has_luck(random, 0.35)
    return PlanExtras(
        judges_replies=judges,
        denies_last=judges and _has_luck(random, 0.5),
        attended=_has_luck(random, 0.4),
        answers_apart=_has_luck(random, 0.4),
        picks=tuple(random.randrange(4) for _ in range(5)),
        steers=_draw_sometimes(random, 0.2, _draw_moments) or (),
        steers_between=tuple(at for at in range(1, 5) if _has_luck(random, 0.05)),
        intrusions=_draw_sometimes(random, 0.08, _draw_intrusions) or (),
        window=random.choice((80, 150, 300)) if tight else None,
        provider_window=_draw_sometimes(random, 0.05, lambda luck: luck.choice((60, 150))),
        summaries=tuple(random.choice(("good", "good", "empty", "fails")) for _ in range(4)),
        pinned=(_has_luck(random, 0.3), _has_luck(random, 0.3)),
        knowledge=random.choice(("none",) * 8 + KNOWLEDGE_KINDS),
        lookups=tuple(_lookup(random, 900 + at) for at in range(random.choice((0,) * 6 + (1, 3)))),
        session_steps=random.choice((None,) * 8 + (2, 4)),
        session_usd=random.choice((None,) * 8 + (Decimal("0.02"), Decimal("0.05"))),
        budget_usd=budget,
        helped=helped,
        hidden_tokens=random.choice((0, 0, 0, 150, 290)),
        masked=_has_luck(random, 0.1),
    )


def _draw_burst(random: Random) -> int | None:
    return _draw_sometimes(random, 0.3, lambda luck: luck.choice((1, 2, 3, 10)))


def _draw_replies(random: Random, extra: Random, *, helped: bool) -> tuple[ReplyPlan, ...]:
    made = list[ReplyPlan]()
    traits = ScriptTraits(helped, asks=_has_luck(extra, 0.1), circles=_has_luck(extra, 0.05))
    for at in range(random.randint(1, 7)):
        made.append(_reply(random, extra, at, made, traits))
    return tuple(made)


def _has_luck(random: Random, share: float) -> bool:
    return random.random() < share


def _draw_sometimes(random: Random, share: float, draw: Callable[[Random], T]) -> T | None:
    return draw(random) if _has_luck(random, share) else None


def _draw_moments(random: Random) -> tuple[tuple[int, float], ...]:
    count = random.choice((1, 1, 2, 3))
    return tuple((random.choice((1, 1, 2, 3)), random.uniform(0.0, 3.0)) for _ in range(count))


def _draw_intrusions(random: Random) -> tuple[tuple[int, float, IntrusionKind], ...]:
    kinds: tuple[IntrusionKind, ...] = ("resume", "run", "steer", "abandon")
    return ((random.choice((1, 1, 2)), random.uniform(0.0, 2.0), random.choice(kinds)),)


def _draw_troubles(random: Random, extra: Random) -> dict[int, RequestTrouble]:
    kinds: tuple[RequestTrouble, ...] = (
        "rate_limit",
        "server",
        "network",
        "drop",
        "drop",
        "cut",
        "stall",
        "slow",
        "auth",
        "malformed_stream",
    )
    troubles = dict[int, RequestTrouble]()
    for at in range(20):
        if random.random() < 0.25:  # noqa: PLR2004
            troubles[at] = random.choice(kinds)
    if _has_luck(extra, 0.15):
        troubles[extra.randrange(6)] = "context_overflow"
    elif _has_luck(extra, 0.1):  # Nearly every request fails for a while.
        bad: tuple[RequestTrouble, ...] = ("server", "drop", "cut")
        troubles.update({at: extra.choice(bad) for at in range(20) if _has_luck(extra, 0.9)})
    return troubles


def _draw_crashes(random: Random) -> tuple[CrashPoint, ...]:
    count = random.choice((0, 0, 1, 1, 1, 2, 3))
    return tuple((random.randint(1, 25), random.choice(("before", "after"))) for _ in range(count))
