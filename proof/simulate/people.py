"""Who says what may happen: a gate that judges as planned, and people who answer as planned."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from proof.simulate.outside import Outside, Said
from proof.simulate.plan_calls import CallPlan, Hearing
from windlass.core.result import Question
from windlass.core.verdicts import Allow, Always, Ask, Deny, Modify, Reply, Verdict
from windlass.ports import Clock, Request

MODIFIED, ASKED_OTHER, ANSWERED_OTHER = 1000, 2000, 4000
"""What is added to the number of a call by whoever changes its arguments."""
SLOW_S = 2.0
NONSENSE = cast("Any", "yes")


class SimGate:
    """Judges as planned; what was modified once stays as it is."""

    name = "sim"

    def __init__(self, outside: Outside, clock: Clock) -> None:
        self._outside = outside
        self._clock = clock
        self.judges_replies = outside.plan.more.judges_replies

    async def judge(self, request: Request) -> Verdict:
        await asyncio.sleep(0.005)
        if "query" in request.arguments:  # What is known is looked up unasked.
            known = self._outside.plan.more.knowledge != "denied"
            return Allow("planned") if known else Deny("it is not to be known", "planned")
        number = number_of(request.arguments)
        call = self._outside.call_plan(number)
        match call.judgement:
            case "allow":
                return Allow("planned")
            case "deny":
                return Deny("it is not allowed", "planned")
            case "modify" if number < MODIFIED:
                return Modify({"number": number + MODIFIED}, "to be safe", "planned")
            case "modify":
                return Allow("planned")
            case "ask":
                return self._ask(call, None)
            case "ask_other":
                other = {"number": number + ASKED_OTHER} if number < ASKED_OTHER else None
                return self._ask(call, other)
            case "raise":
                raise RuntimeError("the gate broke")
            case "nonsense":
                return NONSENSE

    def _ask(self, call: CallPlan, arguments: dict[str, Any] | None) -> Ask:
        expires = None if call.expires_s is None else self._clock.now() + call.expires_s
        return Ask("May I?", "planned", expires, arguments)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        await asyncio.sleep(0.005)
        match self._of_reply(session, text):
            case "allow":
                return Allow("planned")
            case "deny":
                return Deny("it is not to be said", "planned")
            case "raise":
                raise RuntimeError("the gate broke")
            case "nonsense":
                return NONSENSE

    def _of_reply(self, session: str, text: str) -> Hearing:
        plan = self._outside.plan
        if session != plan.session:
            return "allow"
        for reply in plan.replies:
            if reply.text == text:
                return reply.judgement
        return "deny" if plan.more.denies_last else "allow"


class Approver:
    """Somebody who is there to be asked while a run goes on."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def __call__(self, question: Question) -> Reply | None:
        match self._outside.call_plan(number_of(question.arguments)).attention:
            case "now":
                return reply_to(self._outside, question)
            case "slow":
                await asyncio.sleep(SLOW_S)
                return reply_to(self._outside, question)
            case "never":
                await asyncio.sleep(0.1)
                return None
            case "raise":
                raise RuntimeError("the approver broke")
            case "nonsense":
                return NONSENSE


def reply_to(outside: Outside, question: Question) -> Reply:
    """What a person answers, for the books as well."""
    number = number_of(question.arguments)
    reply = _reply(outside, question, number)
    outside.said.append(Said(question.call.id, number, not isinstance(reply, Deny)))
    return reply


def _reply(outside: Outside, question: Question, number: int) -> Reply:
    if question.question.endswith("Run it again?"):
        known = (one.key for one in outside.effects if one.number == number)
        done = any(key.endswith(f"/{question.call.id}") for key in known)
        return Deny("it was done, I looked") if done else Allow("it was not done, I looked")
    match outside.call_plan(number).answer:
        case "yes":
            return Allow("a person")
        case "no":
            return Deny("a person said no")
        case "always":
            return Always()
        case "always_tool":
            return Always(question.call.name)
        case "modify":
            return Modify({"number": number % 1000 + ANSWERED_OTHER}, "rather this", "a person")


def number_of(arguments: Mapping[str, Any]) -> int:
    """Which call of the plan it is; a helper's by its task."""
    if "task" in arguments:
        return int(str(arguments["task"]).removeprefix("Task "))
    return int(arguments["number"])
