"""What the calls that a person is asked about would change, without the secrets of the agent."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from windlass.agent.options import AgentParts
from windlass.core.question import Question
from windlass.core.setup import WorkFolder
from windlass.core.verdicts import CallPreview
from windlass.ports import PreviewingTools

FIRST_AGENT = "the first agent"
"""What an agent without a name is called where agents work for one another."""
PREVIEWS_MAX = 50
"""Questions of a list that have a preview: all of them are sent to the person who looks at it."""
AT_ONCE_MAX = 8

AskedQuestion = tuple[AgentParts | None, Question, WorkFolder | None]
"""A question, and the agent whose tool it is about; None if that one is not here. Then the folder
that its session works in, if it is not the agent's own."""


async def preview_call(
    parts: AgentParts,
    tool: str,
    arguments: Mapping[str, Any],
    chain: Sequence[str] = (),
    folder: Path | None = None,
) -> CallPreview | None:
    """Return what a call would change if it ran now; None if that is not known.

    `chain`: the sub-agents from the top down to the one whose call it is. `folder`: the one that
    the session works in, if it is not the agent's own.
    """
    tools = parts.world.tools
    if not isinstance(tools, PreviewingTools):
        return None
    # A question that is on record names the agent at the top too.
    is_whole = bool(chain) and chain[0] == (parts.world.agent or FIRST_AGENT)
    preview = await tools.preview(tool, arguments, chain[1:] if is_whole else chain, folder)
    if preview is None:
        return None
    return mask_preview(preview, parts.mask.mask_text)


def mask_preview(preview: CallPreview, mask_text: Callable[[str], str]) -> CallPreview:
    """Return a preview without secrets."""
    note = mask_text(preview.note)
    diff = mask_text(preview.diff)
    lines = diff.split("\n")
    for sign in "-+":
        # In a diff, the signs separate the lines of a multi-line secret.
        side = "\n".join(line[1:] for line in lines if line[:1] in (" ", sign))
        if mask_text(side) != side:
            note = f"{note} The difference has a secret in it, and is not shown."
            return CallPreview(note, would_fail=preview.would_fail)
    return replace(preview, note=note, diff=diff)


async def add_previews(asked: Sequence[AskedQuestion]) -> list[Question]:
    """Return the questions, the first of them with what their calls would change."""
    slots = asyncio.Semaphore(AT_ONCE_MAX)

    async def add_preview(
        parts: AgentParts | None, question: Question, folder: WorkFolder | None
    ) -> Question:
        folders = parts.world.folders if parts is not None else None
        path = folders.find(folder) if folders is not None and folder is not None else None
        if parts is None or (folder is not None and path is None):
            return question
        async with slots:
            call = (question.tool, question.arguments, question.chain)
            preview = await preview_call(parts, *call, path)
        return replace(question, preview=preview)

    shown = await asyncio.gather(*(add_preview(*one) for one in asked[:PREVIEWS_MAX]))
    return [*shown, *(question for _, question, _ in asked[PREVIEWS_MAX:])]
