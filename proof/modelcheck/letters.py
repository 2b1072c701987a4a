"""The mailbox of the modelled session: letters, a counter, and what is owed to posters."""

from functools import cache
from typing import NamedTuple

from proof.modelcheck.explore import RuleViolation
from proof.modelcheck.plants import PlantedBug
from windlass.agent.approvals import answer_from_mail
from windlass.core.events import Fact, RunEnded, RunQueued
from windlass.core.mail import (
    AnswerMail,
    BudgetFreedMail,
    CancelMail,
    ContinueMail,
    ControlMail,
    Letter,
    PauseMail,
    ReleaseMail,
    SteerMail,
)
from windlass.core.messages import TextPart
from windlass.core.setup import digest
from windlass.core.state import State
from windlass.core.verdicts import Allow, Deny
from windlass.journals.mail_rules import LaneCounters
from windlass.runtime.mailbox import find_refusal, make_mail_facts

BUDGET = "team"
"""The shared budget of the modelled session, if it has one."""
CALL = "c1"
"""The one call of the modelled session."""


class PostedLetter(NamedTuple):
    """A message in a lane."""

    number: int
    kind: str
    run: int
    opening: int = 0
    """The opening of the driver that is to release the run."""

    def describe(self) -> str:
        """Return it in words."""
        if not self.run:
            return f"message {self.number} ({self.kind})"
        return f"message {self.number} ({self.kind} of run {self.run})"


class LaneState(NamedTuple):
    """One lane, and what the rules remember of it."""

    kept: tuple[PostedLetter, ...] = ()
    """What lies in the mailbox."""
    last: int = 0
    """The counter of the store: the last number that it gave out."""
    owed: tuple[PostedLetter, ...] = ()
    """What was acknowledged to posters and is not on record. Only the rules look at it."""
    highest: int = 0
    """The highest number that was ever given out or recorded. Only the rules look at it."""


def post_letter(
    lane: LaneState, kind: str, run: int, taken: int, bug: PlantedBug | None, opening: int = 0
) -> LaneState:
    """Number a message by the store's own rule, keep it and acknowledge it."""
    if bug == "numbers_by_max":
        number = max((letter.number for letter in lane.kept), default=0) + 1
    elif bug == "fork_counts_from_one":
        number = LaneCounters(lane.last).next_number
    else:
        number = LaneCounters(lane.last, taken).next_number
    if number <= lane.highest:
        raise RuleViolation(f"a message got the number {number}, which was used before")
    if number != lane.highest + 1:
        raise RuleViolation(f"a message got the number {number}: {lane.highest + 1} is left out")
    letter = PostedLetter(number, kind, run, opening)
    return LaneState((*lane.kept, letter), number, (*lane.owed, letter), number)


def untaken_letters(lane: LaneState, taken: int) -> tuple[PostedLetter, ...]:
    """Return the letters of a lane after a cursor."""
    return tuple(letter for letter in lane.kept if letter.number > taken)


def remove_letters(lane: LaneState, upto: int) -> LaneState:
    """Forget the letters of a lane up to a number."""
    return lane._replace(kept=untaken_letters(lane, upto))


def make_letter_fact(state: State, posted: PostedLetter, bug: PlantedBug | None) -> Fact:
    """Return the fact that follows from a control message, or its refusal, as a driver does."""
    if bug == "cancel_any_run" and state.run is not None:
        posted = posted._replace(run=state.run.number)
    letter = _make_letter(posted)
    if isinstance(letter.message, CancelMail) and find_refusal(state, letter) is None:
        return RunEnded("cancelled", letter.message.reason, mail=letter.number)
    return make_mail_facts(state, letter, answer_from_mail)[-1]


def make_queued(session: State, posted: PostedLetter) -> RunQueued:
    """Return the fact that makes a prompt a run, once the run before it has ended."""
    return RunQueued(session.run.number + 1 if session.run else 1, posted.number)


def make_answer_mail(kind: str, run: int) -> AnswerMail:
    """Return an answer to the question about the call."""
    verdict = Allow() if kind == "allow" else Deny("no")
    return AnswerMail(run=run, call_id=CALL, digest=digest({}), verdict=verdict)


@cache
def _make_letter(posted: PostedLetter) -> Letter:
    messages: dict[str, ControlMail] = {
        "cancel": CancelMail(run=posted.run),
        "steer": SteerMail(run=posted.run, prompt=(TextPart("Hurry."),)),
        "pause": PauseMail(run=posted.run),
        "release": ReleaseMail(run=posted.run, opening=posted.opening),
        "freed": BudgetFreedMail(run=posted.run, budget=BUDGET),
        "continue": ContinueMail(run=posted.run),
        "allow": make_answer_mail("allow", posted.run),
        "deny": make_answer_mail("deny", posted.run),
    }
    return Letter(number=posted.number, at=0.0, message=messages[posted.kind])
