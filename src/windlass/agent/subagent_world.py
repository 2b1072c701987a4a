"""How a sub-agent is held: by its caller's gate beside its own, and by whom its caller can ask.

The law: it may do nothing that its caller may not. So a question of its caller's gate is its
caller's to answer; where nobody can, the answer is no.
"""

from dataclasses import replace as with_fields

from msgspec.structs import replace

from windlass.agent import lazy_imports
from windlass.core.result import Question
from windlass.core.verdicts import Allow, Ask, Deny, PersonAnswer, Verdict
from windlass.ports import Approver, Gate, GateRequest, World

NOBODY_TO_ASK = "nobody is there to be asked"


def restrict_world(caller_world: World, own_world: World, name: str) -> World:
    """The world of an agent that works for another, and is called so by it."""
    gate = caller_world.gate
    if gate is not None and caller_world.approver is None:
        gate = DenyUnanswered(gate)
    approver = _ask_or_deny(caller_world.approver or own_world.approver, name)
    if gate is not None or own_world.gate is not None:
        own_world = replace(own_world, gate=lazy_imports.stricter(gate, own_world.gate))
    return replace(own_world, approver=approver)


class DenyUnanswered:
    """A gate whose questions nobody can be asked."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = gate.name

    @property
    def judges_replies(self) -> bool:
        return self.gate.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        verdict = await self.gate.judge(request)
        if not isinstance(verdict, Ask):
            return verdict
        return Deny(f"{NOBODY_TO_ASK}: {verdict.question}", verdict.rule or "unattended")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self.gate.judge_reply(session, text)


def _ask_or_deny(approver: Approver | None, name: str) -> Approver:
    """A sub-agent can ask whoever is there; it cannot leave its caller waiting for days."""

    async def ask(question: Question) -> PersonAnswer:
        named_question = with_fields(question, question=f"{name}: {question.question}")
        reply = await approver(named_question) if approver is not None else None
        return Deny(NOBODY_TO_ASK, "unattended") if reply is None else reply

    return ask
