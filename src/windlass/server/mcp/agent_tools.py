"""Agents as tools, and runs as their results."""

import re
from collections.abc import Mapping
from typing import Any

import mcp_types as types
import msgspec

from windlass.agent.agent import Agent
from windlass.core.disclosure import AgentPart
from windlass.core.projection.view import Projection
from windlass.core.question import Question
from windlass.server.errors import ApiError
from windlass.server.served_agents import list_shown_tools

_UNFIT_CHARS = re.compile(r"[^A-Za-z0-9_.-]")
INSTRUCTIONS = (
    "Each tool gives a task to an agent. A run goes on when a client goes away: call its tool with "
    "the session and no prompt to wait for it."
)
"""The description of this server for clients."""
NAMELESS = "agent"
"""What the tool of an agent without a name is called."""
PROMPT_CHARS_MAX = 1_000_000
INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {
            "type": "string",
            "maxLength": PROMPT_CHARS_MAX,
            "description": "The task for the agent. May be left out to wait for an open run.",
        },
        "session": {
            "type": "string",
            "description": "The session of an earlier result, to go on with its conversation.",
        },
    },
    "additionalProperties": False,
}
OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "session": {"type": "string"},
        "run": {"type": "integer"},
        "outcome": {"type": "string"},
        "reason": {"type": "string"},
        "text": {"type": "string"},
        "usd": {"type": ["string", "null"]},
        "questions": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["session", "run", "outcome", "text"],
}


class AgentToolInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a tool."""

    prompt: str = ""
    session: str = ""


def tool_name(agent: str) -> str:
    """Return the name of the tool of an agent, of the characters that a tool's name may have."""
    return _UNFIT_CHARS.sub("_", agent)[:64] or NAMELESS


def find_agent_name(agents: Mapping[str, Agent[Any]], tool: str) -> str | None:
    """Return the agent of a tool; None if there is no such tool."""
    return next((name for name in agents if tool_name(name) == tool), None)


def make_tools(agents: Mapping[str, Agent[Any]], parts: frozenset[AgentPart]) -> list[types.Tool]:
    """Return a tool for each agent. Its instructions are for its model, and are not shown."""
    return [
        types.Tool(
            name=tool_name(name),
            title=name or NAMELESS,
            description=_describe_agent(name, agent, parts),
            input_schema=INPUT_SCHEMA,
            output_schema=OUTPUT_SCHEMA,
            annotations=types.ToolAnnotations(
                read_only_hint=False, destructive_hint=True, open_world_hint=True
            ),
        )
        for name, agent in agents.items()
    ]


def _describe_agent(name: str, agent: Agent[Any], parts: frozenset[AgentPart]) -> str:
    tools = [spec.name for spec in list_shown_tools(agent, parts)]
    has_tools = f" It has the tools {', '.join(tools)}." if tools else ""
    return (
        f"Give a task to the agent {name or NAMELESS}. It works by itself and returns its final "
        f"reply.{has_tools} The result names its session: pass it to go on with the conversation."
    )


def read_arguments(arguments: Mapping[str, Any] | None) -> AgentToolInput:
    """Return the arguments of a call. Raises ApiError 422 if they do not fit."""
    try:
        task = msgspec.convert(arguments or {}, type=AgentToolInput)
    except msgspec.ValidationError as error:
        raise ApiError(
            422, "invalid_arguments", f"The arguments do not fit: {error}.", "Give a prompt."
        ) from None
    if not task.prompt.strip() and not task.session:
        raise ApiError(422, "prompt_missing", "There is no prompt.", "Give a prompt.")
    return task


def make_result(view: Projection) -> types.CallToolResult:
    """Return how the last run of a session ended, or what it waits for."""
    run = view.run
    outcome = "suspended" if run is None or run.outcome is None else run.outcome
    questions = view.questions
    text = run.text or run.partial if run is not None else ""
    structured: dict[str, Any] = {
        "session": view.session,
        "run": run.number if run is not None else 0,
        "outcome": outcome,
        "reason": run.reason if run is not None else "",
        "text": text,
        "usd": str(run.ledger.usd) if run is not None and run.ledger.usd is not None else None,
        "questions": [question.question for question in questions],
    }
    content: list[types.ContentBlock] = []
    if text:
        content.append(types.TextContent(text=text))
    note = _describe_end(view, outcome, questions)
    if note:
        content.append(types.TextContent(text=note))
    is_error = outcome == "failed"
    return types.CallToolResult(content=content, structured_content=structured, is_error=is_error)


def _describe_end(view: Projection, outcome: str, questions: tuple[Question, ...]) -> str:
    """Return what the text of a run does not say about its end."""
    run = view.run
    if outcome == "completed" or run is None:
        return ""
    if run.outcome is None:
        asked = " ".join(question.question for question in questions)
        what = f"waits for a person's answer: {asked}" if questions else "goes on"
        return (
            f"The run of session {view.session} {what} Call this tool with the session and no "
            "prompt to wait for its end."
        )
    reason = run.fault.message if run.fault is not None else run.reason
    return f"The run ended as {outcome}{f': {reason}' if reason else ''}."


def make_error_result(error: ApiError) -> types.CallToolResult:
    """Return an error that the calling model can do something about."""
    return types.CallToolResult(
        content=[types.TextContent(text=str(error))],
        structured_content=None,
        is_error=True,
    )


def dump_model(model: types.Result | types.Request[Any, Any] | types.Tool) -> dict[str, Any]:
    """Return a message of the SDK as JSON."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
