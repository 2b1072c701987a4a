"""The agent of both measures: a model in this process that takes a moment, and two tools."""

import asyncio
from collections.abc import AsyncGenerator

from windlass import Agent, AssistantMessage, LoopPolicy, ModelInfo, TextPart, UserMessage, tool
from windlass.core.events import CallDelta, ReplyEnd, ReplyPiece, TextDelta
from windlass.core.view import Prompt
from windlass.gates.rules import Rule, RuleGate
from windlass.ports import Journal

GATE = RuleGate([Rule("ask", "send")], default="allow", name="scale")


@tool(effect="read")
async def look(what: str) -> str:
    """Look at something."""
    return f"{what}: as it was"


@tool(effect="write", resource="{what}")
async def send(what: str) -> str:
    """Send a letter; a person is asked first."""
    return f"{what}: sent"


class MomentaryModel:
    """A model that looks once, then sends if the prompt says so, then answers."""

    def __init__(self, moment_s: float = 0.0) -> None:
        self.info = ModelInfo("scripted:moment")
        self.moment_s = moment_s

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        text, done = _replies_given(prompt)
        calls = ["look", "send"] if "send" in text else ["look"]
        await asyncio.sleep(self.moment_s)
        if done < len(calls):
            yield CallDelta(0, f"c{done}", calls[done], '{"what":"it"}')
            yield ReplyEnd("calls")
            return
        for _ in range(5):
            yield TextDelta("word ")
            await asyncio.sleep(self.moment_s)
        yield ReplyEnd("end")


def _replies_given(prompt: Prompt) -> tuple[str, int]:
    done = 0
    for message in reversed(prompt.messages):
        if isinstance(message, AssistantMessage):
            done += 1
        elif isinstance(message, UserMessage):
            return "".join(part.text for part in message.parts if isinstance(part, TextPart)), done
    return "", done


def make_agent(journal: Journal, moment_s: float = 0.0) -> Agent[str]:
    return Agent(
        MomentaryModel(moment_s), tools=[look, send], gate=GATE, journal=journal, rules=LoopPolicy()
    )
