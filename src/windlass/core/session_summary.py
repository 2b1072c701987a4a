"""One line about a session: what a list of sessions shows, and what it can be filtered by.

A store keeps the summary beside the session and advances it with every append. Listing a thousand
sessions then reads a thousand rows, while folding them would read all of their facts.

The law: a summary never says anything else than the fold. Both apply the same facts and share the
rule of when a session waits for a person; a test compares the two after each kind of fact.
"""

from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from windlass.core.control_facts import PauseCause
from windlass.core.errors import ConfigError
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallWaiting,
    ContextCompacted,
    Fact,
    LimitsRaised,
    LookupsPlanned,
    Outcome,
    RunContinued,
    RunEnded,
    RunPaused,
    RunReleased,
    RunResumed,
    RunStarted,
    SessionImported,
    StepProposed,
    UndoPlanned,
)
from windlass.core.messages import EXACT_MATH, Charge
from windlass.core.phrases import join_texts
from windlass.core.state import waits_for_person
from windlass.core.text_clip import clip_line
from windlass.core.verdicts import Ask

TITLE_CHARS_MAX = 120
"""Length of a title, in characters."""

SessionState = Literal["open", "waiting"] | Outcome
"""How the last run of a session ended, or whether it goes on or waits for a person."""
UNFINISHED_STATES: tuple[SessionState, ...] = ("open", "waiting", "paused")
"""The states of a session whose last run has not ended."""
ENDED_STATES: tuple[SessionState, ...] = tuple(
    outcome for outcome in get_args(Outcome) if outcome != "suspended"
)
"""The states of a session whose last run has ended."""


class SessionSummary(msgspec.Struct, frozen=True):
    """What a list shows about a session. Times are seconds since the epoch."""

    session: str
    title: str = ""
    """The beginning of the first prompt, on one line."""
    created: float = 0.0
    updated: float = 0.0
    """When the last fact was recorded: the last activity."""
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
    agent: str = ""
    """The name of the agent of the last run."""
    caller: str = ""
    """On whose behalf the last run works."""
    parent: str = ""
    """The session that this one works for, if a sub-agent has it; empty for all others."""
    tokens: int = 0
    """The tokens of all attempts, input and output together."""
    usd: Decimal | None = Decimal(0)
    """The money spent, in US dollars; None as soon as one price is not known."""
    reserved_tokens: int | None = None
    """The most tokens of the attempt that is under way; None if there is none."""
    reserved_usd: Decimal | None = None
    """The most that this attempt may cost; None if the price is not known."""
    waiting: int = 0
    """Calls of the open step whose sub-agents wait."""
    pause: PauseCause | Literal[""] = ""
    """Why the run is paused, or will be once its step is over; empty if it is not."""
    released: bool = False
    """The last driver let go of the run without ending it."""

    @property
    def state(self) -> SessionState:
        """How the last run ended, or whether it goes on, is paused, or waits for a person."""
        if self.outcome is not None:
            return self.outcome
        if waits_for_person(self.proposed, self.asked, self.waiting):
            return "waiting"
        return "paused" if self.pause and self.released else "open"


def check_session(session: str) -> str:
    """Return the name of a session. Raises ConfigError if it is empty or not a str."""
    if not isinstance(session, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
        raise ConfigError(f"session={session!r}: the name of a session must be a str")
    if not session.strip():
        raise ConfigError(f"session={session!r}: the name of the session is empty")
    return check_text("session", session)


def check_text(name: str, text: str) -> str:
    """Return a text that a caller gave as `name`. Raises ConfigError if it cannot be recorded."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{name}= cannot be recorded: it has half of a character at {error.start} "
                f"({text[error.start]!r})"
            ) from None
    return text


def advance_summary(summary: SessionSummary, facts: Iterable[Fact]) -> SessionSummary:
    """Return the summary of the session after these facts were appended to it."""
    return reduce(_advance_by_fact, facts, summary)


def find_parent(facts: Iterable[Fact]) -> str:
    """Return the session that a session works for; empty if it works for none.

    Only the facts say it: a name with a slash may be anybody's.
    """
    telling = (fact for fact in facts if isinstance(fact, RunStarted | SessionImported))
    return advance_summary(SessionSummary(""), telling).parent


def _advance_by_fact(summary: SessionSummary, fact: Fact) -> SessionSummary:
    created = summary.created if summary.facts else fact.at
    # A clock that is set back must not move a session in a list that somebody is paging through.
    updated = max(summary.updated, fact.at)
    summary = replace(summary, created=created, updated=updated, facts=fact.seq)
    match fact:
        case RunStarted():
            return _start_run(summary, fact)
        case AttemptStarted(reserved=reserved):
            tokens = reserved.input + reserved.output
            return replace(summary, reserved_tokens=tokens, reserved_usd=reserved.usd)
        case AttemptFailed(charge=charge):
            return _settle_attempt(summary, charge)
        case StepProposed(reply=reply, charge=charge):
            summary = _settle_attempt(summary, charge)
            return replace(summary, steps=summary.steps + 1, proposed=len(reply.calls), asked=0)
        case ContextCompacted(charge=charge):
            return _settle_attempt(summary, charge)
        case CallFinished(charges=charges):
            return reduce(_add_charge, charges, summary)
        case RunResumed():
            return replace(_settle_by_reservation(summary), waiting=0, released=False)
        case RunReleased(charge=charge):
            return replace(_settle_attempt(summary, charge), released=True)
        case RunEnded(outcome=outcome, charge=charge, charges=charges, undo=is_undo_due):
            summary = reduce(_add_charge, charges, _settle_attempt(summary, charge))
            # Until its calls are undone, the session needs a driver like one with an open run.
            ended_as = None if is_undo_due else outcome
            summary = replace(summary, outcome=ended_as, proposed=0, asked=0, waiting=0)
            return replace(summary, pause="", released=False)
        case RunPaused() | RunContinued() | LimitsRaised():
            return replace(summary, pause=_pause_after(summary, fact))
        case _:
            return _count_calls(summary, fact)


def _pause_after(
    summary: SessionSummary, fact: RunPaused | RunContinued | LimitsRaised
) -> PauseCause | Literal[""]:
    if isinstance(fact, RunPaused):
        return fact.cause
    # Higher limits end only a pause for want of money.
    if isinstance(fact, LimitsRaised) and summary.pause != "budget":
        return summary.pause
    return ""


def _count_calls(summary: SessionSummary, fact: Fact) -> SessionSummary:
    """Return the summary with the calls that are not judged yet, and those that wait."""
    match fact:
        case LookupsPlanned(calls=calls) | UndoPlanned(calls=calls):
            # The runtime opens this step itself, so it is not counted as one of the model's.
            return replace(summary, proposed=len(calls), asked=0)
        case CallJudged(verdict=verdict):
            asked = summary.asked + isinstance(verdict, Ask)
            # A call that a crash interrupted is judged again, and is not among the proposed ones.
            return replace(summary, proposed=max(summary.proposed - 1, 0), asked=asked)
        case CallAnswered():
            return replace(summary, asked=max(summary.asked - 1, 0))
        case CallWaiting():
            return replace(summary, waiting=summary.waiting + 1)
        case SessionImported(calls=calls):
            # Nobody here vouches for what the file says about its caller and its parent.
            return replace(summary, proposed=len(calls), asked=0, waiting=0, caller="", parent="")
        case _:
            return summary


def _start_run(summary: SessionSummary, fact: RunStarted) -> SessionSummary:
    text = join_texts(fact.prompt)
    return replace(
        summary,
        title=summary.title or clip_line(text, TITLE_CHARS_MAX),
        runs=summary.runs + 1,
        outcome=None,
        agent=fact.agent,
        caller=fact.caller,
        # A person may go on with the session of a sub-agent, which does not give it another parent.
        parent=summary.parent or fact.parent.rpartition("/")[0],
    )


def _settle_attempt(summary: SessionSummary, charge: Charge | None) -> SessionSummary:
    """Close the attempt that was under way, and add what it cost."""
    if summary.reserved_tokens is not None:
        summary = replace(summary, reserved_tokens=None, reserved_usd=None)
    return summary if charge is None else _add_charge(summary, charge)


def _settle_by_reservation(summary: SessionSummary) -> SessionSummary:
    """An attempt that nobody saw the end of may have cost all that was reserved for it."""
    if summary.reserved_tokens is None:
        return summary
    return replace(
        summary,
        tokens=summary.tokens + summary.reserved_tokens,
        usd=_add_usd(summary.usd, summary.reserved_usd),
        reserved_tokens=None,
        reserved_usd=None,
    )


def _add_charge(summary: SessionSummary, charge: Charge) -> SessionSummary:
    if charge.usage is None:
        return summary
    tokens = summary.tokens + charge.usage.total
    return replace(summary, tokens=tokens, usd=_add_usd(summary.usd, charge.usd))


def _add_usd(spent: Decimal | None, more: Decimal | None) -> Decimal | None:
    if spent is None or more is None:
        return None
    return EXACT_MATH.add(spent, more)
