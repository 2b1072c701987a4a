"""Knowledge as an agent uses it: tools over a store of notes, skills, and project instructions.

Invariant: what comes out of a store says how far it can be trusted, and what goes in has the labels
of the session that it comes from. The same project files give the same instructions, byte for byte,
so that prompt caches work.
"""

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, Unpack

from windlass.agent.handles import RunHandle
from windlass.agent.options import PromptInput, RunOptions
from windlass.core.events import KnowledgeRecalled
from windlass.core.limits import Limits
from windlass.core.messages import Label
from windlass.core.result import RunResult
from windlass.knowledge.instructions import read_instructions
from windlass.knowledge.memory import (
    ABILITIES,
    BLOCK_CHARS_MAX,
    Limit,
    Memory,
    MemoryCaller,
    NoteId,
    Query,
    ScopeChoice,
    Text,
    Title,
    recall_for_prompt,
)
from windlass.knowledge.skills import Skills
from windlass.knowledge.store import TAINTS, Taint
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext

REMEMBER_LIMITS = Limits(steps=3)
"""What summing up a run may take: calls, their results, and a last word."""
REMEMBER_PROMPT = (
    "The task is done. Use the tool `remember` for what will still be true and useful in later "
    "conversations: decisions, preferences, facts that were hard to find. One note for each, in a "
    "sentence that can be understood without this conversation. Keep no secrets, nothing that "
    "belongs to this task only, and nothing that you have recalled. If there is nothing, remember "
    "nothing. Answer with one word."
)
NO_SESSION = "(none)"
"""The name of an empty session scope: what is recalled for a prompt belongs to no session."""


def knowledge_tools(memory: Memory) -> tuple[Tool[..., Any], ...]:
    """Return the tools `recall`, `remember`, `correct_note` and `forget_note` for a memory."""

    async def recall(context: RunContext[Any], query: Query, limit: Limit = 5) -> str:
        return await memory.recall(_memory_caller(context), query, limit)

    async def remember(
        context: RunContext[Any], text: Text, title: Title = "", scope: ScopeChoice = "project"
    ) -> str:
        return await memory.remember(_memory_caller(context), text, title, scope)

    async def correct_note(
        context: RunContext[Any], note: NoteId, text: Text, title: Title = ""
    ) -> str:
        return await memory.correct_note(_memory_caller(context), note, text, title)

    async def forget_note(context: RunContext[Any], note: NoteId) -> str:
        return await memory.forget_note(_memory_caller(context), note)

    return tuple(
        _make_tool(function, memory) for function in (recall, remember, correct_note, forget_note)
    )


def _make_tool(function: Callable[..., Any], memory: Memory) -> Tool[..., Any]:
    ability = ABILITIES[function.__name__]
    # The model reads this as the description of the tool.
    function.__doc__ = getattr(memory, function.__name__).__doc__
    labels = memory.labels if ability.takes_labels else frozenset[Taint]()
    return tool(
        function,
        effect=ability.effect,
        untrusted="untrusted" in labels,
        private="private" in labels,
    )


def _memory_caller(context: RunContext[Any]) -> MemoryCaller:
    """Return who calls, with the labels that a new note of the session must have."""
    session_labels: Collection[Label] = context.call.labels if context.call else TAINTS
    labels: frozenset[Taint] = frozenset(taint for taint in TAINTS if taint in session_labels)
    return MemoryCaller(context.session_id or NO_SESSION, context.call_id, labels)


class MemoryRecaller:
    """Looks up what a memory knows about a prompt: `Agent(knowledge=recaller(memory))`."""

    def __init__(self, memory: Memory, limit: int, chars_max: int) -> None:
        self._memory = memory
        self._limit = limit
        self._chars_max = chars_max

    @property
    def labels(self) -> Sequence[Label]:
        """What its notes may bring into a session."""
        return [taint for taint in TAINTS if taint in self._memory.labels]

    async def __call__(self, prompt: str) -> KnowledgeRecalled:
        known = await recall_for_prompt(
            self._memory, prompt, NO_SESSION, limit=self._limit, chars_max=self._chars_max
        )
        if known is None:
            return KnowledgeRecalled("")
        return KnowledgeRecalled(
            known.text, tuple(taint for taint in TAINTS if taint in known.labels)
        )


def recaller(memory: Memory, *, limit: int = 5, chars_max: int = BLOCK_CHARS_MAX) -> MemoryRecaller:
    """Return a lookup for `Agent(knowledge=…)`: it shows the best notes with each prompt.

    `limit` is the number of notes, `chars_max` the length of all of them together.
    """
    return MemoryRecaller(memory, limit, chars_max)


def skill_tool(skills: Skills) -> Tool[..., Any]:
    """Return the tool `skill`, with which a model reads one of these skills."""
    return tool(skills.skill, name="skill", effect="read")


def project_instructions(
    root: str | os.PathLike[str],
    *,
    skills: Skills | None = None,
    folder: str | os.PathLike[str] | None = None,
    before: str = "",
) -> str:
    """Return the instructions for an agent that works in a project.

    The text `before` comes first, then each `AGENTS.md` from the root down to the folder where the
    agent works, then a line for each skill.
    """
    sections = [before.strip(), read_instructions(root, folder).text]
    if skills is not None:
        sections.append(skills.catalogue)
    return "\n\n".join(section for section in sections if section)


class RememberingAgent(Protocol):
    """An agent that has the tool `remember`."""

    async def start(
        self, prompt: PromptInput, *, session: str | None = None, **options: Unpack[RunOptions]
    ) -> RunHandle[Any]: ...


async def remember_run(
    agent: RememberingAgent, result: RunResult[Any], *, limits: Limits = REMEMBER_LIMITS
) -> RunResult[Any] | None:
    """Have the agent sum up what of a run is worth keeping, by calls of its tool `remember`.

    It is another run in the same session: its calls go through the gate like any other, and each
    note has the session and the call as its source, and the session's labels. Once per run, even if
    it is asked for again after a crash. Returns None if the run did not complete.
    """
    if not result.completed:
        return None
    handle = await agent.start(
        REMEMBER_PROMPT, session=result.session_id, key=f"remember.{result.run}", limits=limits
    )
    return await handle.result()
