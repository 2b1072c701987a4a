"""A store of notes as an agent uses it: two tools, and one look at the beginning of a run.

The law: what comes out of a store says how far it can be trusted, and what goes in has the labels
of the session that it comes from.
"""

from collections.abc import Collection, Sequence
from typing import Any

from windlass.core.events import KnowledgeRecalled
from windlass.core.messages import Label
from windlass.knowledge.memory import (
    ABILITIES,
    BLOCK_CHARS_MAX,
    Limit,
    Memory,
    MemoryCaller,
    Query,
    ScopeChoice,
    Text,
    Title,
    recall_for_prompt,
)
from windlass.knowledge.store import TAINTS, Taint
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext

NO_SESSION = "(none)"
"""The key of a scope that holds nothing: what is recalled for a prompt is no session's own."""


def knowledge_tools(memory: Memory) -> tuple[Tool[..., Any], Tool[..., Any]]:
    """The tools `recall` and `remember`, over what a user's agent in a project may know."""

    async def recall(context: RunContext[Any], query: Query, limit: Limit = 5) -> str:
        return await memory.recall(_memory_caller(context), query, limit)

    async def remember(
        context: RunContext[Any], text: Text, title: Title = "", scope: ScopeChoice = "project"
    ) -> str:
        return await memory.remember(_memory_caller(context), text, title, scope)

    recall.__doc__, remember.__doc__ = memory.recall.__doc__, memory.remember.__doc__
    memory_labels = memory.labels if ABILITIES["recall"].takes_labels else frozenset[Taint]()
    return (
        tool(
            recall,
            effect=ABILITIES["recall"].effect,
            untrusted="untrusted" in memory_labels,
            private="private" in memory_labels,
        ),
        tool(remember, effect=ABILITIES["remember"].effect),
    )


def _memory_caller(context: RunContext[Any]) -> MemoryCaller:
    """Who calls. A session that holds nothing doubtful writes nothing doubtful."""
    session_labels: Collection[Label] = context.call.labels if context.call else TAINTS
    labels: frozenset[Taint] = frozenset(taint for taint in TAINTS if taint in session_labels)
    return MemoryCaller(context.session_id or NO_SESSION, context.call_id, labels)


class MemoryRecaller:
    """What a memory knows about a prompt: `Agent(knowledge=recaller(memory))`."""

    def __init__(self, memory: Memory, limit: int, chars_max: int) -> None:
        self._memory = memory
        self._limit = limit
        self._chars_max = chars_max

    @property
    def labels(self) -> Sequence[Label]:
        """What it may bring along."""
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
    """Show with each prompt what the memory knows about it: the best few notes, once in a run."""
    return MemoryRecaller(memory, limit, chars_max)
