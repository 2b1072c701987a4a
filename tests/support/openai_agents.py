"""An agent whose scripted model answers by what it is asked, as often as it is asked."""

from typing import Any

from windlass import (
    Agent,
    ImagePart,
    Limits,
    LoopPolicy,
    ModelInfo,
    Price,
    TextPart,
    ToolResults,
    UserMessage,
    tool,
)
from windlass.core.view import Prompt
from windlass.gates import ask
from windlass.testing import (
    ScriptedModel,
    ScriptedReply,
    call,
    drop,
    fail,
    length,
    pause,
    refuse,
    say,
)

MODEL = "helper"
WORDS = "one two three four five six seven eight"
INSTRUCTIONS = "Be brief."
REQUESTS_MAX = 200
LOOP_MARK = '"b":0'
"""In the arguments of calls that are made again and again."""


class HelperAgent:
    """An agent with a tool that runs and one that asks, and what it did."""

    def __init__(self, pause_s: float = 0.2, **options: Any) -> None:
        self.sent: list[str] = []
        """Whom the tool `send` wrote to."""
        self._pause_s = pause_s
        self._broken: set[str] = set()
        self.model = ScriptedModel(
            [self._answer] * REQUESTS_MAX,
            info=ModelInfo("scripted:m", price=Price(input=1, output=2)),
            truthful=True,
        )

        @tool(effect="read")
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @tool
        def send(to: str) -> str:
            """Send a letter."""
            self.sent.append(to)
            return f"sent to {to}"

        self.agent = Agent(
            self.model,
            name=MODEL,
            instructions=INSTRUCTIONS,
            tools=[add, send],
            gate=ask(),
            limits=Limits(steps=5, usd=1),
            rules=LoopPolicy(on_partial="restart"),
            **options,
        )

    def _answer(self, prompt: Prompt) -> ScriptedReply:
        last = prompt.messages[-1]
        if isinstance(last, ToolResults) and LOOP_MARK not in last.items[-1].call.arguments:
            return _after_calls(last)
        users = [message for message in prompt.messages if isinstance(message, UserMessage)]
        texts = [part.text for part in users[-1].parts if isinstance(part, TextPart)]
        words = texts[-1].split() if texts else []
        match words[0].strip(".").lower() if words else "":
            case "add":
                return [say("Let me see."), call("add", {"a": 2, "b": 3})]
            case "loop":
                return call("add", {"a": len(prompt.messages), "b": 0})
            case "send":
                return call("send", {"to": "Ann"})
            case "count":
                waits = pause(self._pause_s)
                return [item for word in WORDS.split() for item in (say(f"{word} "), waits)]
            case "break":
                return self._break_once(prompt)
            case "fail":
                return fail("auth", "the key of the model is wrong")
            case "refuse":
                return refuse("No.")
            case "cut":
                return [say("Only so"), length()]
            case "recall":
                return " / ".join(message.text for message in users[:-1])
            case "wait":
                return [say("Working"), pause(600), say(" done.")]
            case _:
                images = sum(isinstance(part, ImagePart) for part in users[-1].parts)
                return f"I see {images} image." if images else "Hello, world."

    def _break_once(self, prompt: Prompt) -> ScriptedReply:
        """Break off after some text, once for each conversation."""
        key = repr(tuple(prompt.messages))
        if key in self._broken:
            return "All is well."
        self._broken.add(key)
        return [say("All is "), pause(self._pause_s), drop()]


def _after_calls(results: ToolResults) -> ScriptedReply:
    outcome = results.items[-1]
    match outcome.call.name, outcome.result.kind:
        case "add", _:
            return f"The sum is {outcome.result.text}."
        case _, "value":
            return "It was sent."
        case _:
            return "It was not sent."
