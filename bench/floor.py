"""The floor: the smallest agent loop that one would write by hand, with the same model.

It has no journal, no gate, no limits, no retries, and no events except text. The cost of Windlass
is given as a multiple of this.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.core.events import CallDelta, TextDelta
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    TextPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.transcript import Transcript
from windlass.core.view import Prompt
from windlass.ports import Model

OUTPUT_MAX = 8_192

Function = Callable[..., Awaitable[str]]


@dataclass(slots=True)
class CallDraft:
    """A call whose fragments are still arriving."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class AgentFloor:
    """A model and its tools."""

    model: Model
    specs: tuple[ToolSpec, ...]
    functions: Mapping[str, Function]

    async def run(self, prompt: str, on_text: Callable[[str], None]) -> Transcript:
        """Ask until a reply has no calls. Returns all messages; the last one is the answer."""
        # A list would do. But the scripted model checks only the new part of a transcript and all
        # of a list, which would make the floor slower and the ratios better than they are.
        messages = Transcript([UserMessage((TextPart(prompt),))])
        while True:
            text, calls = await self._ask_model(messages, on_text)
            texts = [TextPart(text)] if text else []
            messages = messages.append(AssistantMessage((*texts, *calls)))
            if not calls:
                return messages
            items = [CallOutcome(call, await self._call_tool(call)) for call in calls]
            messages = messages.append(ToolResults(tuple(items)))

    async def _ask_model(
        self, messages: Transcript, on_text: Callable[[str], None]
    ) -> tuple[str, list[ToolCall]]:
        text: list[str] = []
        drafts: dict[int | None, CallDraft] = {}
        prompt = Prompt(self.model.info.name, "", messages, self.specs, "auto", OUTPUT_MAX)
        async for piece in self.model.stream(prompt):
            if isinstance(piece, TextDelta):
                text.append(piece.text)
                on_text(piece.text)
            elif isinstance(piece, CallDelta):
                draft = drafts.setdefault(piece.index, CallDraft())
                draft.id = piece.id or draft.id
                draft.name = piece.name or draft.name
                draft.arguments.append(piece.arguments)
        calls = [
            ToolCall(draft.id, draft.name, "".join(draft.arguments)) for draft in drafts.values()
        ]
        return "".join(text), calls

    async def _call_tool(self, call: ToolCall) -> ToolResult:
        arguments: dict[str, Any] = json.loads(call.arguments)
        return ToolResult.from_text("value", await self.functions[call.name](**arguments))
