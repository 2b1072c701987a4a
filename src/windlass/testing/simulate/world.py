"""The world outside of the simulated processes: it survives them, and it remembers what was done.

A process that has lost its power can do nothing more to it, whatever its tasks still try.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from windlass.core.budget import cost
from windlass.core.decide import Cleared
from windlass.core.errors import ModelError
from windlass.core.events import (
    CallDelta,
    Fact,
    Piece,
    ReplyEnd,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Assistant, Result, ToolSpec, Usage
from windlass.core.setup import ModelInfo, Price
from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict
from windlass.core.view import Prompt
from windlass.ports import CallContext, Journal, Reconciled, Request
from windlass.testing.faults import PowerCut
from windlass.testing.prompts import check_prompt
from windlass.testing.simulate.plan import EFFECTS, CallPlan, Plan, ReplyPlan, Trouble

PRICE = Price(Decimal(3), Decimal(15))
TOKEN_CHARS = 4
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
}


@dataclass(slots=True)
class Power:
    """Whether a process is alive, and at which append it dies."""

    cut: tuple[int, Literal["before", "after"]] | None = None
    appends: int = 0
    on: bool = True

    def use(self) -> None:
        if not self.on:
            raise PowerCut


@dataclass(slots=True)
class Served:
    """A request, as the provider's books have it."""

    step: int
    whole: bool
    usd: Decimal
    usage: Usage


@dataclass(slots=True)
class Outside:
    """What all processes of a session share."""

    plan: Plan
    effects: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    """What tools with effects did: key, tool, number."""
    reads: int = 0
    served: list[Served] = field(default_factory=list[Served])

    def call_plan(self, number: int) -> CallPlan:
        calls = (call for reply in self.plan.replies for call in reply.calls)
        return next(call for call in calls if call.number == number)


class SimModel:
    """Replies by how far the conversation has come, so that a repeated request gets the same."""

    info = ModelInfo("sim:model", price=PRICE, output_max=300)

    def __init__(self, outside: Outside, power: Power) -> None:
        self._outside = outside
        self._power = power

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Piece]:
        self._power.use()
        check_prompt(prompt)
        outside, plan = self._outside, self._outside.plan
        trouble = plan.troubles.get(len(outside.served))
        step = sum(isinstance(message, Assistant) for message in prompt.messages)
        served = Served(step, whole=False, usd=Decimal(0), usage=Usage())
        outside.served.append(served)
        await asyncio.sleep(0.05)
        self._power.use()
        _refuse(trouble)
        pieces = _pieces(reply_at(plan, step), prompt)
        self._bill(served, prompt, ())
        breaks_at = max(1, len(pieces) // 2) if trouble in ("drop", "cut", "stall") else None
        for at, piece in enumerate(pieces):
            if at == breaks_at:
                await _break(trouble)
                return
            if trouble == "slow" or at % 3 == 0:
                await asyncio.sleep(0.1)
                self._power.use()
            self._bill(served, prompt, pieces[: at + 1])
            yield piece
        served.whole = True
        if plan.usage_reported:
            yield UsageDelta(served.usage)
        yield ReplyEnd(_stop(reply_at(plan, step), prompt))

    def _bill(self, served: Served, prompt: Prompt, sent: Sequence[Piece]) -> None:
        size = sum(len(repr(message)) for message in prompt.messages) // 16
        output = sum(map(_tokens, sent))
        served.usage = Usage(size, min(prompt.output_max, output))
        served.usd = cost(PRICE, served.usage) or Decimal(0)


class SimTools:
    """Tools whose effects are on the world's record, under their keys."""

    specs = tuple(ToolSpec(name, name, SCHEMA, effect) for name, effect in EFFECTS.items())

    def __init__(self, outside: Outside, power: Power) -> None:
        self._outside = outside
        self._power = power

    def resource(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        # Payments to different accounts may go side by side.
        return f"account-{arguments['number'] % 3}" if name == "pay" else None

    async def run(self, cleared: Cleared, context: CallContext) -> Result:
        self._power.use()
        outside, number = self._outside, int(cleared.arguments["number"])
        manner = outside.call_plan(number % 1000).manner
        context.report("at work")
        await asyncio.sleep(0.01 * (1 + number % 3))
        self._power.use()
        if manner == "raise":
            raise OSError("the tool broke")
        self._do(cleared, number)
        if manner == "slow":
            await asyncio.sleep(2.0)
        elif manner == "stubborn":
            await _stubbornly(3.0)
        self._power.use()
        return told(cleared.call.name, number)

    def _do(self, cleared: Cleared, number: int) -> None:
        if cleared.spec.effect == "read":
            self._outside.reads += 1
            return
        known = cleared.key in {key for key, _, _ in self._outside.effects}
        if not (known and cleared.spec.effect == "idempotent"):
            self._outside.effects.append((cleared.key, cleared.call.name, number))

    async def reconcile(self, cleared: Cleared, context: CallContext) -> Reconciled:
        context.report("looking it up")
        await asyncio.sleep(0.02)
        self._power.use()
        if not self._outside.plan.reconciles:
            return "unknown"
        done = cleared.key in {key for key, _, _ in self._outside.effects}
        number = int(cleared.arguments["number"])
        return told(cleared.call.name, number) if done else "not_done"


class SimGate:
    """Judges as planned."""

    name = "sim"
    judges_replies = False

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def judge(self, request: Request) -> Verdict:
        await asyncio.sleep(0.005)
        number = int(request.arguments["number"])
        match self._outside.call_plan(number).judgement:
            case "allow":
                return Allow("planned")
            case "deny":
                return Deny("it is not allowed", "planned")
            case "modify":
                return Modify({"number": number + 1000}, "to be safe", "planned")
            case "ask":
                return Ask("May I?", "planned")
            case "raise":
                raise RuntimeError("the gate broke")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        raise AssertionError(f"no reply of {session} is to be judged: {text}")


class SimJournal:
    """A store that waits as a disk does, in a process that may die at an append."""

    def __init__(self, store: Journal, power: Power, wait_s: float) -> None:
        self._store = store
        self._power = power
        self._wait_s = wait_s

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        await asyncio.sleep(self._wait_s)
        self._power.use()
        return await self._store.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        return asyncio.create_task(self._append(session, facts), name="journal")

    async def _append(self, session: str, facts: Sequence[Fact]) -> None:
        power = self._power
        power.use()
        power.appends += 1
        at, side = power.cut or (0, "before")
        if power.appends == at and side == "before":
            power.on = False
        power.use()
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
            power.use()
        await self._store.append(session, facts)
        if power.appends == at:
            power.on = False
        power.use()


def told(tool: str, number: int) -> Result:
    """What a tool says of a number: never the same for two calls."""
    return Result.say("value", f"{tool} {number}")


def reply_at(plan: Plan, step: int) -> ReplyPlan:
    """The reply that a conversation with so many replies gets; past the script, a last word."""
    return plan.replies[step] if step < len(plan.replies) else ReplyPlan("Done.", "", (), "end")


def _pieces(reply: ReplyPlan, prompt: Prompt) -> list[Piece]:
    text, thinking = reply.text, reply.thinking
    pieces: list[Piece] = [ThinkingDelta(thinking)] if thinking else []
    pieces += [TextDelta(text[at : at + 5]) for at in range(0, len(text), 5)]
    calls = () if prompt.tool_choice == "none" else reply.calls
    # The fragments of all calls come interleaved, as some servers send them.
    pieces += [CallDelta(at, f"p{call.number}", call.tool) for at, call in enumerate(calls)]
    halves = [(at, call.arguments, len(call.arguments) // 2) for at, call in enumerate(calls)]
    pieces += [CallDelta(at, arguments=text[:half]) for at, text, half in halves]
    pieces += [CallDelta(at, arguments=text[half:]) for at, text, half in halves]
    return pieces


def _stop(reply: ReplyPlan, prompt: Prompt) -> Literal["end", "calls", "length", "refusal"]:
    return (
        "calls"
        if reply.stop == "end" and reply.calls and prompt.tool_choice != "none"
        else reply.stop
    )


def _tokens(piece: Piece) -> int:
    match piece:
        case TextDelta(text) | ThinkingDelta(text):
            return 1 + len(text) // TOKEN_CHARS
        case CallDelta():
            return len(piece.arguments) // TOKEN_CHARS
        case UsageDelta() | ReplyEnd():
            return 0


def _refuse(trouble: Trouble | None) -> None:
    if trouble not in (None, "drop", "cut", "stall", "slow"):
        raise ModelError(trouble, f"planned: {trouble}")


async def _break(trouble: Trouble | None) -> None:
    if trouble == "drop":
        raise ModelError("network", "planned: the connection was lost")
    if trouble == "stall":
        await asyncio.sleep(100_000)


async def _stubbornly(seconds: float) -> None:
    """Work on, cancelled or not."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while (left := ends - loop.time()) > 1e-6:  # noqa: PLR2004 - finer than a clock can tell
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
