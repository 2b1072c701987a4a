"""What is going to happen in one simulated session: everything is drawn here, before it starts."""

from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Literal

from proof.simulate.plan_calls import EFFECTS, HELPER, CallPlan, ReplyPlan, ScriptTraits
from proof.simulate.plan_calls import draw_lookup as _lookup
from proof.simulate.plan_calls import draw_reply as _reply
from windlass.core.faults import FaultKind
from windlass.core.messages import Effect

__all__ = [
    "EFFECTS",
    "HELPER",
    "CallPlan",
    "Effect",
    "ReplyPlan",
    "RequestTrouble",
    "SessionPlan",
    "draw_plan",
]

RequestTrouble = FaultKind | Literal["drop", "cut", "stall", "slow"]
CrashPoint = tuple[int, Literal["before", "after"]]
KNOWLEDGE_KINDS = ("something", "something", "nothing", "fails", "denied")
IntrusionKind = Literal["resume", "run", "steer", "abandon"]


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """A session: one prompt or two, and the world that it happens in."""

    seed: int
    runs: int
    replies: tuple[ReplyPlan, ...]
    troubles: dict[int, RequestTrouble]
    """By the number of the request."""
    crashes: tuple[CrashPoint, ...]
    """One for each process that dies: at which of its writes, and on which side of it."""
    cancel_after_s: float | None
    outer_cancel: bool
    """The caller is cancelled, instead of the run being told."""
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
    """Sessions at the same time, on the same journal and the same budget."""

    @property
    def calls(self) -> dict[int, CallPlan]:
        """Every call that may be made, by its number."""
        made = [call for reply in self.replies for call in reply.calls]
        inner = [one for call in made for reply in call.task for one in reply.calls]
        return {call.number: call for call in (*self.more.lookups, *made, *inner)}

    @property
    def depends_on_time(self) -> bool:
        """Whether when a thing happens decides what happens."""
        more, calls = self.more, self.calls.values()
        money = self.usd_max is not None or more.session_usd or more.budget_usd
        moments = self.cancel_after_s is not None or self.seconds_max is not None or more.steers
        expiring = any(call.expires_s is not None for call in calls)
        return bool(self.troubles or money or moments or more.steers_between or expiring)


@dataclass(frozen=True, slots=True)
class PlanExtras:
    """The part of a plan that only some sessions have."""

    judges_replies: bool = False
    denies_last: bool = False
    """The word after the script is denied too, so that the run ends by that."""
    attended: bool = False
    """Somebody is there to be asked while the run goes on."""
    answers_apart: bool = False
    """Answers are written by a process that has the journal and no agent."""
    picks: tuple[int, ...] = (0,)
    """Which of the questions is answered first."""
    steers: tuple[tuple[int, float], ...] = ()
    """In which process a person says something, and when."""
    steers_between: tuple[int, ...] = ()
    """Before which process a person says something while nobody drives."""
    intrusions: tuple[tuple[int, float, IntrusionKind], ...] = ()
    """In which process a second one tries to drive the session too, when, and how."""
    window: int | None = None
    """Tokens to stay within."""
    provider_window: int | None = None
    """Tokens past which the provider refuses a prompt."""
    summaries: tuple[Literal["good", "empty", "fails"], ...] = ("good",)
    pinned: tuple[bool, ...] = (False, False)
    knowledge: Literal["none", "something", "nothing", "fails", "denied"] = "none"
    lookups: tuple[CallPlan, ...] = ()
    """What the prompts speak of."""
    session_steps: int | None = None
    session_usd: Decimal | None = None
    budget_usd: Decimal | None = None
    """What all sessions on the journal may spend together."""
    helped: bool = False
    """There is an agent that works for this one."""
    hidden_tokens: int = 0
    """What a whole reply is billed for beside what it shows, as for reasoning."""
    masked: bool = False
    """With the mask for secrets that an agent has unless told."""


def draw_plan(seed: int) -> SessionPlan:
    """The session of a seed."""
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
    calm = random.random() < 0.3  # noqa: PLR2004 - some sessions must go well to show what is wrong
    extra = Random(f"{seed} more of {session}")
    helped = extra.random() < 0.2  # noqa: PLR2004
    return SessionPlan(
        seed=seed,
        runs=random.choice((1, 1, 2)),
        replies=_draw_replies(random, extra, helped=helped),
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
        more=_draw_extras(extra, budget, helped=helped),
        session=session,
        beside=beside,
    )


def _draw_extras(random: Random, budget: Decimal | None, *, helped: bool) -> PlanExtras:
    judges, tight = _has_luck(random, 0.15), _has_luck(random, 0.35)
    return PlanExtras(
        judges_replies=judges,
        denies_last=judges and _has_luck(random, 0.5),
        attended=_has_luck(random, 0.4),
        answers_apart=_has_luck(random, 0.4),
        picks=tuple(random.randrange(4) for _ in range(5)),
        steers=_draw_moments(random) if _has_luck(random, 0.2) else (),
        steers_between=tuple(at for at in range(1, 5) if _has_luck(random, 0.05)),
        intrusions=_draw_intrusions(random) if _has_luck(random, 0.08) else (),
        window=random.choice((80, 150, 300)) if tight else None,
        provider_window=random.choice((60, 150)) if _has_luck(random, 0.05) else None,
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


def _draw_replies(random: Random, extra: Random, *, helped: bool) -> tuple[ReplyPlan, ...]:
    made = list[ReplyPlan]()
    traits = ScriptTraits(helped, asks=_has_luck(extra, 0.1), circles=_has_luck(extra, 0.05))
    for at in range(random.randint(1, 7)):
        made.append(_reply(random, extra, at, made, traits))
    return tuple(made)


def _has_luck(random: Random, share: float) -> bool:
    return random.random() < share


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
    elif _has_luck(extra, 0.1):  # A bad day: nothing works for a while.
        bad: tuple[RequestTrouble, ...] = ("server", "drop", "cut")
        troubles.update({at: extra.choice(bad) for at in range(20) if _has_luck(extra, 0.9)})
    return troubles


def _draw_crashes(random: Random) -> tuple[CrashPoint, ...]:
    count = random.choice((0, 0, 1, 1, 1, 2, 3))
    return tuple((random.randint(1, 25), random.choice(("before", "after"))) for _ in range(count))
