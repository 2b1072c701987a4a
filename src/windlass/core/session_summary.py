"""One line about a session: what a list of sessions shows.

A store keeps the summary beside the session and advances it with every append. Listing a thousand
sessions then reads a thousand rows, while folding them would read all of their facts.

The law: a summary never says anything else than the fold. Both apply the same facts and share the
rule of when a session waits for a person; a test compares the two after each kind of fact.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Literal

import msgspec
from msgspec.structs import replace

from windlass.core.events import (
    CallAnswered,
    CallJudged,
    Fact,
    LookupsPlanned,
    Outcome,
    RunEnded,
    RunStarted,
    SessionImported,
    StepProposed,
)
from windlass.core.messages import TextPart
from windlass.core.state import waits_for_person
from windlass.core.text_clip import clip_line
from windlass.core.verdicts import Ask

TITLE_CHARS_MAX = 120
"""Length of a title, in characters."""


class SessionSummary(msgspec.Struct, frozen=True):
    """What a list shows about a session. Times are seconds since the epoch."""

    session: str
    title: str = ""
    """The beginning of the first prompt, on one line."""
    created: float = 0.0
    updated: float = 0.0
    facts: int = 0
    """How many facts the session has, which is the number of the last one."""
    runs: int = 0
    steps: int = 0
    outcome: Outcome | None = None
    """How the last run ended; None while it is open."""
    proposed: int = 0
    """Calls of the open step that have not been judged yet."""
    asked: int = 0
    """Calls of the open step that wait for a person's answer."""

    @property
    def state(self) -> Literal["open", "waiting"] | Outcome:
        """How the last run ended, or whether it goes on or waits for a person."""
        if self.outcome is not None:
            return self.outcome
        return "waiting" if waits_for_person(self.proposed, self.asked) else "open"


def advance_summary(summary: SessionSummary, facts: Iterable[Fact]) -> SessionSummary:
    """Return the summary of the session after these facts were appended to it."""
    return reduce(_advance_by_fact, facts, summary)


def _advance_by_fact(summary: SessionSummary, fact: Fact) -> SessionSummary:
    created = summary.created if summary.facts else fact.at
    summary = replace(summary, created=created, updated=fact.at, facts=fact.seq)
    match fact:
        case RunStarted(prompt=prompt):
            text = " ".join(part.text for part in prompt if isinstance(part, TextPart))
            title = summary.title or clip_line(text, TITLE_CHARS_MAX)
            return replace(summary, title=title, runs=summary.runs + 1, outcome=None)
        case StepProposed(reply=reply):
            return replace(summary, steps=summary.steps + 1, proposed=len(reply.calls), asked=0)
        case LookupsPlanned(calls=calls):
            # The runtime opens this step itself, so it is not counted as one of the model's.
            return replace(summary, proposed=len(calls), asked=0)
        case CallJudged(verdict=verdict):
            asked = summary.asked + isinstance(verdict, Ask)
            # A call that a crash interrupted is judged again, and is not among the proposed ones.
            return replace(summary, proposed=max(summary.proposed - 1, 0), asked=asked)
        case CallAnswered():
            return replace(summary, asked=max(summary.asked - 1, 0))
        case SessionImported(calls=calls):
            return replace(summary, proposed=len(calls), asked=0)
        case RunEnded(outcome=outcome):
            return replace(summary, outcome=outcome, proposed=0, asked=0)
        case _:
            return summary
