"""The demo's models: scripts that know their lines by what they are shown, as real models would.

They keep a meter of their own, as a provider does: a line for each request, written by nobody else.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from windlass.core.events import Piece
from windlass.core.messages import Assistant, Results, User
from windlass.core.setup import ModelInfo, Price
from windlass.core.view import Prompt
from windlass.testing.script_words import call, pause, say, stall
from windlass.testing.scripted_model import Items, ScriptedModel

PROMPT = "Order 1042 was charged twice. Pay the second charge back and write a report."
PRICE = Price(Decimal(3), Decimal(15))
"""Made up, and labelled so wherever it is shown."""
METER = "meter.txt"
REQUESTS_MAX = 20

Role: TypeAlias = Literal["support", "clerk"]


class Line(NamedTuple):
    """A reply, and the words that must have been shown before it can be given."""

    reply: Items
    rests_on: str = ""


STALL_AT = 2
"""The line that falls silent the first time, counted from 0."""
STALLED = "So the list has order 1042 tw"
REPORT = "Order 1042 was charged twice on 2 March. The second 42.50 EUR went back to the card."
SUPPORT = (
    Line(
        [
            say("To the card, then. I will read up on how refunds are done here."),
            call("skill", {"name": "refunds"}),
        ],
        rests_on="by card only",
    ),
    Line(
        [
            say("The clerk is to look at the payments."),
            call("clerk", {"task": "List the charges of order 1042."}),
        ],
        rests_on="Have the clerk list the charges",
    ),
    Line(
        [
            say("So the list has order 1042 twice. It is wrong, and I will delete it."),
            call("delete", {"path": "payments.csv"}),
        ],
        rests_on="Two charges, both on 2 March",
    ),
    Line(
        [
            say("Understood, the list stays. I will pay the second charge back instead."),
            call("refund", {"order": 1042, "amount": "42.50 EUR", "to": "card"}),
        ],
        rests_on="never deleted",
    ),
    Line(
        [
            say("The refund is booked. Now the report."),
            call("write", {"path": "report.md", "content": REPORT}),
        ],
    ),
    Line(say("Done: 42.50 EUR went back to the card, and report.md says why.")),
)
CLERK = (
    Line(call("read", {"path": "payments.csv"}), rests_on="order 1042"),
    Line(
        say("Two charges, both on 2 March, 42.50 EUR each."),
        rests_on="1042,2026-03-02,42.50 EUR",
    ),
)
LINES: Mapping[Role, tuple[Line, ...]] = {"support": SUPPORT, "clerk": CLERK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast the demo goes."""

    token_s: float = 0.022
    think_s: float = 0.7
    """Before the first word of a reply."""
    idle_s: float = 1.0
    """Silence that counts as a stall."""
    hold_s: float = 1.2
    """For the reader, around the kill."""


CALM = Pace()
FAST = Pace(token_s=0.001, think_s=0.01, idle_s=0.4, hold_s=0.05)


class DemoModel:
    """Plays the reply that its conversation has come to."""

    def __init__(self, role: Role, folder: Path, pace: Pace) -> None:
        self._role: Role = role
        self._meter = folder / METER
        self._think_s = pace.think_s
        self._script = ScriptedModel(
            [self._reply] * REQUESTS_MAX,
            info=ModelInfo(f"scripted:{role}", PRICE),
            pace_s=pace.token_s,
            truthful=True,
        )

    @property
    def info(self) -> ModelInfo:
        return self._script.info

    def stream(self, prompt: Prompt) -> AsyncGenerator[Piece]:
        return self._script.stream(prompt)

    def _reply(self, prompt: Prompt) -> Items:
        at = sum(isinstance(message, Assistant) for message in prompt.messages)
        asked_before = requests(self._meter.parent)
        asked = f"{self._role}, reply {at + 1}"
        with self._meter.open("a", encoding="utf-8") as meter:
            meter.write(f"request {len(asked_before) + 1}: {asked}\n")
        first_time = not any(line.endswith(asked) for line in asked_before)
        if (self._role, at) == ("support", STALL_AT) and first_time:
            return [pause(self._think_s), say(STALLED), stall()]
        line = LINES[self._role][at]
        if not any(line.rests_on in text for text in shown(prompt)):
            return say(f"I cannot go on: nobody told me {line.rests_on!r}.")
        return [pause(self._think_s), line.reply]


def shown(prompt: Prompt) -> Iterator[str]:
    """What the model is told, by people, tools and notes."""
    for message in prompt.messages:
        if isinstance(message, User):
            yield message.text
        if isinstance(message, Results):
            yield from (one.result.text for one in message.items)


def requests(folder: Path) -> list[str]:
    """What the meter counted."""
    meter = folder / METER
    return meter.read_text("utf-8").splitlines() if meter.exists() else []
