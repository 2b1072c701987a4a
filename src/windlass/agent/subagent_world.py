"""How a sub-agent is held: by its caller's gate beside its own, and by whom its caller can ask.

The law: it may do nothing that its caller may not. So a question of its caller's gate is its
caller's to answer; where nobody can, the answer is no.
"""

from dataclasses import replace as with_fields

from msgspec.structs import replace

from windlass.agent.lazy_imports import stricter
from windlass.core.result import Question
from windlass.core.verdicts import Allow, Ask, Deny, Reply, Verdict
from windlass.ports import Approver, Gate, Request, World

NOBODY = "nobody is there to be asked"


def held_by(above: World, own: World, name: str) -> World:
    """The world of an agent that works for another, and is called so by it."""
    gate = above.gate
    if gate is not None and above.approver is None:
        gate = Unattended(gate)
    approver = _attended(above.approver or own.approver, name)
    return replace(own, gate=stricter(gate, own.gate), approver=approver)


class Unattended:
    """A gate whose questions nobody can be asked."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = gate.name

    @property
    def judges_replies(self) -> bool:
        return self.gate.judges_replies

    async def judge(self, request: Request) -> Verdict:
        verdict = await self.gate.judge(request)
        if not isinstance(verdict, Ask):
            return verdict
        return Deny(f"{NOBODY}: {verdict.question}", verdict.rule or "unattended")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self.gate.judge_reply(session, text)


def _attended(approver: Approver | None, name: str) -> Approver:
    """A sub-agent can ask whoever is there; it cannot leave its caller waiting for days."""

    async def ask(question: Question) -> Reply:
        named = with_fields(question, question=f"{name}: {question.question}")
        reply = await approver(named) if approver is not None else None
        return Deny(NOBODY, "unattended") if reply is None else reply

    return ask
