"""The questions of a run as forms that a client shows to its user, and what comes back."""

from typing import Any

import mcp_types as types
import msgspec

from windlass.core.projection.runs import OpenQuestion
from windlass.core.verdicts import Allow, AllowAlways, Deny, PersonAnswer
from windlass.server.answers import NO_REASON

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


def describe_question(question: OpenQuestion) -> str:
    """Return exactly what would happen: the question, who asks, the rule, and all arguments."""
    lines = [question.question]
    if question.chain:
        lines.append(f"Asked by {' > '.join(question.chain)}.")
    if question.rule:
        lines.append(f"Rule: {question.rule}.")
    arguments = msgspec.json.format(msgspec.json.encode(question.arguments), indent=2).decode()
    lines += [f"Tool: {question.tool}", arguments]
    return "\n".join(lines)


def is_too_long(question: OpenQuestion) -> bool:
    """Whether a form would hide the end of the call. Such a call is answered elsewhere."""
    return len(describe_question(question)) > ARGUMENTS_CHARS_MAX


def make_form(question: OpenQuestion) -> types.ElicitRequest:
    """Return the request that shows a question to the user of a client."""
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(
            message=describe_question(question),
            requested_schema=FORM_SCHEMA,
        )
    )


def read_form(result: types.ElicitResult) -> PersonAnswer | None:
    """Return the answer in a form; None if the user gave none. Only a clear yes is a yes."""
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
        case _:
            return denial
