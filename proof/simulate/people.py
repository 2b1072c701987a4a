"""A gate that judges as planned, and people who answer as planned."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

from proof.simulate.outside import OutsideWorld, PersonReply
from proof.simulate.plan_calls import CallPlan, ReplyJudgement
from windlass.core.question import Question
from windlass.core.verdicts import Allow, AllowAlways, Ask, Deny, Modify, PersonAnswer, Verdict
from windlass.ports import Clock, GateRequest

MODIFIED, ASKED_OTHER, ANSWERED_OTHER = 1000, 2000, 4000
"""Added to the number of a call when its arguments are changed: by the gate, by the question that
the gate asks, or by the person who answers it."""
SLOW_S = 2.0


class BrokenOnPurpose(RuntimeError):
    """A failure that the plan asks for."""


class NonsenseAnswer(str):
    """What is no answer and no verdict, although it looks like one."""

    __slots__ = ()


NONSENSE = cast("Any", NonsenseAnswer("yes"))


def is_unplanned(record: logging.LogRecord) -> bool:
    """Whether a message is about anything but an approver that is broken on purpose."""
    error = record.exc_info[1] if record.exc_info else None
    told = record.args if isinstance(record.args, tuple) else ()
    return not isinstance(error, BrokenOnPurpose) and NonsenseAnswer.__name__ not in told


class SimGate:
    """Judges as planned. A call that was modified once is not modified again."""

    name = "sim"

    def __init__(self, outside: OutsideWorld, clock: Clock) -> None:
        self._outside = outside
        self._clock = clock
        self.judges_replies = outside.plan.more.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        await asyncio.sleep(0.005)
        if "query" in request.arguments:  # The recall of knowledge, which is not in the plan.
            known = self._outside.plan.more.knowledge != "denied"
            return Allow("planned") if known else Deny("knowledge is not allowed", "planned")
        number = call_number(request.arguments)
        if request.tool.name.startswith("undo_"):
            return Allow("planned") if number % 7 else Deny("it stays", "planned")
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
                return self._make_question(call, None)
            case "ask_other":
                other = {"number": number + ASKED_OTHER} if number < ASKED_OTHER else None
                return self._make_question(call, other)
            case "raise":
                raise RuntimeError("the gate broke")
            case "nonsense":
                return NONSENSE

    def _make_question(self, call: CallPlan, arguments: dict[str, Any] | None) -> Ask:
        expires = None if call.expires_s is None else self._clock.now() + call.expires_s
        return Ask("May I?", "planned", expires, arguments)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        await asyncio.sleep(0.005)
        match self._planned_judgement(session, text):
            case "allow":
                return Allow("planned")
            case "deny":
                return Deny("this reply is not allowed", "planned")
            case "raise":
                raise RuntimeError("the gate broke")
            case "nonsense":
                return NONSENSE

    def _planned_judgement(self, session: str, text: str) -> ReplyJudgement:
        plan = self._outside.plan
        if session != plan.session:
            return "allow"
        for reply in plan.replies:
            if reply.text == text:
                return reply.judgement
        return "deny" if plan.more.denies_last else "allow"


class SimApprover:
    """A person who can be asked while a run goes on."""

    def __init__(self, outside: OutsideWorld) -> None:
        self._outside = outside

    async def __call__(self, question: Question) -> PersonAnswer | None:
        match self._outside.call_plan(call_number(question.arguments)).attention:
            case "now":
                return reply_to_question(self._outside, question)
            case "slow":
                await asyncio.sleep(SLOW_S)
                return reply_to_question(self._outside, question)
            case "never":
                await asyncio.sleep(0.1)
                return None
            case "raise":
                raise BrokenOnPurpose("the approver broke")
            case "nonsense":
                return NONSENSE


def reply_to_question(outside: OutsideWorld, question: Question) -> PersonAnswer:
    """Return the answer of a person, and record it."""
    number = call_number(question.arguments)
    reply = _planned_reply(outside, question, number)
    outside.replies.append(PersonReply(question.call_id, number, not isinstance(reply, Deny)))
    return reply


def _planned_reply(outside: OutsideWorld, question: Question, number: int) -> PersonAnswer:
    if question.question.endswith("Run it again?"):
        # The call in question may be one that undoes another.
        seen = (*outside.effects, *outside.undone)
        keys = (effect.key for effect in seen if effect.number == number)
        if any(key.endswith(f"/{question.call_id}") for key in keys):
            return Deny("I checked: it was done")
        return Allow("I checked: it was not done")
    match outside.call_plan(number).answer:
        case "yes":
            return Allow("a person")
        case "no":
            return Deny("a person said no")
        case "always":
            return AllowAlways()
        case "always_tool":
            return AllowAlways(question.tool)
        case "modify" if "number" not in question.arguments:
            # The plan is that of another call with this number. A task and code stay as they are.
            return Allow("a person")
        case "modify":
            return Modify({"number": number % 1000 + ANSWERED_OTHER}, "rather this", "a person")


def call_number(arguments: Mapping[str, Any]) -> int:
    """Return the number of the planned call; a helper has it in its task, code in itself."""
    if "code" in arguments:
        return int(str(arguments["code"]).removeprefix("Code "))
    if "task" in arguments:
        return int(str(arguments["task"]).removeprefix("Task "))
    return int(arguments["number"])
