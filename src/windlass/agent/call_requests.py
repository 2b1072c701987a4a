"""What a running call asks for: an answer of a person, or a reply of the run's model.

Invariant: a model writes for a call only if the gate or a person allows it. It does so in a child
session of the call, without tools, within what the call may spend, and the run pays for it. If the
call runs again after a crash, what was written for the same request counts.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.agent.approvals import ask_approver
from windlass.agent.child_driving import CallSession
from windlass.agent.child_sessions import (
    as_subagent_charges,
    find_model_sessions,
    limit_spending,
    model_session_name,
)
from windlass.agent.event_stream import RunObserver
from windlass.agent.openings import find_start
from windlass.agent.options import AgentParts
from windlass.core.decide.reserving import remaining_amount
from windlass.core.errors import ConfigError
from windlass.core.limits import Limits
from windlass.core.messages import Charge, Ledger, ToolCall
from windlass.core.question import Question
from windlass.core.result import RunResult, build_result
from windlass.core.schema import JsonSchema
from windlass.core.setup import ModelInfo, Setup, digest
from windlass.core.state import State
from windlass.core.verdicts import Allow, AllowAlways, Ask, Deny, Modify, PersonAnswer
from windlass.ports import CallContext, CallerRun, ModelRequest, WrittenReply
from windlass.runtime.judging import judge_request
from windlass.tools.toolbox import Toolbox

MODEL_REQUESTS_MAX = 10
"""Replies that a model writes for one call at most."""
REQUEST_LIMITS = Limits(steps=3)
"""A reply that the gate denies is written again, at most so often."""
NOBODY_ASKED = "nobody could be asked for permission"


class ModelRequestRefused(Exception):
    """The request may not be made. The text says why."""


class LiveCallRequests:
    """What one running call asks for."""

    def __init__(
        self,
        caller: CallerRun,
        call_id: str,
        call: CallContext,
        observer: RunObserver | None = None,
    ) -> None:
        self._caller = caller
        self._call_id = call_id
        self._call = call
        self._observer = observer
        self._one_at_a_time = asyncio.Lock()

    async def ask_person(self, question: Question) -> PersonAnswer | None:
        world = self._caller.world
        if world.approver is None:
            return None
        _, reply = await ask_approver(world.approver, question, world.clock.now())
        if isinstance(reply, BaseException):
            return Deny("the person ended the program", "approver")
        return reply

    async def ask_model(self, request: ModelRequest) -> WrittenReply:
        # Sessions are numbered, so that two requests at once must not take the same number.
        async with self._one_at_a_time:
            try:
                return await self._write_reply(request)
            except (ModelRequestRefused, ConfigError) as refusal:
                return WrittenReply("", refusal=str(refusal))

    async def _write_reply(self, request: ModelRequest) -> WrittenReply:
        name = f"{self._call.session}/{self._call_id}"
        sessions = await find_model_sessions(self._caller.world.journal, name)
        masked = self._caller.mask.mask_text(msgspec.json.encode(request.arguments).decode())
        key = f"{digest(masked)} {request.occurrence}"
        earlier = next((state for state in sessions if find_start(state, key)), None)
        paid = _charges_of(state for state in sessions if state is not earlier)
        if earlier is not None and not earlier.is_active:
            self._call.report_charges((*paid, *_charges_of((earlier,))))
            return _make_reply(build_result(earlier, recorded=True))
        state, rule = earlier, ""
        if state is None:
            if len(sessions) >= MODEL_REQUESTS_MAX:
                often = f"a call may ask a model at most {MODEL_REQUESTS_MAX} times"
                raise ModelRequestRefused(often)
            state = State(model_session_name(name, len(sessions) + 1))
            arguments, rule = await self._permit(request, state.session)
            request = replace(request, arguments=arguments)
        child = self._make_child(request, paid)
        task = replace(
            child.make_task(request.arguments["prompt"]),
            context={"allowed_by": rule},
            labels=("untrusted",),
            folder=None,
            key=key,
        )
        return _make_reply(await child.work(state, task, paid))

    async def _permit(self, request: ModelRequest, session: str) -> tuple[Mapping[str, Any], str]:
        """Return what may be asked for, and the rule that allows it. Raises ModelRequestRefused."""
        name = request.tool.name
        encoded = msgspec.json.encode(request.arguments).decode()
        call = ToolCall(session.rpartition("/")[2], name, encoded)
        verdict = await judge_request(call, request, self._caller.world, self._caller.read_state())
        arguments = request.arguments
        if isinstance(verdict, Ask) and verdict.approvals:
            raise ModelRequestRefused("people have to agree to it, and a running call cannot wait")
        if isinstance(verdict, Ask):
            arguments = verdict.arguments or arguments
            question = Question(
                self._caller.read_state().session,
                call.id,
                name,
                dict(arguments),
                verdict.question,
                digest(dict(arguments)),
                verdict.rule,
                verdict.expires_at,
                is_live=True,
            )
            verdict = await self.ask_person(question)
        match verdict:
            case None:
                raise ModelRequestRefused(NOBODY_ASKED)
            case Deny(reason=reason):
                raise ModelRequestRefused(reason)
            case Modify(arguments=changed) if not JsonSchema(request.tool.parameters).accepts(
                changed
            ):
                raise ModelRequestRefused("the arguments that were put in do not fit")
            case Modify(arguments=changed):
                return changed, verdict.rule
            case Allow() | AllowAlways():
                return arguments, verdict.rule

    def _make_child(self, request: ModelRequest, paid: tuple[Charge, ...]) -> CallSession:
        """Make the session in which the model writes: no tools, and no person to ask."""
        caller = self._caller
        name = request.tool.name
        world = replace(
            caller.world,
            tools=Toolbox(()),
            schemas={},
            approver=None,
            recall=None,
            check_output=None,
            agent=name,
            lineage=(*caller.world.lineage, caller.world.agent),
        )
        setup = self._make_setup(request, paid)
        parts = AgentParts(world, setup, caller.mask, observer=self._observer)
        return CallSession(name, parts, caller, self._call, self._call_id)

    def _make_setup(self, request: ModelRequest, paid: tuple[Charge, ...]) -> Setup:
        """Return the setup of a request. Raises ConfigError if nothing is left to spend."""
        caller = self._caller.read_state().setup
        if caller is None:
            raise ModelRequestRefused("the run has not begun")
        ledger = Ledger()
        for charge in paid:
            ledger = ledger.add(charge)
        left = remaining_amount(self._call.remaining_now(), ledger)
        gate = self._caller.world.gate
        judges_replies = gate is not None and gate.judges_replies
        tokens_max = request.arguments.get("max_tokens")
        setup = Setup(
            model=_cap_output(caller.model, tokens_max),
            fallbacks=tuple(_cap_output(model, tokens_max) for model in caller.fallbacks),
            instructions=request.arguments.get("instructions", ""),
            gate=gate.name if gate else "",
            judge_replies=judges_replies,
            withhold_replies=judges_replies,
            limits=limit_spending(REQUEST_LIMITS, left),
            budgets=caller.budgets,
            retries=caller.retries,
        )
        return self._caller.mask.mask_setup(setup)


def _cap_output(model: ModelInfo, tokens_max: int | None) -> ModelInfo:
    if tokens_max is None:
        return model
    return replace(model, output_max=min(model.output_max, tokens_max))


def _charges_of(states: Iterable[State]) -> tuple[Charge, ...]:
    charges = (state.run.ledger.charges for state in states if state.run)
    return as_subagent_charges(tuple(chain.from_iterable(charges)))


def _make_reply(result: RunResult[Any]) -> WrittenReply:
    if not result.completed:
        return WrittenReply(
            "", refusal=f"the model wrote nothing: {result.outcome}, {result.reason}"
        )
    model = result.ledger.charges[-1].model if result.ledger.charges else ""
    return WrittenReply(result.text, model)
