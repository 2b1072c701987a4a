"""The judging of one call and of one reply: what the loop asks of repair, schema and gate.

A gate that breaks is a gate that is shut. Whatever it gives is checked before it counts.
"""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from windlass.core.events import CallJudged
from windlass.core.json_repair.arguments import Refused, prepare
from windlass.core.messages import ToolCall, ToolSpec
from windlass.core.moves import Hear, Proposed
from windlass.core.state import State
from windlass.core.suggestions import did_you_mean
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Misfit, Modify, Verdict, sound
from windlass.ports import Request, World

BROKEN = (Exception, asyncio.CancelledError)
"""What a gate may fail with."""
NO_VERDICT = "the gate gave no verdict", "gate-failure"


async def judge(
    proposed: Proposed,
    names: Sequence[str],
    world: World,
    state: State,
) -> CallJudged:
    call, spec = proposed.call, proposed.spec
    if spec is None:
        message = f"There is no tool {call.name!r}.{did_you_mean(call.name, names)}"
        return CallJudged(call.id, Invalid("unknown_tool", message))
    if proposed.cut and spec.effect != "read":
        # What was to follow is not known, and an effect cannot be taken back.
        message = f"{call.name}: your reply was cut off by its length. Make the call anew, whole."
        return CallJudged(call.id, Invalid("arguments_truncated", message))
    prepared = prepare(call.arguments, world.schemas[spec.name], cut=proposed.cut)
    if isinstance(prepared, Refused):
        message = f"{call.name}: {prepared.message}"
        return CallJudged(call.id, Invalid(prepared.code, message))
    arguments = prepared.arguments
    verdict = await _verdict(_request(call, spec, arguments, world, state), world)
    given = verdict.arguments if isinstance(verdict, Modify | Ask) else None
    counts = arguments if given is None else given
    return CallJudged(
        call.id,
        verdict,
        arguments if prepared.changes else None,
        prepared.changes,
        world.tools.resource(call.name, counts),
    )


def _request(
    call: ToolCall, spec: ToolSpec, arguments: dict[str, Any], world: World, state: State
) -> Request:
    run = state.run
    return Request(
        session=state.session,
        call_id=call.id,
        tool=spec,
        # A gate that scribbles on what it is shown has changed nothing: that is for `Modify`.
        arguments=deepcopy(arguments),
        labels=state.labels,
        sources=dict(state.sources),
        grants=state.grants,
        agent=world.agent,
        caller=run.caller if run else "",
        context=deepcopy(run.context) if run else {},
    )


async def _verdict(request: Request, world: World) -> Verdict:
    if world.gate is None:
        return Allow("no gate is set")
    try:
        verdict = await world.gate.judge(request)
    except BROKEN as error:
        return _shut_by_itself(error)
    if not sound(verdict, Verdict):
        return Deny(*NO_VERDICT)
    given = verdict.arguments if isinstance(verdict, Modify | Ask) else None
    schema = world.schemas.get(request.tool.name)
    if given is not None and schema is not None and not schema.accepts(given):
        return Deny("the gate's own arguments do not fit the tool", verdict.rule)
    return verdict


def _shut_by_itself(error: BaseException) -> Deny:
    """A gate that breaks is a gate that is shut; but a cancel of the run is no fault of its own."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return Deny(f"the gate failed: {type(error).__name__}", "gate-failure")


async def judge_reply(move: Hear, world: World, session: str) -> Allow | Deny | Misfit:
    """Whether a final reply fits the output type, and whether it may be said."""
    text = move.reply.text
    misfit = world.fit(text) if world.fit and move.whole else None
    if misfit is not None:
        return Misfit(misfit)
    if world.gate is None or not world.gate.judges_replies:
        return Allow()
    try:
        verdict = await world.gate.judge_reply(session, text)
    except BROKEN as error:
        return _shut_by_itself(error)
    return verdict if sound(verdict, Allow | Deny) else Deny(*NO_VERDICT)


RECALL = ToolSpec("recall", "Recalls what is known.", {"type": "object"}, "read")


async def may_recall(text: str, world: World, state: State) -> bool:
    """Whether what is known about a prompt may be looked up unasked: as a call of `recall`."""
    spec = (state.setup.tool("recall") if state.setup else None) or RECALL
    call = ToolCall("recall", spec.name)
    request = _request(call, spec, {"query": text}, world, state)
    return isinstance(await _verdict(request, world), Allow)
