"""The demo's model: a script that knows its lines by what it is shown, as a real model would.

It keeps a meter of its own, as a provider does: a line for each request, written by nobody else.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from windlass.core.events import Piece
from windlass.core.messages import Assistant
from windlass.core.setup import ModelInfo, Price
from windlass.core.view import Prompt
from windlass.testing.script import Items, ScriptedModel
from windlass.testing.vocabulary import call, pause, say, stall

PROMPT = "Order 1042 was charged twice. Pay the second charge back and write a report."
PRICE = Price(Decimal(3), Decimal(15))
"""Made up, and labelled so wherever it is shown."""
METER = "meter.txt"
REQUESTS_MAX = 20

STALLED = "I see the charges: 2 March has order 1042 tw"
REPORT = "Order 1042 was charged twice on 2 March. The second 42.50 EUR went back."
REPLIES: tuple[Items, ...] = (
    [say("I will look at the payments first."), call("read", {"path": "payments.csv"})],
    [
        say(
            "I see the charges: 2 March has order 1042 twice, 42.50 EUR each. "
            "The list is wrong, so I will delete it."
        ),
        call("delete", {"path": "payments.csv"}),
    ],
    [
        say("Understood, the list stays. I will pay the second charge back instead."),
        call("refund", {"order": 1042, "amount": "42.50 EUR"}),
    ],
    [
        say("The refund is booked. Now the report."),
        call("write", {"path": "report.md", "content": REPORT}),
    ],
    [say("Done: 42.50 EUR went back for order 1042, and report.md says why.")],
)


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
    """Plays the reply that the conversation has come to; the second falls silent the first time."""

    def __init__(self, folder: Path, pace: Pace) -> None:
        self._meter = folder / METER
        self._think_s = pace.think_s
        self._script = ScriptedModel(
            [self._reply] * REQUESTS_MAX,
            info=ModelInfo("scripted:demo", PRICE),
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
        with self._meter.open("a", encoding="utf-8") as meter:
            meter.write(f"request {len(asked_before) + 1}: reply {at + 1}\n")
        if at == 1 and not any(line.endswith("reply 2") for line in asked_before):
            return [pause(self._think_s), say(STALLED), stall()]
        return [pause(self._think_s), *REPLIES[at : at + 1]]


def requests(folder: Path) -> list[str]:
    """What the meter counted."""
    meter = folder / METER
    return meter.read_text("utf-8").splitlines() if meter.exists() else []
