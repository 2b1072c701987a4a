"""A store of notes as an agent uses it: two tools, and one look at the beginning of a run.

The law: what comes out of a store says how far it can be trusted, and what goes in has the labels
of the session that it comes from.
"""

from collections.abc import Collection, Sequence
from typing import Any

from windlass.core.events import Recalled
from windlass.core.messages import Label
from windlass.knowledge.memory import (
    ABILITIES,
    BLOCK_CHARS_MAX,
    Caller,
    Limit,
    Memory,
    Query,
    Text,
    Title,
    Where,
    recalled,
)
from windlass.knowledge.store import TAINTS, Taint
from windlass.tools.function import Tool, tool
from windlass.tools.run_context import RunContext

NO_SESSION = "(none)"
"""The key of a scope that holds nothing: what is recalled for a prompt is no session's own."""


def knowledge_tools(memory: Memory) -> tuple[Tool[..., Any], Tool[..., Any]]:
    """The tools `recall` and `remember`, over what a user's agent in a project may know."""

    async def recall(context: RunContext[Any], query: Query, limit: Limit = 5) -> str:
        return await memory.recall(_caller(context), query, limit)

    async def remember(
        context: RunContext[Any], text: Text, title: Title = "", scope: Where = "project"
    ) -> str:
        return await memory.remember(_caller(context), text, title, scope)

    recall.__doc__, remember.__doc__ = memory.recall.__doc__, memory.remember.__doc__
    held = memory.labels if ABILITIES["recall"].takes_labels else frozenset[Taint]()
    return (
        tool(
            recall,
            effect=ABILITIES["recall"].effect,
            untrusted="untrusted" in held,
            private="private" in held,
        ),
        tool(remember, effect=ABILITIES["remember"].effect),
    )


def _caller(context: RunContext[Any]) -> Caller:
    """Who calls. A session that holds nothing doubtful writes nothing doubtful."""
    held: Collection[Label] = context.call.labels if context.call else TAINTS
    labels: frozenset[Taint] = frozenset(taint for taint in TAINTS if taint in held)
    return Caller(context.session_id or NO_SESSION, context.call_id, labels)


class Recaller:
    """What a memory knows about a prompt: `Agent(knowledge=recaller(memory))`."""

    def __init__(self, memory: Memory, limit: int, chars_max: int) -> None:
        self._memory = memory
        self._limit = limit
        self._chars_max = chars_max

    @property
    def labels(self) -> Sequence[Label]:
        """What it may bring along."""
        return [taint for taint in TAINTS if taint in self._memory.labels]

    async def __call__(self, prompt: str) -> Recalled:
        known = await recalled(
            self._memory, prompt, NO_SESSION, limit=self._limit, chars_max=self._chars_max
        )
        if known is None:
            return Recalled("")
        return Recalled(known.text, tuple(taint for taint in TAINTS if taint in known.labels))


def recaller(memory: Memory, *, limit: int = 5, chars_max: int = BLOCK_CHARS_MAX) -> Recaller:
    """Show with each prompt what the memory knows about it: the best few notes, once in a run."""
    return Recaller(memory, limit, chars_max)
