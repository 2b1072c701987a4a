"""Agents of which one makes a call that aborts its process: `windlass worker poison_app:agents`.

The others look and write lines, some at a time. The environment's EFFECTS names the file of lines.
"""

import asyncio
import os
import resource
from pathlib import Path
from typing import Any

from windlass import NOT_DONE, Agent, RunContext, tool
from windlass.core.messages import ToolResults
from windlass.core.view import Prompt
from windlass.testing import ScriptedModel, call, say

ROUNDS = 3
REPLIES = 2_000
POISON = "Take the poison."


def effects() -> Path:
    return Path(os.environ["EFFECTS"])


def was_noted(context: RunContext, number: int) -> Any:
    """Whether a call was made whose process died in it."""
    lines = effects().read_text("utf-8").split() if effects().exists() else []
    return "written" if context.idempotency_key in lines else NOT_DONE


@tool(effect="write", reconcile=was_noted, resource="{number}")
async def note(context: RunContext, number: int) -> str:
    """Write a line."""
    with effects().open("a", encoding="utf-8") as file:
        file.write(f"{context.idempotency_key}\n")
    await asyncio.sleep(0.1)
    return "written"


@tool(effect="read")
async def look(number: int) -> str:
    """Look for a while."""
    await asyncio.sleep(0.2)
    return f"seen {number}"


@tool(effect="read")
async def taste() -> str:
    """Take the process down, with all that runs in it."""
    await asyncio.sleep(0.3)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


def reply(prompt: Prompt) -> Any:
    """Look and write in turns, or take the poison."""
    rounds = sum(isinstance(message, ToolResults) for message in prompt.messages)
    if getattr(prompt.messages[0], "text", "") == POISON:
        return call("taste")
    if rounds == ROUNDS:
        return say("Done.")
    calls = [call("look", {"number": 2 * rounds + each}) for each in (0, 1)]
    return calls if rounds % 2 else [*calls, call("note", {"number": rounds})]


agents = [Agent(ScriptedModel([reply] * REPLIES), tools=[note, look, taste], name="clerk")]
