"""The demo's models: scripts that choose the next reply from the prompt, as real models do.

They keep a meter of their own, as a provider does: a line for each request. Nothing else writes it.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from windlass.core.events import ReplyPiece
from windlass.core.messages import AssistantMessage, ToolResults, UserMessage
from windlass.core.setup import ModelInfo, Price
from windlass.core.view import Prompt
from windlass.testing.script_words import call, pause, say, stall
from windlass.testing.scripted_model import ReplyItems, ScriptedModel

PROMPT = "Order 1042 was charged twice. Pay the second charge back and write a report."
PRICE = Price(Decimal(3), Decimal(15))
"""A made-up price; the demo says so wherever it shows it."""
METER_FILE = "meter.txt"
REQUESTS_MAX = 20

Role: TypeAlias = Literal["support", "clerk"]


class ScriptLine(NamedTuple):
    """A reply, and the words that must be in the prompt before it can be given."""

    reply: ReplyItems
    requires: str = ""


STALL_AT = 2
"""The line that stalls the first time, counted from 0."""
STALLED = "So the list has order 1042 tw"
REPORT = "Order 1042 was charged twice on 2 March. The second 42.50 EUR went back to the card."
SUPPORT = (
    ScriptLine(
        [
            say("To the card, then. I will read how refunds are done here."),
            call("skill", {"name": "refunds"}),
        ],
        requires="by card only",
    ),
    ScriptLine(
        [
            say("I will ask the clerk to look at the payments."),
            call("clerk", {"task": "List the charges of order 1042."}),
        ],
        requires="Ask the clerk to list the charges",
    ),
    ScriptLine(
        [
            say("So the list has order 1042 twice. It is wrong, and I will delete it."),
            call("delete", {"path": "payments.csv"}),
        ],
        requires="Two charges, both on 2 March",
    ),
    ScriptLine(
        [
            say("Understood, the list stays. I will pay the second charge back instead."),
            call("refund", {"order": 1042, "amount": "42.50 EUR", "to": "card"}),
        ],
        requires="never deleted",
    ),
    ScriptLine(
        [
            say("The refund is booked. Now the report."),
            call("write", {"path": "report.md", "content": REPORT}),
        ],
    ),
    ScriptLine(say("Done: 42.50 EUR went back to the card, and report.md says why.")),
)
CLERK = (
    ScriptLine(call("read", {"path": "payments.csv"}), requires="order 1042"),
    ScriptLine(
        say("Two charges, both on 2 March, 42.50 EUR each."),
        requires="1042,2026-03-02,42.50 EUR",
    ),
)
SCRIPT_LINES: Mapping[Role, tuple[ScriptLine, ...]] = {"support": SUPPORT, "clerk": CLERK}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPace:
    """How fast the demo goes, in seconds."""

    token_s: float = 0.022
    think_s: float = 0.7
    """The pause before the first word of a reply."""
    idle_s: float = 1.0
    """How long a silence is before it counts as a stall."""
    hold_s: float = 1.2
    """The pauses around the kill, for the reader."""


CALM = DemoPace()
FAST = DemoPace(token_s=0.001, think_s=0.01, idle_s=0.4, hold_s=0.05)


class DemoModel:
    """Gives the reply that fits its place in the conversation."""

    def __init__(self, role: Role, folder: Path, pace: DemoPace) -> None:
        self._role: Role = role
        self._meter = folder / METER_FILE
        self._think_s = pace.think_s
        self._script = ScriptedModel(
            [self._choose_reply] * REQUESTS_MAX,
            info=ModelInfo(f"scripted:{role}", PRICE),
            pace_s=pace.token_s,
            truthful=True,
        )

    @property
    def info(self) -> ModelInfo:
        return self._script.info

    def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        return self._script.stream(prompt)

    def _choose_reply(self, prompt: Prompt) -> ReplyItems:
        at = sum(isinstance(message, AssistantMessage) for message in prompt.messages)
        asked_before = read_meter(self._meter.parent)
        asked = f"{self._role}, reply {at + 1}"
        with self._meter.open("a", encoding="utf-8") as meter:
            meter.write(f"request {len(asked_before) + 1}: {asked}\n")
        first_time = not any(line.endswith(asked) for line in asked_before)
        if (self._role, at) == ("support", STALL_AT) and first_time:
            return [pause(self._think_s), say(STALLED), stall()]
        line = SCRIPT_LINES[self._role][at]
        if not any(line.requires in text for text in prompt_texts(prompt)):
            return say(f"I cannot continue: the prompt does not say {line.requires!r}.")
        return [pause(self._think_s), line.reply]


def prompt_texts(prompt: Prompt) -> Iterator[str]:
    """The texts in a prompt from people, tools and notes."""
    for message in prompt.messages:
        if isinstance(message, UserMessage):
            yield message.text
        if isinstance(message, ToolResults):
            yield from (item.result.text for item in message.items)


def read_meter(folder: Path) -> list[str]:
    """The lines of the meter, one for each request."""
    meter = folder / METER_FILE
    return meter.read_text("utf-8").splitlines() if meter.exists() else []
