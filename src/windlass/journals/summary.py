"""What a list of sessions shows. Kept up with every append, so that listing reads no facts."""

from collections.abc import Iterable
from functools import reduce
from typing import Literal

import msgspec
from msgspec.structs import replace

from windlass.core.events import (
    CallAnswered,
    CallJudged,
    Fact,
    Outcome,
    RunEnded,
    RunStarted,
    StepProposed,
)
from windlass.core.messages import TextPart
from windlass.core.verdicts import Ask

TITLE_CHARS_MAX = 120
"""Characters of the first prompt that a list shows."""


class SessionSummary(msgspec.Struct, frozen=True):
    """A session in a line."""

    session: str
    title: str = ""
    """How the first prompt begins."""
    created: float = 0.0
    updated: float = 0.0
    facts: int = 0
    runs: int = 0
    steps: int = 0
    outcome: Outcome | None = None
    """How the last run ended; None while it has not."""
    proposed: int = 0
    """Calls of the open step that nobody judged yet."""
    asked: int = 0
    """Calls that wait for a person."""

    @property
    def state(self) -> Literal["open", "waiting"] | Outcome:
        if self.outcome is not None:
            return self.outcome
        return "waiting" if self.asked and not self.proposed else "open"


def advance_summary(summary: SessionSummary, facts: Iterable[Fact]) -> SessionSummary:
    """The summary after these facts."""
    return reduce(_advance_by_fact, facts, summary)


def _advance_by_fact(summary: SessionSummary, fact: Fact) -> SessionSummary:
    summary = replace(
        summary,
        created=summary.created if summary.facts else fact.at,
        updated=fact.at,
        facts=fact.seq,
    )
    match fact:
        case RunStarted(prompt=prompt):
            said = " ".join(part.text for part in prompt if isinstance(part, TextPart))
            title = summary.title or _clip_title(said)
            return replace(summary, title=title, runs=summary.runs + 1, outcome=None)
        case StepProposed(reply=reply):
            return replace(summary, steps=summary.steps + 1, proposed=len(reply.calls), asked=0)
        case CallJudged(verdict=verdict):
            asked = summary.asked + isinstance(verdict, Ask)
            return replace(summary, proposed=max(summary.proposed - 1, 0), asked=asked)
        case CallAnswered():
            return replace(summary, asked=max(summary.asked - 1, 0))
        case RunEnded(outcome=outcome):
            return replace(summary, outcome=outcome, proposed=0, asked=0)
        case _:
            return summary


def _clip_title(text: str) -> str:
    words = " ".join(text[: 10 * TITLE_CHARS_MAX].split())
    return words if len(words) <= TITLE_CHARS_MAX else words[: TITLE_CHARS_MAX - 1] + "…"
