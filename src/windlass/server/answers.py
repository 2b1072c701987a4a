"""Answers to questions as protocols carry them: a JSON object, or a plain yes or no.

Invariant: only a clear yes is a yes. An answer is bound to the exact arguments that were shown,
because the id of a question holds their digest. If a question was decided elsewhere first, that
decision counts, and is reported to the person who answers second.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from windlass.core.errors import MailRejected, NothingToDo, QuestionDecided
from windlass.core.projection.view import CallView, Projection, ReplyEntry
from windlass.core.question import Question
from windlass.core.verdicts import Allow, AllowAlways, Decision, Deny, Modify, PersonAnswer
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.service import Service

ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether the call may run."},
        "reason": {"type": "string", "description": "Told to the model if it may not."},
        "editedArgs": {"type": "object", "description": "Run it with these arguments instead."},
        "always": {
            "type": ["boolean", "string"],
            "description": "Do not ask again in this session: for this call, or for a pattern.",
        },
    },
    "required": ["approved"],
}
"""What an answer looks like, for clients that make a form of it."""
YES_WORDS = frozenset(("yes", "y", "ok", "okay", "approve", "approved", "allow", "accept"))
NO_WORDS = frozenset(("no", "n", "deny", "denied", "reject", "rejected", "decline"))
NO_REASON = "A person said no."


class AnswerPayload(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A person's answer."""

    approved: bool
    reason: str = ""
    edited_args: dict[str, Any] | None = None
    always: bool | str = False


class QuestionClosed(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The outcome of a question that was answered too late."""

    question_id: str
    answer: str
    """`allowed`, `denied`, or `unknown` if the run ended without an answer."""
    by: str = ""


def question_id(question: Question) -> str:
    """Return what names a question, with the exact arguments that it is about."""
    return f"{question.session}:{question.call_id}:{question.digest}"


def read_answer(payload: object) -> PersonAnswer:
    """Return an answer from a boolean or an object. Raises ApiError 422 if it is neither."""
    if isinstance(payload, bool):
        payload = {"approved": payload}
    try:
        given = msgspec.convert(payload, type=AnswerPayload)
    except msgspec.ValidationError as error:
        raise ApiError(
            422,
            "invalid_answer",
            f"The answer does not fit: {error}.",
            'Send {"approved": true} or {"approved": false, "reason": "…"}.',
        ) from None
    if not given.approved:
        return Deny(given.reason or NO_REASON)
    if given.edited_args is not None:
        return Modify(given.edited_args, given.reason or "A person changed the arguments.")
    if given.always:
        return AllowAlways(given.always if isinstance(given.always, str) else "")
    return Allow()


def read_answer_text(text: str) -> PersonAnswer | None:
    """Return what a plain word says, or None if it is neither a clear yes nor a clear no."""
    word = text.strip().rstrip(".!").lower()
    if word in YES_WORDS:
        return Allow()
    if word in NO_WORDS:
        return Deny(NO_REASON)
    return None


async def give_answer(
    service: Service, caller: Caller, asked_id: str, answer: PersonAnswer
) -> frozenset[str] | QuestionClosed:
    """Answer a question by its id, in the session of the run or of one of its sub-agents.

    Returns the ids of the questions that still wait for an answer, or how the question was answered
    before, if another answer came first. An answer may be on its way to the driver when this
    returns, so the questions of a projection can be more. Raises ApiError 404 if there never was
    such a question of the caller's.
    """
    place, _, digest = asked_id.rpartition(":")
    name, _, call_id = place.rpartition(":")
    session = await service.find_session(caller, name, "answer")
    try:
        left = await service.answer(session, call_id, answer, digest=digest)
        return frozenset(question_id(each) for each in left)
    except QuestionDecided as decided:
        return describe_decision(asked_id, decided.decision)
    except (NothingToDo, MailRejected):
        call = find_call((await service.read_again(session)).view, call_id)
        if call is None:
            raise ApiError(
                404,
                "question_not_found",
                f"There is no question {asked_id!r}.",
                "GET /questions lists those that wait.",
            ) from None
        return describe_closed(asked_id, call)


def find_call(view: Projection, call_id: str) -> CallView | None:
    """Return a call of any reply of a session, the last one first; None if there is none."""
    return next((call for call in last_calls(view) if call.id == call_id), None)


def last_calls(view: Projection) -> Iterator[CallView]:
    """Yield the calls of a session, from the last reply to the first."""
    entries = view.entries
    for at in reversed(range(len(entries))):
        entry = entries[at]
        if isinstance(entry, ReplyEntry):
            yield from reversed(entry.calls)


def describe_decision(asked_id: str, decision: Decision) -> QuestionClosed:
    """Return how a question was decided where its answer was accepted."""
    answer = "allowed" if decision.is_allowed else "denied"
    return QuestionClosed(asked_id, answer, decision.by)


def describe_closed(asked_id: str, call: CallView) -> QuestionClosed:
    """Return how a question was answered."""
    match call.answer:
        case Allow() | Modify():
            answer = "allowed"
        case Deny():
            answer = "denied"
        case None:
            answer = "unknown"
    return QuestionClosed(asked_id, answer, call.answered_by)
