"""What is going to happen in one simulated session: everything is drawn here, before it starts."""

from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Literal

from windlass.core.faults import FaultKind
from windlass.core.messages import Effect

Judgement = Literal["allow", "deny", "modify", "ask", "raise"]
Manner = Literal["value", "raise", "slow", "stubborn"]
Trouble = FaultKind | Literal["drop", "cut", "stall", "slow"]

EFFECTS: dict[str, Effect] = {
    "look": "read",
    "peek": "read",
    "put": "idempotent",
    "send": "write",
    "pay": "write",
}


@dataclass(frozen=True, slots=True)
class CallPlan:
    """One call of a reply, and what will become of it."""

    tool: str
    number: int
    arguments: str
    judgement: Judgement
    answer: bool
    manner: Manner


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """One whole reply of the model."""

    text: str
    thinking: str
    calls: tuple[CallPlan, ...]
    stop: Literal["end", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A session: one prompt or two, and the world that it happens in."""

    seed: int
    runs: int
    replies: tuple[ReplyPlan, ...]
    troubles: dict[int, Trouble]
    """By the number of the request."""
    crashes: tuple[tuple[int, Literal["before", "after"]], ...]
    """One for each process that dies: at which of its appends, and on which side of the write."""
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


def plan_of(seed: int) -> Plan:
    """The session of a seed."""
    random = Random(seed)
    calm = random.random() < 0.3  # noqa: PLR2004 - some sessions must go well to show what is wrong
    return Plan(
        seed=seed,
        runs=random.choice((1, 1, 2)),
        replies=tuple(_reply(random, at) for at in range(random.randint(1, 7))),
        troubles={} if calm else _troubles(random),
        crashes=_crashes(random),
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
    )


def _reply(random: Random, at: int) -> ReplyPlan:
    count = random.choice((0, 0, 1, 1, 2, 3, 7)) if at < 6 else 0  # noqa: PLR2004
    return ReplyPlan(
        text=random.choice(("", f"Reply {at}. ", f"Reply {at}, at some length. " * 3)),
        thinking=random.choice(("", "", f"Thought {at}.")),
        calls=tuple(_call(random, at * 10 + nth) for nth in range(count)),
        stop=random.choice(("end",) * 12 + ("length", "refusal")),
    )


def _call(random: Random, number: int) -> CallPlan:
    tool = random.choice((*EFFECTS, *EFFECTS, "nothing"))
    whole = f'{{"number": {number}}}'
    broken = (f'{{"number": "{number}"}}', f"{{'number': {number},}}", '{"number": ', "[]", "")
    return CallPlan(
        tool=tool,
        number=number,
        arguments=random.choice((whole,) * 12 + broken),
        judgement=random.choice(("allow",) * 8 + ("deny", "modify", "ask", "ask", "raise")),
        answer=random.random() < 0.8,  # noqa: PLR2004
        manner=random.choice(("value",) * 7 + ("raise", "slow", "slow", "stubborn")),
    )


def _troubles(random: Random) -> dict[int, Trouble]:
    kinds: tuple[Trouble, ...] = (
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
    return {at: random.choice(kinds) for at in range(20) if random.random() < 0.25}  # noqa: PLR2004


def _crashes(random: Random) -> tuple[tuple[int, Literal["before", "after"]], ...]:
    count = random.choice((0, 0, 1, 1, 1, 2, 3))
    return tuple((random.randint(1, 25), random.choice(("before", "after"))) for _ in range(count))
