"""A tool call: start a run, follow it, and show what it asks as forms of the client.

Invariant: the run is a task of the service. What ends here is the wait for it, and nothing else,
unless the client asks for the run to be cancelled.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import NoBackChannelError

from windlass.core.events import StepProposed
from windlass.core.projection.view import Projection
from windlass.core.question import Question
from windlass.core.verdicts import Allow, AllowAlways, Deny, PersonAnswer
from windlass.logs import get_logger
from windlass.server.access import Caller
from windlass.server.answers import NO_REASON, question_id
from windlass.server.client_run import ClientRun
from windlass.server.errors import ApiError
from windlass.server.mcp.agent_tools import AgentToolInput, make_result
from windlass.server.run_controls import TAKEN_WAIT_S, StartRequest
from windlass.server.service import Service

ARGUMENTS_CHARS_MAX = 20_000
ANSWERS = ("allow", "always", "deny")
FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "May the call run?",
            "enum": list(ANSWERS),
            "enumNames": ["Yes, once", "Yes, always in this session", "No"],
        },
        "reason": {
            "type": "string",
            "title": "Reason",
            "description": "Told to the model if the call may not run.",
        },
    },
    "required": ["answer"],
}


def describe_question(question: Question) -> str:
    """Return exactly what would happen: the question, who asks, the rule, and all arguments."""
    lines = [question.question]
    if question.chain:
        lines.append(f"Asked by {' > '.join(question.chain)}.")
    if question.rule:
        lines.append(f"Rule: {question.rule}.")
    arguments = msgspec.json.format(msgspec.json.encode(question.arguments), indent=2).decode()
    lines += [f"Tool: {question.tool}", arguments]
    return "\n".join(lines)


def is_too_long(question: Question) -> bool:
    """Whether a form would hide the end of the call. Such a call is answered elsewhere."""
    return len(describe_question(question)) > ARGUMENTS_CHARS_MAX


def make_form(question: Question) -> types.ElicitRequest:
    """Return the request that shows a question to the user of a client."""
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(
            message=describe_question(question),
            requested_schema=FORM_SCHEMA,
        )
    )


def read_form(result: types.ElicitResult) -> PersonAnswer | None:
    """Return the answer in a form; None if it has none that fits, so that the question waits."""
    if result.action == "cancel":
        return None
    content = result.content or {}
    reason = content.get("reason")
    denial = Deny(reason if isinstance(reason, str) and reason.strip() else NO_REASON)
    if result.action == "decline":
        return denial
    match content.get("answer"):
        case "allow":
            return Allow()
        case "always":
            return AllowAlways()
        case "deny":
            return denial
        case _:
            return None


_log = get_logger(__name__)
RequestContext = ServerRequestContext[Any, Any]


def make_run_id(session: str, run: int) -> str:
    """Return what a client needs to find a run again, as an opaque text."""
    return f"{run}:{session}"


def split_run_id(run_id: str) -> tuple[str, int]:
    """Return the session and the number of a run; ("", 0) if it cannot be the id of one."""
    number, _, session = run_id.partition(":")
    return (session, int(number)) if number.isdecimal() and session else ("", 0)


async def find_call(service: Service, caller: Caller, run_id: str) -> ClientRun:
    """Return the run of a call. Raises ApiError 404 if it is not one of the caller's."""
    session, number = split_run_id(run_id)
    run = await ClientRun.find(service, caller, session, number) if session else None
    if run is None:
        raise ApiError(
            404, "run_not_found", f"There is no run {run_id[:100]!r}.", "Call the tool again."
        )
    return run


async def begin_call(
    service: Service, caller: Caller, agent: str, task: AgentToolInput, key: str = ""
) -> ClientRun:
    """Start a run, or find the last one of a session if there is no prompt.

    The same `key` never begins a second run. Raises ApiError, and WindlassError as `Agent.start`
    does.
    """
    if task.prompt.strip():
        request = StartRequest(prompt=task.prompt, agent=agent, session=task.session, key=key)
        return await ClientRun.start(service, caller, request)
    caller.require("watch")
    session = await service.find_session(caller, task.session)
    return ClientRun(service, session, session.view.run.number if session.view.run else 0)


async def cancel_call(run: ClientRun) -> None:
    """Cancel the run of a call, if it has not ended."""
    run.caller.require("start")
    if not run.has_ended:
        await run.cancel("cancelled by a client", TAKEN_WAIT_S)


async def follow_call(run: ClientRun) -> AsyncGenerator[Projection]:
    """Yield the session after each event that matters, up to the end of the run."""
    questions = run.view.questions
    if run.has_ended or questions:
        yield run.view
    async with aclosing(run.follow()) as events:
        async for event in events:
            is_asked = run.view.questions != questions
            if run.has_ended or isinstance(event, StepProposed) or is_asked:
                questions = run.view.questions
                yield run.view


async def answer_call(run: ClientRun, responses: types.InputResponses) -> frozenset[str]:
    """Give the answers that a client collected. One that came too late changes nothing.

    Returns the questions that its user was shown and did not answer.
    """
    run.caller.require("answer")
    unanswered = set[str]()
    for asked, response in responses.items():
        reply = read_form(response) if isinstance(response, types.ElicitResult) else None
        if reply is None:
            unanswered.add(asked)
        else:
            await run.answer(asked, reply)
    return frozenset(unanswered)


async def wait_for_call(
    ctx: RequestContext, run: ClientRun, unanswered: frozenset[str] = frozenset()
) -> types.CallToolResult | types.InputRequiredResult:
    """Wait for the end of a run, and have its questions answered by the client's user.

    Returns the result so far if the run waits for an answer that cannot be asked for here.
    """
    asked: set[str] = set()
    async with aclosing(follow_call(run)) as views:
        async for view in views:
            if run.has_ended:
                return make_result(view)
            await ctx.session.report_progress(float(view.seq), message=describe_progress(view))
            new = [one for one in view.questions if question_id(one) not in asked]
            if not new:
                continue
            if not unanswered.isdisjoint(map(question_id, new)):
                return make_result(view)  # A client that answers by itself would be asked forever.
            if not can_ask(ctx, run.caller) or any(map(is_too_long, new)):
                return make_result(view)
            if not ctx.session.can_send_request:
                # The client comes back with the answers.
                return types.InputRequiredResult(
                    input_requests=make_input_requests(view),
                    request_state=make_run_id(run.session.name, run.number),
                )
            asked.update(map(question_id, new))
            if not await _elicit(ctx, run, new):
                break
    return make_result(await run.read_again())


async def _elicit(ctx: RequestContext, run: ClientRun, questions: list[Question]) -> bool:
    """Ask the client's user; returns whether each question has an answer now.

    An answer that is given elsewhere meanwhile counts, and the form is taken back.
    """
    for question in questions:
        asking = asyncio.create_task(_ask_client(ctx, question))
        settled = asyncio.create_task(_wait_until_closed(run, question_id(question)))
        try:
            await asyncio.wait({asking, settled}, return_when=asyncio.FIRST_COMPLETED)
            if settled.done():
                continue
            result = asking.result()
        finally:
            for task in (asking, settled):
                task.cancel()
            await asyncio.gather(asking, settled, return_exceptions=True)
        reply = read_form(result) if result is not None else None
        if reply is None:
            return False
        await run.answer(question_id(question), reply)
    return True


async def _wait_until_closed(run: ClientRun, wanted: str) -> None:
    """Return when a question is no longer open."""
    other = ClientRun(run.service, run.session, run.number, run.view)
    async with aclosing(other.follow()) as events:
        async for _ in events:
            if all(question_id(one) != wanted for one in other.view.questions):
                return


def can_ask(ctx: RequestContext, caller: Caller) -> bool:
    """Whether the client's user may be asked: by a form, and on behalf of one who may answer."""
    capabilities = ctx.session.client_capabilities
    return (
        caller.has_role("answer")
        and capabilities is not None
        and capabilities.elicitation is not None
    )


def make_input_requests(view: Projection) -> types.InputRequests:
    """Return a form for each question that is open, by its id."""
    return {question_id(one): make_form(one) for one in view.questions if not is_too_long(one)}


async def _ask_client(ctx: RequestContext, question: Question) -> types.ElicitResult | None:
    """Show a form to the client's user; None if the client cannot."""
    params = make_form(question).params
    if not isinstance(params, types.ElicitRequestFormParams):
        return None
    try:
        return await ctx.session.elicit_form(
            params.message, params.requested_schema, related_request_id=ctx.request_id
        )
    except (MCPError, NoBackChannelError) as error:
        _log.info("the client did not take a question: %s", error)
        return None


def describe_progress(view: Projection) -> str:
    """Return what a run is at, in a few words."""
    names = ", ".join(call.name for call in view.step_calls if call.is_open)
    return f"step {view.steps}{f': {names}' if names else ''}"
