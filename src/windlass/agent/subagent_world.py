"""The world of a sub-agent: its caller's gate beside its own.

The law: a sub-agent may do nothing that its caller may not. A question of either gate is for the
caller's approver; if nobody answers it there, the whole tree waits for the answer.
"""

from dataclasses import replace as with_fields

from msgspec.structs import replace

from windlass.agent import lazy_imports
from windlass.agent.approvals import call_approver
from windlass.core.result import Question
from windlass.core.verdicts import Allow, Ask, Deny, PersonAnswer, Verdict
from windlass.ports import Approver, Gate, GateRequest, World

CALLER_RULE = "caller: "
"""Begins the name of a rule of a caller's gate, where its question is not for the sub-agent."""


def restrict_world(
    caller_world: World, own_world: World, name: str, lineage: tuple[str, ...]
) -> World:
    """Return the world of a sub-agent, which its caller knows by this name.

    It has its own models and tools; journal, blobs, clock, governor and folders are its caller's.
    """
    caller_gate = caller_world.gate
    if caller_gate is not None and caller_world.approver is None:
        caller_gate = QuestionsForCaller(caller_gate)
    gate = own_world.gate
    if caller_gate is not None or gate is not None:
        gate = lazy_imports.combine_with_parent(caller_gate, gate)
    return replace(
        own_world,
        gate=gate,
        approver=_ask_for(caller_world.approver or own_world.approver, (*lineage, name)),
        journal=caller_world.journal,
        blobs=caller_world.blobs,
        clock=caller_world.clock,
        governor=caller_world.governor,
        folders=caller_world.folders,
        agent=name,
        lineage=lineage,
    )


class QuestionsForCaller:
    """The gate of a caller without an approver: its questions must not be answered below it."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = gate.name

    @property
    def judges_replies(self) -> bool:
        return self.gate.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        verdict = await self.gate.judge(request)
        if not isinstance(verdict, Ask) or CALLER_RULE in verdict.rule:
            return verdict
        # In the rule, which is on record: another process must know it as well.
        return replace(verdict, rule=f"{CALLER_RULE}{verdict.rule or self.name}")

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self.gate.judge_reply(session, text)


def _ask_for(approver: Approver | None, agents: tuple[str, ...]) -> Approver | None:
    """Return an approver that says which sub-agent asks; None if nobody can be asked here.

    It leaves the questions of a caller that has no approver open: they wait for a person.
    """
    if approver is None:
        return None

    async def ask(question: Question) -> PersonAnswer | None:
        if CALLER_RULE in question.rule:
            return None
        text = f"{agents[-1]}: {question.question}"
        named_question = with_fields(question, question=text, agents=agents)
        return await call_approver(approver, named_question)

    return ask
