"""The planned replies and calls, and the fate of each call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, NamedTuple

from windlass.core.messages import Effect

CallJudgement = Literal["allow", "deny", "modify", "ask", "ask_other", "raise", "nonsense"]
ReplyJudgement = Literal["allow", "deny", "raise", "nonsense"]
"""How the gate judges a final reply."""
ToolManner = Literal["value", "raise", "slow", "stubborn"]
PlannedAnswer = Literal["yes", "no", "always", "always_tool", "modify"]
ApproverManner = Literal["now", "slow", "never", "raise", "nonsense"]

EFFECTS: dict[str, Effect] = {
    "look": "read",
    "peek": "read",
    "put": "idempotent",
    "send": "write",
    "pay": "write",
}
HELPER = "helper"
CODE = "code"
"""A tool whose code makes calls."""
INNER_FROM = 100
"""The numbers of the calls of a helper begin here."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """One call of a reply, and its fate."""

    tool: str
    number: int
    arguments: str
    judgement: CallJudgement
    answer: PlannedAnswer
    manner: ToolManner
    attention: ApproverManner = "now"
    """What an approver who is present does with the question."""
    expires_s: float | None = None
    """Seconds until its question expires."""
    mistaken: bool = False
    """The first answer to it carries the digest of different arguments."""
    task: tuple["ReplyPlan", ...] = ()
    """The replies of the helper that works on it, or the calls of its code."""


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """One whole reply of the model."""

    text: str
    thinking: str
    calls: tuple[CallPlan, ...]
    stop: Literal["end", "length", "refusal"]
    judgement: ReplyJudgement = "allow"


class ScriptTraits(NamedTuple):
    """Traits of a whole script."""

    helped: bool
    asks: bool
    """The gate asks often, and people answer for more than one call."""
    circles: bool
    """The model repeats the same call."""


def draw_reply(
    random: Random, extra: Random, at: int, before: Sequence[ReplyPlan], traits: ScriptTraits
) -> ReplyPlan:
    """Draw the next reply of a script."""
    count = random.choice((0, 0, 1, 1, 2, 3, 7)) if at < 6 else 0  # noqa: PLR2004
    text = random.choice(("", f"Reply {at}. ", f"Reply {at}, at some length. " * 3))
    thinking = random.choice(("", "", f"Thought {at}."))
    calls = [_draw_call(random, extra, at * 10 + nth) for nth in range(count)]
    if traits.asks:
        calls = [_make_asked_about(extra, call) for call in calls]
    stop = random.choice(("end",) * 12 + ("length", "refusal"))
    earlier = [call for reply in before for call in reply.calls if call.tool in EFFECTS]
    calls = _vary_calls(extra, calls, earlier, traits)
    judgement = extra.choice(("allow", "allow", "deny", "deny", "raise", "nonsense"))
    return ReplyPlan(text, thinking, tuple(calls), stop, judgement)


def _vary_calls(
    extra: Random, calls: list[CallPlan], earlier: list[CallPlan], traits: ScriptTraits
) -> list[CallPlan]:
    """Sometimes repeat an earlier call, or let a helper do the last one."""
    again = 0.5 if traits.asks else 0.15
    if calls and earlier and extra.random() < again:
        repeated = extra.choice(earlier)
        if extra.random() < 0.3:  # noqa: PLR2004 - or the same arguments for another tool
            repeated = replace(repeated, tool=extra.choice(tuple(EFFECTS)))
        return [repeated, *calls[1:]]
    if earlier and traits.circles:
        return earlier[:1]
    if calls and traits.helped and extra.random() < 0.5:  # noqa: PLR2004
        return [*calls[:-1], _make_helper_call(extra, calls[-1])]
    return calls


def draw_lookup(random: Random, number: int) -> CallPlan:
    """Draw a lookup that a prompt leads to."""
    judgement = random.choice(("allow", "allow", "deny", "ask", "raise"))
    manner = random.choice(("value", "value", "raise"))
    return CallPlan("look", number, "", judgement, "yes", manner)


def _draw_call(random: Random, extra: Random, number: int) -> CallPlan:
    tool = random.choice((*EFFECTS, *EFFECTS, "nothing"))
    whole = f'{{"number": {number}}}'
    broken = (f'{{"number": "{number}"}}', f"{{'number': {number},}}", '{"number": ', "[]", "")
    arguments = random.choice((whole,) * 12 + broken)
    judgement: CallJudgement = random.choice(
        ("allow",) * 8 + ("deny", "modify", "ask", "ask", "raise")
    )
    answer: PlannedAnswer = "yes" if random.random() < 0.8 else "no"  # noqa: PLR2004
    manner = random.choice(("value",) * 7 + ("raise", "slow", "slow", "stubborn"))
    if judgement == "ask" and extra.random() < 0.3:  # noqa: PLR2004
        judgement = "ask_other"
    elif judgement == "raise" and extra.random() < 0.5:  # noqa: PLR2004
        judgement = "nonsense"
    if answer == "yes" and extra.random() < 0.4:  # noqa: PLR2004
        answer = extra.choice(("always", "always_tool", "modify"))
    return CallPlan(
        tool=tool,
        number=number,
        arguments=arguments,
        judgement=judgement,
        answer=answer,
        manner=manner,
        attention=extra.choice(("now",) * 5 + ("slow", "slow", "never", "raise", "nonsense")),
        expires_s=extra.choice((None,) * 6 + (1.0, 60.0)),
        mistaken=extra.random() < 0.1,  # noqa: PLR2004
    )


def _make_asked_about(extra: Random, call: CallPlan) -> CallPlan:
    """Return the same call, but with a person who is asked about it."""
    judgement = extra.choice((call.judgement, "ask", "ask", "ask_other"))
    answer = extra.choice((call.answer, "always", "always_tool"))
    return replace(call, judgement=judgement, answer=answer, expires_s=None)


def _make_helper_call(extra: Random, call: CallPlan) -> CallPlan:
    """Return the same call, but to a helper."""
    first = INNER_FROM + call.number * 10
    replies = tuple(
        _draw_helper_reply(extra, first, at) for at in range(extra.choice((0, 1, 1, 2)))
    )
    return replace(
        call,
        tool=HELPER,
        arguments=f'{{"task": "Task {call.number}"}}',
        judgement=extra.choice(("allow",) * 6 + ("ask", "deny")),
        answer="yes" if call.answer == "modify" else call.answer,
        manner="value",
        task=replies,
    )


def add_code(random: Random, replies: Sequence[ReplyPlan]) -> tuple[ReplyPlan, ...]:
    """Return the same replies, but with code in place of some calls."""
    return tuple(
        replace(reply, calls=tuple(_vary_with_code(random, call) for call in reply.calls))
        for reply in replies
    )


def _vary_with_code(random: Random, call: CallPlan) -> CallPlan:
    if call.tool not in EFFECTS or random.random() < 0.5:  # noqa: PLR2004
        return call
    code = _make_helper_call(random, call)
    return replace(code, tool=CODE, arguments=f'{{"code": "Code {call.number}"}}')


def plan_helped_write(random: Random) -> ReplyPlan:
    """Return a reply with a write and a helper that writes as well, which nobody objects to."""
    tools = [name for name, effect in EFFECTS.items() if effect != "read"]

    def plan_write(number: int) -> CallPlan:
        arguments = f'{{"number": {number}}}'
        return CallPlan(random.choice(tools), number, arguments, "allow", "yes", "value")

    # These numbers are free: no other reply has so many calls.
    helped = plan_write(9)
    inner = INNER_FROM + helped.number * 10
    replies = [ReplyPlan("", "", (plan_write(inner + at),), "end") for at in range(2)]
    arguments = f'{{"task": "Task {helped.number}"}}'
    helper = replace(helped, tool=HELPER, arguments=arguments, task=tuple(replies))
    return ReplyPlan("", "", (plan_write(8), helper), "end")


def _draw_helper_reply(extra: Random, first: int, at: int) -> ReplyPlan:
    numbers = range(first + 3 * at, first + 3 * at + extra.choice((0, 1, 1, 2)))
    calls = (_draw_call(extra, extra, number) for number in numbers)
    # The reply of a helper always has text: an empty reply would be asked for again.
    return ReplyPlan(f"Help {first + at}. ", "", tuple(calls), "end")
