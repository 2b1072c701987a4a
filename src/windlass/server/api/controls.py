"""What is said to a run: answers, steering, cancel, pause, resume, higher limits, release, fork."""

from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.agent.control import ControlReceipt
from windlass.core.limits import RaisedLimits
from windlass.core.messages import ContentPart
from windlass.core.question import Question
from windlass.core.verdicts import PersonAnswer
from windlass.server.answers import question_id
from windlass.server.api.runs import StartedReply
from windlass.server.api.session_records import session_address, session_links
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.routing import Routes
from windlass.server.run_controls import TAKEN_WAIT_S
from windlass.server.service import Service


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a question, bound to the arguments that were shown."""

    call_id: str
    answer: PersonAnswer
    """{"verdict": "allow"}, "deny" with a reason, "modify", or "allow_always"."""
    digest: str | None = None
    """The digest that the question showed: the answer then holds for these arguments only."""


class SteerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person says to a run."""

    prompt: str | tuple[ContentPart, ...]


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, for the record."""

    reason: Annotated[str, Meta(max_length=2_000)] = ""


class ResumeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resume a run."""

    consent: bool = False
    """Resume although the agent's configuration differs from the one on record."""


class RaiseBody(RaisedLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New totals for the limits of a run."""


class ForkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to fork a session, and what to call the new one."""

    at: Annotated[int, Meta(ge=1)]
    """The number of the last record that the new session begins with."""
    into: str = ""


class ControlReply(msgspec.Struct, frozen=True):
    """The result of a message to a run. The message is durable in any case."""

    session: str
    run: int
    taken: bool
    """Whether the run has taken it. Otherwise it waits for the driver of the run."""
    seq: int | None = None
    """The fact that took it."""


class QuestionsReply(msgspec.Struct, frozen=True):
    """Questions that wait for a person."""

    questions: list[Question]
    cursor: str | None = None


class QuestionsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which questions are listed."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    """Sessions whose questions are listed."""
    cursor: str | None = None


ROUTES = Routes()


@ROUTES.add(
    "POST",
    "/runs/{session}/answers",
    role="answer",
    scope="session",
    body=AnswerBody,
    reply=QuestionsReply,
    stored_replies=True,
)
async def answer_question(service: Service, request: HttpRequest) -> Reply:
    """Answer a question of a run, which then continues. Returns the questions that are left."""
    body = await request.decode(AnswerBody)
    left = await service.answer(request.session, body.call_id, body.answer, digest=body.digest)
    session = await service.read_again(request.session)
    waiting = {question_id(each) for each in left}
    shown = [each for each in session.view.questions if question_id(each) in waiting]
    return HttpReply(200, QuestionsReply(shown))


@ROUTES.add(
    "POST",
    "/runs/{session}/steer",
    role="start",
    scope="session",
    body=SteerBody,
    reply=ControlReply,
)
async def steer_run(service: Service, request: HttpRequest) -> Reply:
    """Say something to a run before its next step."""
    body = await request.decode(SteerBody)
    key = request.header("idempotency-key")
    return await make_control_reply(await service.steer(request.session, body.prompt, key=key))


@ROUTES.add(
    "POST",
    "/runs/{session}/cancel",
    role="start",
    scope="session",
    body=ReasonBody,
    reply=ControlReply,
    stored_replies=True,
)
async def cancel_run(service: Service, request: HttpRequest) -> Reply:
    """End a run."""
    body = await request.decode(ReasonBody)
    reason = body.reason or "cancelled"
    return await make_control_reply(await service.cancel(request.session, reason))


@ROUTES.add(
    "POST",
    "/runs/{session}/pause",
    role="start",
    scope="session",
    body=ReasonBody,
    reply=ControlReply,
    stored_replies=True,
)
async def pause_run(service: Service, request: HttpRequest) -> Reply:
    """Stop a run before its next request, until it is resumed."""
    body = await request.decode(ReasonBody)
    return await make_control_reply(await service.pause(request.session, body.reason))


@ROUTES.add(
    "POST",
    "/runs/{session}/resume",
    role="start",
    scope="session",
    body=ResumeBody,
    reply=ControlReply,
    stored_replies=True,
)
async def resume_run(service: Service, request: HttpRequest) -> Reply:
    """Resume a run that was paused or released."""
    body = await request.decode(ResumeBody)
    receipt = await service.resume(request.session, consent=body.consent)
    if receipt is not None:
        return await make_control_reply(receipt)
    session = await service.read_again(request.session)
    return HttpReply(202, ControlReply(session.name, session.summary.runs, taken=False))


@ROUTES.add(
    "POST",
    "/runs/{session}/raise",
    role="admin",
    scope="session",
    body=RaiseBody,
    reply=ControlReply,
    stored_replies=True,
)
async def raise_limits(service: Service, request: HttpRequest) -> Reply:
    """Raise the limits of a run to new totals."""
    body = await request.decode(RaiseBody)
    return await make_control_reply(await service.raise_limits(request.session, body))


@ROUTES.add(
    "POST",
    "/runs/{session}/release",
    role="admin",
    scope="session",
    body=ReasonBody,
    reply=ControlReply,
    stored_replies=True,
)
async def release_run(service: Service, request: HttpRequest) -> Reply:
    """Move a run off the process that drives it: it releases the run, and another resumes it."""
    body = await request.decode(ReasonBody)
    return await make_control_reply(await service.release(request.session, body.reason))


@ROUTES.add(
    "POST",
    "/runs/{session}/fork",
    role="start",
    scope="session",
    body=ForkBody,
    reply=StartedReply,
    status=201,
    stored_replies=True,
)
async def fork_session(service: Service, request: HttpRequest) -> Reply:
    """Begin a new session with the first records of this one."""
    body = await request.decode(ForkBody)
    made = await service.fork(request.session, body.at, body.into)
    address = session_address(made.name)
    links = session_links(request, address)
    reply = StartedReply(made.name, made.summary.runs, links=links)
    return HttpReply(201, reply, {"Location": address})


@ROUTES.add(
    "GET", "/questions", role="watch", scope="caller", query=QuestionsQuery, reply=QuestionsReply
)
async def list_questions(service: Service, request: HttpRequest) -> Reply:
    """List the questions that wait for a person."""
    query = request.decode_query(QuestionsQuery)
    questions, cursor = await service.list_questions(request.caller, query.limit, query.cursor)
    return HttpReply(200, QuestionsReply(questions, cursor))


async def make_control_reply(receipt: ControlReceipt) -> HttpReply:
    """Return the result of a message; waits a moment for the run to take it."""
    try:
        fact = await receipt.taken(TAKEN_WAIT_S)
    except TimeoutError:
        return HttpReply(202, ControlReply(receipt.session, receipt.run, taken=False))
    return HttpReply(200, ControlReply(receipt.session, receipt.run, taken=True, seq=fact.seq))
