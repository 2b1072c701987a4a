"""Hand-over: an agent passes the conversation to another, in the same session.

It needs no engine of its own: each turn is a separate run, and the next agent begins where the last
one stopped. The recorded call decides which agent is next, so a program that was killed and is
started again with the same key continues with the right one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Unpack
from uuid import uuid4

import msgspec

from windlass.agent.handles import RunHandle
from windlass.agent.options import PromptInput, RunOptions
from windlass.core.errors import ConfigError
from windlass.core.messages import ToolResults
from windlass.core.result import RunResult
from windlass.core.suggestions import suggest_names
from windlass.tools.function import Tool

HAND_OVER_TOOL = "hand_over"
HANDOVERS_MAX = 8
"""How often a conversation may change hands before an agent has to answer."""


class _HandOverArguments(msgspec.Struct):
    to: str
    task: str


class TeamMember(Protocol):
    """An agent that takes part."""

    async def start(
        self, prompt: PromptInput, *, session: str | None = None, **options: Unpack[RunOptions]
    ) -> RunHandle[Any]: ...


@dataclass(frozen=True, slots=True)
class TeamResult:
    """How a conversation between agents and a person ended."""

    agent: str
    """Who had the last word: the next prompt of the person is for this agent."""
    result: RunResult[Any]
    session: str


def hand_over_tool(members: Mapping[str, str]) -> Tool[..., Any]:
    """Make the tool by which a model hands the conversation over.

    `members` says what each of the others is for. Raises ConfigError without any.
    """
    if not members:
        raise ConfigError("hand_over_tool({}): name at least one agent")

    def hand_over(to: str, task: str) -> str:  # noqa: ARG001 - what is to be done is on record
        return f"{to} takes over now. End your turn without another word."

    about = "\n".join(f"- {name}: {purpose}" for name, purpose in members.items())
    schema = {
        "type": "object",
        "properties": {
            "to": {"type": "string", "enum": [*members], "description": "who takes over"},
            "task": {"type": "string", "description": "what they are to do, in your words"},
        },
        "required": ["to", "task"],
        "additionalProperties": False,
    }
    description = f"Hand the conversation over to another agent, who sees all of it.\n{about}"
    built = Tool[..., Any].from_schema(
        HAND_OVER_TOOL, description, schema, hand_over, effect="read"
    )
    # Who takes over is read from the calls of the session itself.
    return replace(built, only_by_model=True)


async def run_with_handover(
    members: Mapping[str, TeamMember],
    prompt: PromptInput,
    *,
    start: str,
    session: str | None = None,
    key: str | None = None,
    handovers_max: int = HANDOVERS_MAX,
) -> TeamResult:
    """Run a prompt by one agent after the other, until one of them does not hand over.

    All agents share one journal, and the conversation is one session. With a `key`, the same call
    in another process continues where the first one stopped. A run that waits for a person is
    returned as it is. Raises ConfigError if an agent is not a member, or after too many hand-overs.
    """
    if session is None:
        session = key or uuid4().hex
    name, task = start, prompt
    for number in range(handovers_max + 1):
        if name not in members:
            raise ConfigError(f"there is no agent {name!r}.{suggest_names(name, members)}")
        options: RunOptions = {"key": f"{key}.{number}"} if key else {}
        handle = await members[name].start(task, session=session, **options)
        result = await handle.result()
        handed_over = find_hand_over(result)
        if handed_over is None:
            return TeamResult(name, result, session)
        name, task = handed_over
    raise ConfigError(
        f"session {session} was handed over {handovers_max} times without an answer. "
        "Say in the instructions who is to answer, or raise handovers_max."
    )


def find_hand_over(result: RunResult[Any]) -> tuple[str, str] | None:
    """Return to whom a run that has completed handed over, and the task; None if it did not."""
    if result.outcome != "completed":
        return None
    for message in reversed(result.new_messages()):
        if not isinstance(message, ToolResults):
            continue
        for item in reversed(message.items):
            if item.call.name == HAND_OVER_TOOL and item.result.kind == "value":
                arguments = msgspec.json.decode(item.call.arguments, type=_HandOverArguments)
                return arguments.to, arguments.task
    return None
