"""What a running call asks for: an answer of a person, or a reply of the run's model.

The law: a model writes for a call only if the gate or a person allows it. It does so in a session
of its own that belongs to the call, without tools, within what the call may spend, and the run pays
for it. If the call runs again after a crash, what was written for the same request counts.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from windlass.agent.approvals import ask_approver
from windlass.agent.child_sessions import (
    ChargesSoFar,
    as_subagent_charges,
    find_model_sessions,
    limit_spending,
    model_session_name,
)
from windlass.agent.openings import RunOpenings, RunTask, find_start
from windlass.core.decide.reserving import remaining_amount
from windlass.core.errors import ConfigError
from windlass.core.events import Event, Fact, NestedEvent
from windlass.core.limits import Limits
from windlass.core.messages import Charge, Ledger, TextPart, ToolCall
from windlass.core.result import Question, RunResult, build_result
from windlass.core.schema import JsonSchema
from windlass.core.secrets.mask import Mask
from windlass.core.setup import ModelInfo, Setup, digest
from windlass.core.state import State
from windlass.core.verdicts import Allow, AllowAlways, Ask, Deny, Modify, PersonAnswer
from windlass.ports import CallContext, CallerRun, ModelRequest, Watcher, World, WrittenReply
from windlass.runtime.driver import Opening, RunDriver
from windlass.runtime.judging import judge_request
from windlass.tools.toolbox import Toolbox

MODEL_REQUESTS_MAX = 10
"""Replies that a model writes for one call at most."""
REQUEST_LIMITS = Limits(steps=3)
"""A reply that the gate denies is written again, at most so often."""
NOBODY_ASKED = "nobody could be asked for permission"


class NestedRuns(Protocol):
    """What drives the session of a request."""

    def make_driver(
        self, session: str, opening: Opening, watcher: Watcher | None = None
    ) -> RunDriver: ...

    async def drive_to_end(self, driver: RunDriver) -> RunResult[Any]: ...


class ModelRequestRefused(Exception):
    """The request may not be made. The text says why."""


class LiveCallRequests:
    """What one running call asks for."""

    def __init__(
        self,
        caller: CallerRun,
        make_runs: Callable[[World, Setup, Mask], NestedRuns],
        call_id: str,
        call: CallContext,
    ) -> None:
        self._caller = caller
        self._make_runs = make_runs
        self._call_id = call_id
        self._call = call
        self._name = f"{call.session}/{call_id}"
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
        sessions = await find_model_sessions(self._caller.world.journal, self._name)
        masked = self._caller.mask.mask_text(msgspec.json.encode(request.arguments).decode())
        key = f"{digest(masked)} {request.occurrence}"
        earlier = next((state for state in sessions if find_start(state, key)), None)
        others = [state for state in sessions if state is not earlier]
        paid = tuple(charge for state in others for charge in _charges_of(state))
        if earlier is not None and not earlier.is_active:
            self._call.report_charges((*paid, *_charges_of(earlier)))
            return _make_reply(build_result(earlier, recorded=True))
        if earlier is not None:
            return await self._drive(request, earlier, self._open_earlier, paid)
        if len(sessions) >= MODEL_REQUESTS_MAX:
            raise ModelRequestRefused(f"a call may ask a model at most {MODEL_REQUESTS_MAX} times")
        session = model_session_name(self._name, len(sessions) + 1)
        arguments, rule = await self._permit(request, session)
        opening = partial(self._open_new, arguments=arguments, rule=rule, key=key)
        allowed = replace(request, arguments=arguments)
        return await self._drive(allowed, State(session), opening, paid)

    async def _permit(self, request: ModelRequest, session: str) -> tuple[Mapping[str, Any], str]:
        """Return what may be asked for, and the rule that allows it. Raises ModelRequestRefused."""
        name = request.tool.name
        encoded = msgspec.json.encode(request.arguments).decode()
        call = ToolCall(session.rpartition("/")[2], name, encoded)
        verdict = await judge_request(call, request, self._caller.world, self._caller.read_state())
        arguments = request.arguments
        if isinstance(verdict, Ask):
            arguments = verdict.arguments or arguments
            question = Question(
                call,
                dict(arguments),
                verdict.question,
                digest(dict(arguments)),
                verdict.expires_at,
                rule=verdict.rule,
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

    async def _drive(
        self,
        request: ModelRequest,
        state: State,
        opening: Callable[[State, RunOpenings], Sequence[Fact]],
        paid: tuple[Charge, ...],
    ) -> WrittenReply:
        setup = self._make_setup(request, paid)
        world = _restrict_world(self._caller.world, request.tool.name)
        openings = RunOpenings(setup, world, self._caller.mask, agent=request.tool.name)
        runs = self._make_runs(world, setup, self._caller.mask)
        driver = runs.make_driver(
            state.session,
            lambda found: opening(found, openings),
            partial(self._show_nested, request.tool.name, state.session),
        )
        self._call.report_charges(ChargesSoFar(driver, paid))
        result = await runs.drive_to_end(driver)
        self._call.report_charges((*paid, *as_subagent_charges(result.ledger.charges)))
        return _make_reply(result)

    def _open_new(
        self,
        state: State,
        openings: RunOpenings,
        *,
        arguments: Mapping[str, Any],
        rule: str,
        key: str,
    ) -> Sequence[Fact]:
        run = self._caller.read_state().run
        return openings.open_new(
            state,
            RunTask(
                prompt=(TextPart(arguments["prompt"]),),
                caller=run.caller if run else "",
                context={"allowed_by": rule},
                parent=self._name,
                labels=("untrusted",),
                key=key,
            ),
        )

    def _open_earlier(self, state: State, openings: RunOpenings) -> Sequence[Fact]:
        # Consent to a changed setup was given when the caller's run was resumed.
        return openings.open_continued(state, consent=True)

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

    def _show_nested(self, name: str, session: str, event: Event) -> None:
        self._caller.show_delta(NestedEvent(self._call_id, name, session, event))


def _restrict_world(world: World, name: str) -> World:
    """Return the world of a request: the same models and gate, no tools, and nobody to ask."""
    return replace(
        world,
        tools=Toolbox(()),
        schemas={},
        approver=None,
        recall=None,
        check_output=None,
        agent=name,
        lineage=(*world.lineage, world.agent),
    )


def _cap_output(model: ModelInfo, tokens_max: int | None) -> ModelInfo:
    if tokens_max is None:
        return model
    return replace(model, output_max=min(model.output_max, tokens_max))


def _charges_of(state: State) -> tuple[Charge, ...]:
    return as_subagent_charges(state.run.ledger.charges) if state.run else ()


def _make_reply(result: RunResult[Any]) -> WrittenReply:
    if not result.completed:
        return WrittenReply(
            "", refusal=f"the model wrote nothing: {result.outcome}, {result.reason}"
        )
    model = result.ledger.charges[-1].model if result.ledger.charges else ""
    return WrittenReply(result.text, model)
