"""Judging one call or one reply: argument repair, schema and gate, in this order.

Invariant: a gate that fails denies. What a gate returns is checked before it counts.
"""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.core.decide.scheduling import repeats_write
from windlass.core.events import CallJudged, KnowledgeRecalled
from windlass.core.messages import ToolCall, ToolSpec
from windlass.core.moves import JudgeReply, ProposedCall
from windlass.core.schema import JsonSchema
from windlass.core.setup import OUTPUT_KEY
from windlass.core.state import CallState, State, find_call
from windlass.core.suggestions import find_near_names, suggest_names
from windlass.core.tool_search import CALL_SPEC
from windlass.core.verdicts import (
    Allow,
    Ask,
    Deny,
    InvalidCall,
    Modify,
    OutputMismatch,
    Verdict,
    is_sound_verdict,
    stamp_question,
)
from windlass.logs import get_logger
from windlass.ports import Gate, GateRequest, ModelRequest, PreviewingTools, World
from windlass.runtime import lazy_imports

_log = get_logger(__name__)
RECALL_TIMEOUT_S = 10.0
"""How long a run waits for the knowledge about its prompt."""
GATE_FAILURES = (Exception, asyncio.CancelledError)
"""What a gate may fail with: it may also cancel itself, for example with its own timeout."""
NO_GATE = Allow("no gate is set")
HOPELESS_RULE = "would-fail"
"""The rule of a denial that no gate and no person decided."""
NO_VERDICT = Deny("the gate did not return a verdict", "gate-failure")


async def judge_call(
    proposed_call: ProposedCall,
    tool_names: Sequence[str],
    world: World,
    state: State,
) -> CallJudged:
    """Return the verdict on a call, as the fact to record.

    A call whose tool does not exist or whose arguments do not fit never gets to the gate.
    """
    call = proposed_call.call
    spec = proposed_call.spec
    if spec is None:
        return CallJudged(call.id, _unknown_tool(call, tool_names))
    refusal = _refuse_call(proposed_call, spec)
    if refusal is not None:
        return CallJudged(call.id, refusal)
    return await judge_known_call(call, spec, world, state, cut=proposed_call.maybe_cut_off)


async def judge_known_call(
    call: ToolCall, spec: ToolSpec, world: World, state: State, *, cut: bool = False
) -> CallJudged:
    """Return the verdict on a call of a tool that exists, from the arguments that its model wrote.

    `cut`: the end of the reply may be missing.
    """
    prepared = lazy_imports.prepare_arguments(call.arguments, world.schemas[spec.name], cut=cut)
    if isinstance(prepared, lazy_imports.RefusedArguments):
        message = f"{call.name}: {prepared.message}"
        return CallJudged(call.id, InvalidCall(prepared.code, message))
    arguments = prepared.arguments
    if repeats_write(state, call.id, spec, arguments):
        return CallJudged(call.id, _repeated_write(call))
    verdict: Verdict = NO_GATE
    if world.gate is not None:
        request = _gate_request(call, spec, arguments, world, state)
        verdict = await _ask_gate(world.gate, request, world)
    known = find_call(state, call.id)
    if known is not None and known.imported and not isinstance(verdict, Deny | Ask):
        verdict = _ask_about_imported(verdict, known)
    effective_arguments = _new_arguments(verdict)
    if effective_arguments is None:
        effective_arguments = arguments
    if isinstance(verdict, Ask):
        verdict = await _refuse_if_hopeless(verdict, call, effective_arguments, world)
    # Named also if they replace those of a verdict that is not believed.
    is_judged_again = known is not None and known.arguments is not None
    return CallJudged(
        call.id,
        verdict,
        arguments if prepared.changes or is_judged_again else None,
        prepared.changes,
        world.tools.resource_of(call.name, effective_arguments),
    )


async def _refuse_if_hopeless(
    question: Ask, call: ToolCall, arguments: dict[str, Any], world: World
) -> Ask | Deny:
    """Return a denial instead of a question about a call that cannot succeed as things are now.

    No person should have to judge an edit whose text is not in the file: the model gets the error
    at once.
    """
    if not isinstance(world.tools, PreviewingTools):
        return question
    # A copy, as for a gate: what was asked about must be what runs.
    preview = await world.tools.preview(call.name, deepcopy(arguments))
    if preview is None or not preview.would_fail:
        return question
    return Deny(preview.note, HOPELESS_RULE)


def _refuse_call(proposed_call: ProposedCall, spec: ToolSpec) -> InvalidCall | None:
    """Return why a call cannot be made, whatever its arguments are; None if it can be."""
    if (spec.name, spec.description) == (CALL_SPEC.name, CALL_SPEC.description):
        # What is inside could be read otherwise, and would be judged in its place.
        message = f'{spec.name}: pass one JSON object: {{"name": …, "arguments": {{…}}}}.'
        return InvalidCall("invalid_arguments", message)
    if proposed_call.calls_max is not None:
        message = (
            f"A reply may make at most {proposed_call.calls_max} calls. This call was beyond that "
            "and did not run. If it is still needed, make it in your next reply."
        )
        return InvalidCall("too_many_calls", message)
    if proposed_call.maybe_cut_off and spec.effect != "read":
        # The missing part of the call is not known, and an effect cannot be taken back.
        message = f"{spec.name}: your reply was cut off at its length limit. Repeat the whole call."
        return InvalidCall("arguments_truncated", message)
    return None


def _repeated_write(call: ToolCall) -> InvalidCall:
    message = (
        f"{call.name} was not executed again: it has run with these arguments, and you have its "
        "result above. Answer the user now, in a sentence, with that result."
    )
    return InvalidCall("repeated_call", message)


def _unknown_tool(call: ToolCall, tool_names: Sequence[str]) -> InvalidCall:
    name = call.name
    if not find_near_names(name, tool_names):
        # Some models write a namespace before it: functions.lookup.
        name = name.rpartition(".")[2]
    message = f"There is no tool {call.name!r}.{suggest_names(name, tool_names)}"
    return InvalidCall("unknown_tool", message)


def _gate_request(
    call: ToolCall, spec: ToolSpec, arguments: dict[str, Any], world: World, state: State
) -> GateRequest:
    run = state.run
    return GateRequest(
        session=state.session,
        call_id=call.id,
        tool=spec,
        # A copy: a gate changes arguments by returning `Modify`, never by writing into these.
        arguments=deepcopy(arguments),
        labels=state.labels,
        sources=dict(state.sources),
        grants=state.grants,
        agent=world.agent,
        caller=run.caller if run else "",
        context=deepcopy(run.context) if run else {},
        folder=str(world.find_folder(state.folder)) if state.folder else "",
    )


async def judge_request(
    call: ToolCall, request: ModelRequest, world: World, state: State
) -> Verdict:
    """Return the verdict on what a running call asks a model for: a question, if no gate decides.

    A gate's own arguments must fit as those of a call would.
    """
    if world.gate is None:
        return Ask(request.question, "no gate is set")
    gate_request = _gate_request(call, request.tool, dict(request.arguments), world, state)
    verdict = await _ask_gate(world.gate, gate_request, world)
    new_arguments = _new_arguments(verdict)
    if new_arguments is None or JsonSchema(request.tool.parameters).accepts(new_arguments):
        return verdict
    return Deny("the arguments that the gate put in do not fit", verdict.rule)


async def _ask_gate(gate: Gate, request: GateRequest, world: World) -> Verdict:
    try:
        verdict = await gate.judge(request)
    except GATE_FAILURES as error:
        return _deny_on_failure(error)
    if not is_sound_verdict(verdict, Verdict):
        return NO_VERDICT
    if isinstance(verdict, Ask) and request.tool.notice:
        verdict = replace(verdict, question=f"{verdict.question} {request.tool.notice}")
    if isinstance(verdict, Ask) and verdict.approvals:
        verdict = stamp_question(verdict, request.caller, request.context, world.clock.now())
    new_arguments = _new_arguments(verdict)
    schema = world.schemas.get(request.tool.name)
    if new_arguments is not None and schema is not None and not schema.accepts(new_arguments):
        return Deny("the arguments that the gate put in do not fit the tool", verdict.rule)
    return verdict


def _ask_about_imported(verdict: Verdict, call: CallState) -> Ask:
    """Return a question instead of a permission, because the call came with an imported session.

    Rules that allow such a call were written for what this agent's model proposes, and the call may
    have been written into the file by hand.
    """
    history = "It has not run here."
    if call.began:
        history = "It had started where it was exported, and may have taken effect there."
    question = f"{call.call.name} comes from a session that was imported. {history} Run it here?"
    return Ask(question, "imported", arguments=_new_arguments(verdict))


def _new_arguments(verdict: Verdict) -> dict[str, Any] | None:
    """Return the arguments that a verdict puts in place of the call's own, if any."""
    return verdict.arguments if isinstance(verdict, Modify | Ask) else None


def _deny_on_failure(error: BaseException) -> Deny:
    """Return the denial of a gate that failed. A cancel of the run itself is raised again."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return Deny(f"the gate failed: {type(error).__name__}", "gate-failure")


async def judge_reply(
    move: JudgeReply, world: World, state: State
) -> Allow | Deny | OutputMismatch:
    """Return whether a final reply fits the output type and may be shown."""
    text = move.reply.text
    mismatch = _find_mismatch(text, world, state) if move.check_output else None
    if mismatch is not None:
        return OutputMismatch(mismatch)
    if world.gate is None or not world.gate.judges_replies:
        return Allow()
    try:
        verdict = await world.gate.judge_reply(state.session, text)
    except GATE_FAILURES as error:
        return _deny_on_failure(error)
    return verdict if is_sound_verdict(verdict, Allow | Deny) else NO_VERDICT


def _find_mismatch(text: str, world: World, state: State) -> str | None:
    """Return what is wrong with a final reply: by the schema of the run, or the agent's type."""
    if state.run is not None and OUTPUT_KEY in state.run.context:
        schema = state.setup.output_schema if state.setup is not None else None
        return None if schema is None else lazy_imports.describe_misfit(schema, text)
    return None if world.check_output is None else world.check_output(text)


RECALL_SPEC = ToolSpec("recall", "Recalls what is known.", {"type": "object"}, "read")
"""What the gate judges when knowledge is looked up and the agent has no such tool of its own."""


async def may_recall(text: str, world: World, state: State) -> bool:
    """Return whether knowledge about a prompt may be looked up without a call of the model.

    The gate judges it as a call of the tool `recall`.
    """
    spec = (state.setup.find_tool("recall") if state.setup else None) or RECALL_SPEC
    call = ToolCall("recall", spec.name)
    if world.gate is None:
        return True
    request = _gate_request(call, spec, {"query": text}, world, state)
    return isinstance(await _ask_gate(world.gate, request, world), Allow)


async def recall_knowledge(text: str, world: World, state: State) -> KnowledgeRecalled:
    """Look up what is known about a prompt: nothing if the gate denies it or the lookup fails."""
    if world.recall is None or not await may_recall(text, world, state):
        return KnowledgeRecalled("")
    try:
        async with asyncio.timeout(RECALL_TIMEOUT_S):
            recalled = await world.recall(text)
        # The function is the user's own: what it returns is checked like anything from outside.
        return msgspec.convert(msgspec.to_builtins(recalled), KnowledgeRecalled)
    except Exception:  # noqa: BLE001 - a run can do without what it does not recall
        _log.warning("the knowledge lookup failed; the run goes on without it", exc_info=True)
        return KnowledgeRecalled("")
