"""Agents for workers that are killed: `windlass worker worker_app:agents`.

Each run writes three lines into a file, one per call, and waits a little in each call. The
environment's EFFECTS names the file.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from windlass import NOT_DONE, Agent, RunContext, tool
from windlass.core.messages import ToolResults
from windlass.core.view import Prompt
from windlass.testing import ScriptedModel, call, say

CALLS = 3
REPLIES = 2_000


def effects() -> Path:
    return Path(os.environ["EFFECTS"])


def was_noted(context: RunContext, number: int) -> Any:
    """Whether a call was made whose process died in it."""
    lines = effects().read_text("utf-8").split() if effects().exists() else []
    return "written" if context.idempotency_key in lines else NOT_DONE


@tool(effect="write", reconcile=was_noted)
async def note(context: RunContext, number: int) -> str:
    """Write a line."""
    with effects().open("a", encoding="utf-8") as file:
        file.write(f"{context.idempotency_key}\n")
    await asyncio.sleep(0.1)
    return "written"


def reply(prompt: Prompt) -> Any:
    """Write line after line, whichever session asks."""
    written = sum(isinstance(message, ToolResults) for message in prompt.messages)
    if written == CALLS:
        return say("Done.")
    return call("note", {"number": written + 1})


agents = [Agent(ScriptedModel([reply] * REPLIES), tools=[note], name="clerk")]
